/* Finding the numbers behind floats. All that is decided here rests on up to 64 values of the
 * sample, the probes, in single IEEE operations and integers, in the order that is written, so that
 * an encoder elsewhere decides the same; and most data are given up after a few of the probes.
 *
 * A candidate is a pair of parameters that give each integer its base. It explains a value if the
 * value is the base of an integer so small that few floats near it are bases: random floats are
 * explained rarely. Candidates are
 *
 *   multiples of a power of two       p / 2^k      integers, fixed point, coarse measurements
 *   decimals                          p / 10^e     what was printed and read again
 *   multiples of a step               p / k        where 1 / step is an integer: 24 hours in a day
 *                                     p * a + b    else: packed by scale and offset
 *
 * The step is what the differences of the sorted probes have in common. */
#include "codec/numbers.h"
#include "codec/steps.h"

#define DECIMALS_MAX 17

static const double powers_of_ten[DECIMALS_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,
                                                       1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17};

bool gpufi_numbers_read(gpufi_numbers *numbers, const gpufi_chunk_header *header,
                        const uint8_t *parameters) {
  gpufi_geometry g;
  gpufi_geometry_init(&g, &header->shape);
  *numbers = (gpufi_numbers){.transform = header->transform,
                             .shift = header->shift,
                             .has_fill = (header->flags & GPUFI_FLAG_FILL) != 0};
  const bool has_parameters = gpufi_transform_has_parameters(header->transform);
  if (has_parameters) {
    memcpy(&numbers->a, parameters, 8);
    memcpy(&numbers->b, parameters + 8, 8);
    parameters += GPUFI_PARAMETERS_NBYTES;
  }
  if (numbers->has_fill) {
    memcpy(&numbers->fill, parameters, GPUFI_FILL_NBYTES);
  }
  return numbers->fill <= UINT64_MAX >> (64 - 8 * g.value_nbytes) &&
         (!has_parameters || gpufi_parameters_are_good(header->transform, numbers->a, numbers->b));
}

void gpufi_numbers_write(const gpufi_numbers *numbers, uint8_t *parameters) {
  if (gpufi_transform_has_parameters(numbers->transform)) {
    memcpy(parameters, &numbers->a, 8);
    memcpy(parameters + 8, &numbers->b, 8);
    parameters += GPUFI_PARAMETERS_NBYTES;
  }
  if (numbers->has_fill) {
    memcpy(parameters, &numbers->fill, GPUFI_FILL_NBYTES);
  }
}

/* Of a candidate: which probes it explains, and by which integers. */
typedef struct explained {
  size_t count;
  int64_t p[GPUFI_PROBES]; /* 0 for probes that are not explained */
  bool is[GPUFI_PROBES];
  uint64_t cost; /* bits of the probes */
} explained;

static bool explain_one(const gpufi_probes *probes, const gpufi_numbers *numbers, double value,
                        int64_t *p) {
  const double most = probes->g->value_nbytes == 8 ? 0x1p48 : 0x1p20;
  const double near =
      gpufi_number_near(numbers->transform, numbers->a, numbers->b, numbers->inverse, value);
  if (!(near > -most && near < most)) {
    return false;
  }
  *p = gpufi_number_rounded(near);
  return gpufi_probes_base(probes, numbers->transform, numbers->a, numbers->b, (double)*p) == value;
}

static unsigned bit_length(uint64_t x) {
  return x != 0 ? 64 - (unsigned)__builtin_clzll(x) : 0;
}

/* True if at least three quarters of the probes are explained. Fewer than half of the first 8 end
 * the search. The cost: bits of the greatest integer for each probe, and those of a value for each
 * that is not explained. */
static bool explain(const gpufi_probes *probes, const gpufi_numbers *numbers, explained *e) {
  uint64_t greatest = 0;
  e->count = 0;
  for (size_t i = 0; i < probes->count; i++) {
    e->p[i] = 0;
    e->is[i] = explain_one(probes, numbers, probes->values[i], &e->p[i]);
    e->p[i] = e->is[i] ? e->p[i] : 0;
    e->count += e->is[i];
    greatest |= (uint64_t)(e->p[i] < 0 ? -e->p[i] : e->p[i]);
    if (i == 7 && e->count < 4) {
      return false;
    }
  }
  e->cost = probes->count * bit_length(greatest) +
            (probes->count - e->count) * 8 * probes->g->value_nbytes;
  return e->count != 0 && 4 * e->count >= 3 * probes->count;
}

static uint64_t common_divisor(uint64_t x, uint64_t y) {
  while (y != 0) {
    const uint64_t rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}

/* Where all integers differ by multiples of some number, take these multiples instead, if that
 * explains as many probes. */
static void reduce(const gpufi_probes *probes, gpufi_numbers *numbers, explained *e) {
  uint64_t divisor = 0;
  size_t first = 0;
  while (!e->is[first]) {
    first++;
  }
  for (size_t i = first + 1; i < probes->count && divisor != 1; i++) {
    if (e->is[i]) {
      const int64_t less = e->p[i] - e->p[first];
      divisor = common_divisor(divisor, (uint64_t)(less < 0 ? -less : less));
    }
  }
  if (divisor <= 1) {
    return;
  }
  const int64_t factor = (int64_t)divisor, rest = (e->p[first] % factor + factor) % factor;
  explained other;
  gpufi_numbers tried = {.transform = GPUFI_TRANSFORM_QUOTIENT, .a = numbers->a / (double)factor};
  if (rest != 0) {
    tried.transform = GPUFI_TRANSFORM_LINEAR;
    tried.a = (double)factor / numbers->a;
    tried.b = (double)rest / numbers->a;
    tried.inverse = 1 / tried.a;
  }
  if (gpufi_parameters_are_good(tried.transform, tried.a, tried.b) &&
      explain(probes, &tried, &other) && other.count >= e->count) {
    *numbers = tried;
    *e = other;
  }
}

/* Take the candidate if its cost is less than that of the best one so far. */
static void try_quotient(const gpufi_probes *probes, double a, gpufi_numbers *best,
                         uint64_t *best_cost) {
  gpufi_numbers tried = {.transform = GPUFI_TRANSFORM_QUOTIENT, .a = a};
  explained e;
  if (gpufi_parameters_are_good(tried.transform, tried.a, tried.b) && explain(probes, &tried, &e)) {
    reduce(probes, &tried, &e);
    if (e.cost < *best_cost) {
      *best = tried;
      *best_cost = e.cost;
    }
  }
}

/* The exponent of a value's lowest bit that is 1. */
static int lowest_exponent(double value) {
  const uint64_t bits = gpufi_double_bits(value);
  const uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
  return (int)(bits >> 52 & 0x7ff) - 1075 + __builtin_ctzll(mantissa);
}

/* 2^-k where nearly all probes are multiples of 2^k: all but a sixteenth of them. */
static double dyadic(const gpufi_probes *probes) {
  double lowest[GPUFI_PROBES];
  for (size_t i = 0; i < probes->count; i++) {
    lowest[i] = lowest_exponent(probes->values[i]);
  }
  gpufi_sort_doubles(lowest, probes->count);
  const int k = (int)lowest[probes->count / 16];
  return gpufi_double_of_bits((uint64_t)(1023 - k) << 52);
}

/* Multiples of a step: p / k, or p * a + b by what fits best. */
static bool find_multiples(gpufi_numbers *numbers, const gpufi_probes *probes) {
  double sorted[GPUFI_PROBES];
  memcpy(sorted, probes->values, probes->count * sizeof(sorted[0]));
  gpufi_sort_doubles(sorted, probes->count);
  const double step = gpufi_find_step(probes, sorted);
  if (step == 0) {
    return false;
  }
  uint64_t cost = UINT64_MAX;
  const double count = 1 / step;
  if (count > 1.5 && count < GPUFI_FITTED_RANGE) {
    try_quotient(probes, (double)gpufi_number_rounded(count), numbers, &cost);
  }
  if (cost != UINT64_MAX) {
    return true;
  }
  return gpufi_fit_linear(probes, sorted, step, numbers);
}

static bool is_integer(const gpufi_probes *probes, const gpufi_numbers *numbers, uint64_t bits) {
  const double most = probes->g->value_nbytes == 8 ? GPUFI_NUMBER_MAX_64 : GPUFI_NUMBER_MAX_32;
  const double near = gpufi_number_near(numbers->transform, numbers->a, numbers->b,
                                        numbers->inverse, gpufi_probes_number(probes, bits));
  return near > -most && near < most;
}

/* The integers behind the probes: false if there seem to be none. */
static bool find_numbers(gpufi_numbers *numbers, const gpufi_probes *probes) {
  const bool wide = probes->g->value_nbytes == 8;
  uint64_t cost = UINT64_MAX;
  *numbers = (gpufi_numbers){0};
  if (probes->g->value_nbytes < 4) {
    return false;
  }
  try_quotient(probes, dyadic(probes), numbers, &cost);
  for (unsigned e = 1; e <= (wide ? DECIMALS_MAX : DECIMALS_MAX / 2); e++) {
    try_quotient(probes, powers_of_ten[e], numbers, &cost);
  }
  if (cost == UINT64_MAX && !find_multiples(numbers, probes)) {
    return false;
  }
  numbers->filler = probes->bits[0];
  if (probes->odd_hits != 0 && !is_integer(probes, numbers, probes->odd)) {
    numbers->has_fill = true;
    numbers->fill = probes->odd;
  }
  return true;
}

/* The low bits that most of the probes do not use, where a transform alone does not keep them:
 * false if there are none. */
static bool find_shift(gpufi_numbers *numbers, const gpufi_probes *probes) {
  const unsigned bits = 8 * (unsigned)probes->g->value_nbytes;
  double zeros[GPUFI_PROBES];
  bool negative = false;
  for (size_t i = 0; i < probes->count; i++) {
    zeros[i] = __builtin_ctzll(probes->bits[i]);
    negative = negative || probes->bits[i] >> (bits - 1);
  }
  gpufi_sort_doubles(zeros, probes->count);
  const double most = bits - 2, shift = zeros[probes->count / 16];
  *numbers =
      (gpufi_numbers){.shift = (uint8_t)(shift < most ? shift : most), .filler = probes->bits[0]};
  return shift > 0 && (negative || zeros[0] < shift);
}

/* Make the most frequent value the fill, if it is so frequent that this may pay, and not the fill
 * already. */
static bool find_fill(gpufi_numbers *numbers, const gpufi_probes *probes) {
  const bool odd = probes->odd_hits >= probes->common_hits;
  const uint64_t fill = odd ? probes->odd : probes->common;
  const size_t hits = odd ? probes->odd_hits : probes->common_hits;
  if (8 * hits < probes->looked_at || (numbers->has_fill && numbers->fill == fill)) {
    return false;
  }
  numbers->has_fill = true;
  numbers->fill = fill;
  numbers->filler = probes->bits[probes->bits[0] == fill];
  return true;
}

/* Bits of the chunk by those of the sample, for a base with corrections or without. */
static uint64_t cost_of(const gpufi_sampled *of, const gpufi_numbers *tried, uint64_t sampled,
                        bool corrected) {
  const gpufi_geometry *const g = of->g;
  uint64_t cost = sampled * gpufi_group_count(g) / gpufi_sample_count(g);
  cost += corrected || tried->has_fill ? 32 * gpufi_block_count(g) : 0;
  cost += gpufi_transform_has_parameters(tried->transform) ? 8 * GPUFI_PARAMETERS_NBYTES : 0;
  return cost + (tried->has_fill ? 8 * GPUFI_PARAMETERS_NBYTES : 0);
}

/* W8 with these numbers, if that costs fewer than *bits, which is then what it costs. Many have
 * corrections that alone cost more, which is soon known. */
static bool try_numbers(const gpufi_sampled *of, const gpufi_numbers *tried, uint64_t *bits,
                        gpufi_numbers *numbers, gpufi_w8_choice *w8) {
  gpufi_w8_choice choice;
  const uint64_t corrections = gpufi_predict_corrections(of, tried);
  uint64_t cost = cost_of(of, tried, corrections, corrections != 0);
  if (cost + cost / 64 >= *bits) {
    return false;
  }
  const uint64_t sampled = gpufi_predict_choose(of, tried, &choice) + corrections;
  cost = cost_of(of, tried, sampled, corrections != 0);
  if (cost + cost / 64 >= *bits) { /* values without a base decode faster */
    return false;
  }
  *numbers = *tried;
  numbers->transform = choice.transform;
  *w8 = choice;
  w8->bits = *bits = cost;
  return true;
}

bool gpufi_numbers_choose(const gpufi_sampled *sampled, uint64_t bits, gpufi_numbers *numbers,
                          gpufi_w8_choice *w8) {
  gpufi_probes probes;
  gpufi_numbers tried;
  bool chosen = false;
  if (!gpufi_probes_take(sampled, &probes)) {
    return false;
  }
  if (find_numbers(&tried, &probes)) {
    chosen = try_numbers(sampled, &tried, &bits, numbers, w8);
    if (find_fill(&tried, &probes)) {
      chosen |= try_numbers(sampled, &tried, &bits, numbers, w8);
    }
  }
  if (find_shift(&tried, &probes)) {
    chosen |= try_numbers(sampled, &tried, &bits, numbers, w8);
  }
  if (find_fill(&tried, &probes)) {
    chosen |= try_numbers(sampled, &tried, &bits, numbers, w8);
  }
  return chosen;
}
