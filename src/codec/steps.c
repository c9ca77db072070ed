#include "codec/steps.h"
#include "codec/cpu.h"

/* A unit in the last place of values near `value`. */
static double unit_near(const gpufi_probes *probes, double value) {
  const uint64_t exponent = gpufi_double_bits(value) >> 52 & 0x7ff;
  const uint64_t bits = probes->g->value_nbytes == 8 ? 52 : 23;
  return gpufi_double_of_bits((exponent - bits) << 52);
}

/* The step of which `gaps`, in ascending order, are about multiples, if the least is `m` steps: the
 * estimate gets better as greater gaps are added to it. 0 if it is none for too many. */
static double step_of(const double *gaps, size_t count, unsigned m) {
  double sum = gaps[0], steps = m;
  size_t missed = 0;
  for (size_t i = 1; i < count; i++) {
    const double step = sum / steps, n = (double)gpufi_number_rounded(gaps[i] / step);
    const double product = n * step, off = gaps[i] - product;
    if (off > step / 8 || off < -step / 8) {
      missed++;
      if (i < 8 || 8 * missed > count) {
        return 0;
      }
      continue;
    }
    sum = sum + gaps[i];
    steps = steps + n;
  }
  return sum / steps;
}

double gpufi_find_step(const gpufi_probes *probes, const double *sorted) {
  double gaps[GPUFI_PROBES];
  const double last = sorted[probes->count - 1], first = sorted[0], range = last - first;
  const double unit = unit_near(probes, -first > last ? first : last);
  size_t count = 0;
  for (size_t i = 0; i + 1 < probes->count; i++) {
    const double gap = sorted[i + 1] - sorted[i];
    if (gap >= 16 * unit) { /* else they may be one number, rounded twice */
      gaps[count++] = gap;
    }
  }
  if (4 * count < 3 * probes->count) {
    return 0;
  }
  gpufi_sort_doubles(gaps, count);
  for (unsigned m = 1; m <= GPUFI_PROBES && gaps[0] >= 16 * m * unit; m++) {
    const double step = range / gaps[0] * m < GPUFI_FITTED_RANGE ? step_of(gaps, count, m) : 0;
    if (step != 0) {
      return step;
    }
  }
  return 0;
}

/* Sums over the values that the fit is made by: of their integers p, and of r, what they are off by
 * in 64ths of a unit, which is as far as rounding alone moves them. The integers are below 2^21,
 * and there are at most 256 of them. */
typedef struct fit_sums {
  int64_t count, p, r, pp, pr;
} fit_sums;

static void sum_up(const gpufi_probes *probes, const gpufi_numbers *numbers, double unit,
                   fit_sums *sums) {
  const gpufi_geometry *const g = probes->g;
  *sums = (fit_sums){0};
  for (size_t j = 0; j < GPUFI_PROBED_VALUES; j++) {
    const size_t i = gpufi_probes_at(g, j);
    if (!gpufi_probes_has(g, j)) {
      continue;
    }
    const uint64_t bits = gpufi_probes_load(probes, i);
    const double value = gpufi_probes_number(probes, bits);
    const double near =
        gpufi_number_near(GPUFI_TRANSFORM_LINEAR, numbers->a, numbers->b, numbers->inverse, value);
    if (!gpufi_is_probe(g->value_nbytes, bits) ||
        !(near > -GPUFI_FITTED_RANGE && near < GPUFI_FITTED_RANGE)) {
      continue;
    }
    const int64_t p = gpufi_number_rounded(near);
    const double base =
        gpufi_number_base(GPUFI_TRANSFORM_LINEAR, numbers->a, numbers->b, (double)p);
    const double off = (value - base) / unit;
    if (off > -4096 && off < 4096) {
      const int64_t r = gpufi_number_rounded(off * 64);
      sums->count++;
      sums->p += p;
      sums->r += r;
      sums->pp += p * p;
      sums->pr += p * r;
    }
  }
}

/* The parameters of least squares. */
static void fit(const gpufi_probes *probes, double unit, gpufi_numbers *numbers) {
  fit_sums s;
  for (int round = 0; round < 3; round++) {
    sum_up(probes, numbers, unit, &s);
    const int64_t spread = s.count * s.pp - s.p * s.p;
    if (spread <= 0) {
      return;
    }
    const double slope = (double)(s.count * s.pr - s.p * s.r) / (double)spread;
    const double mean = ((double)s.r - slope * (double)s.p) / (double)s.count;
    numbers->a = numbers->a + slope * (unit / 64);
    numbers->b = numbers->b + mean * (unit / 64);
    numbers->inverse = 1 / numbers->a;
  }
}

/* Values that the origin is looked for by: the nearest to 0 first, where what a wrong one is off by
 * is most units in the last place. */
typedef struct origin_tests {
  size_t count;
  double values[GPUFI_PROBED_VALUES], p[GPUFI_PROBED_VALUES];
} origin_tests;

static void take_tests(const gpufi_probes *probes, const gpufi_numbers *numbers,
                       origin_tests *tests) {
  tests->count = 0;
  for (size_t j = 0; j < GPUFI_PROBED_VALUES; j++) {
    const size_t i = gpufi_probes_at(probes->g, j);
    const uint64_t bits = gpufi_probes_has(probes->g, j) ? gpufi_probes_load(probes, i) : 0;
    const double value = gpufi_probes_number(probes, bits);
    const double near =
        gpufi_number_near(GPUFI_TRANSFORM_LINEAR, numbers->a, numbers->b, numbers->inverse, value);
    if (!gpufi_is_probe(probes->g->value_nbytes, bits) ||
        !(near > -GPUFI_FITTED_RANGE && near < GPUFI_FITTED_RANGE)) {
      continue;
    }
    size_t at = tests->count++;
    for (; at > 0 && __builtin_fabs(tests->values[at - 1]) > __builtin_fabs(value); at--) {
      tests->values[at] = tests->values[at - 1];
      tests->p[at] = tests->p[at - 1];
    }
    tests->values[at] = value;
    tests->p[at] = (double)gpufi_number_rounded(near);
  }
}

/* How many of the tests are not the base of their integer and `n` more; no more than `most` + 1 are
 * counted. */
static size_t count_missed(const gpufi_probes *probes, const gpufi_numbers *numbers,
                           const origin_tests *tests, double n, size_t most) {
  size_t missed = 0;
  for (size_t t = 0; t < tests->count && missed <= most; t++) {
    missed += gpufi_probes_base(probes, numbers->transform, numbers->a, numbers->b,
                                tests->p[t] + n) != tests->values[t];
  }
  return missed;
}

/* The integers may all be greater by some n, and b less by n * a. That is the same number, but
 * rounded otherwise, and only with the b that the chunk was made with there are no corrections. The
 * n looked for are those by which the integers have 16 bits, with a sign or without. For each n, b
 * is what the value nearest to 0 says, exactly, since there the product and b nearly cancel.
 * Returns how many of the tests are missed, or `best` if no b is better. */
static size_t find_origin(const gpufi_probes *probes, const origin_tests *tests, size_t best,
                          gpufi_numbers *numbers) {
  const size_t few = tests->count < 24 ? tests->count : 24;
  const bool single = numbers->transform == GPUFI_TRANSFORM_SINGLE;
  gpufi_find_origins_fn *const find =
      gpufi_cpu_get()->find_origins[gpufi_value_index(probes->g->value_nbytes)];
  gpufi_numbers tried = *numbers;
  double least = 0, greatest = 0;
  for (size_t t = 0; t < tests->count; t++) {
    least = tests->p[t] < least ? tests->p[t] : least;
    greatest = tests->p[t] > greatest ? tests->p[t] : greatest;
  }
  /* All of these are integers. */
  const int64_t last = 65535 - (int64_t)greatest;
  for (int64_t n = -32768 - (int64_t)least; n <= last && best != 0; n += GPUFI_ORIGINS) {
    uint64_t found = find(numbers, tests->values, tests->p, few, (double)n);
    for (; found != 0 && best != 0; found &= found - 1) {
      const double more = (double)(n + __builtin_ctzll(found));
      tried.b = gpufi_number_origin(&tried, tests->values[0], tests->p[0] + more, single);
      const size_t missed = count_missed(probes, &tried, tests, more, best);
      if (more <= (double)last && missed < best &&
          gpufi_parameters_are_good(tried.transform, tried.a, tried.b)) {
        best = missed;
        *numbers = tried;
      }
    }
  }
  return best;
}

/* Where the best fit misses many values: another origin, in double and then in single precision. */
static void refine(const gpufi_probes *probes, gpufi_numbers *numbers) {
  origin_tests tests;
  take_tests(probes, numbers, &tests);
  size_t missed = count_missed(probes, numbers, &tests, 0, tests.count);
  if (8 * missed <= tests.count) {
    return;
  }
  missed = find_origin(probes, &tests, missed, numbers);
  if (probes->g->value_nbytes == 4 && 8 * missed > tests.count) {
    gpufi_numbers single = *numbers;
    single.transform = GPUFI_TRANSFORM_SINGLE;
    single.a = (double)(float)single.a;
    if (find_origin(probes, &tests, missed, &single) < missed) {
      *numbers = single;
    }
  }
}

bool gpufi_fit_linear(const gpufi_probes *probes, const double *sorted, double step,
                      gpufi_numbers *numbers) {
  const double last = sorted[probes->count - 1];
  *numbers = (gpufi_numbers){.transform = GPUFI_TRANSFORM_LINEAR,
                             .a = step,
                             .b = sorted[probes->count / 2],
                             .inverse = 1 / step};
  fit(probes, unit_near(probes, -sorted[0] > last ? sorted[0] : last), numbers);
  refine(probes, numbers);
  return gpufi_parameters_are_good(numbers->transform, numbers->a, numbers->b);
}
