#include "codec/probes.h"
#include "codec/bytes.h"
#include "codec/sample.h"

#define PROBES_MIN 8

uint64_t gpufi_probes_load(const gpufi_probes *probes, size_t i) {
  const size_t nbytes = probes->g->value_nbytes;
  const uint8_t *const at = probes->raw + i * nbytes;
  return probes->swap ? gpufi_load_swapped(at, nbytes) : gpufi_load_value(at, nbytes);
}

double gpufi_probes_number(const gpufi_probes *probes, uint64_t bits) {
  const size_t nbytes = probes->g->value_nbytes;
  return nbytes == 8   ? gpufi_double_of_bits(bits)
         : nbytes == 4 ? (double)gpufi_float_of_bits((uint32_t)bits)
                       : 0;
}

size_t gpufi_probes_at(const gpufi_geometry *g, size_t j) {
  const size_t take = gpufi_sample_count(g), pair = j / 2, k = pair % take;
  return gpufi_sample_first(g, take == GPUFI_SAMPLE_GROUPS ? k * 61 % take : k) +
         (pair + pair / take) % (GPUFI_GROUP_VALUES - 1) + j % 2;
}

bool gpufi_probes_has(const gpufi_geometry *g, size_t j) {
  return j / 2 / gpufi_sample_count(g) < GPUFI_GROUP_VALUES - 1 &&
         gpufi_probes_at(g, j) < g->value_count;
}

bool gpufi_is_probe(size_t value_nbytes, uint64_t bits) {
  const uint64_t magnitude = bits & (UINT64_MAX >> (65 - 8 * value_nbytes));
  const uint64_t exponent = value_nbytes == 8 ? magnitude >> 52 : magnitude >> 23;
  const uint64_t one = value_nbytes == 8 ? 1023 : 127;
  return magnitude != 0 && (value_nbytes < 4 || (exponent >= one - GPUFI_PARAMETER_EXPONENT_MAX &&
                                                 exponent < one + GPUFI_PARAMETER_EXPONENT_MAX));
}

bool gpufi_probes_take(const gpufi_sampled *sampled, gpufi_probes *probes) {
  const gpufi_geometry *const g = sampled->g;
  const size_t nbytes = g->value_nbytes;
  size_t hits[GPUFI_PROBES], odd_left = 0, j = 0;
  bool has_odd = false;
  *probes = (gpufi_probes){.g = g, .raw = sampled->raw, .swap = sampled->swap};
  if (nbytes == 1 || !gpufi_chunk_dtype_is_float(sampled->dtype)) {
    return false;
  }
  for (; j < GPUFI_PROBED_VALUES && probes->count < GPUFI_PROBES; j++) {
    const size_t i = gpufi_probes_at(g, j);
    if (!gpufi_probes_has(g, j)) {
      continue;
    }
    const uint64_t bits = gpufi_probes_load(probes, i);
    size_t n = 0;
    probes->looked_at++;
    if (!gpufi_is_probe(nbytes, bits)) { /* of several, the one that has the majority if one has */
      probes->odd = odd_left == 0 ? bits : probes->odd;
      odd_left += bits == probes->odd ? 1 : (size_t)-1;
      has_odd = true;
      continue;
    }
    while (n < probes->count && probes->bits[n] != bits) {
      n++;
    }
    if (n == probes->count) {
      probes->bits[n] = bits;
      probes->values[n] = gpufi_probes_number(probes, bits);
      hits[n] = 0;
      probes->count++;
    }
    if (++hits[n] > probes->common_hits) {
      probes->common_hits = hits[n];
      probes->common = bits;
    }
  }
  while (has_odd && j-- > 0) {
    probes->odd_hits +=
        gpufi_probes_has(g, j) && gpufi_probes_load(probes, gpufi_probes_at(g, j)) == probes->odd;
  }
  return probes->count >= PROBES_MIN;
}

double gpufi_probes_base(const gpufi_probes *probes, unsigned transform, double a, double b,
                         double p) {
  if (transform == GPUFI_TRANSFORM_SINGLE) {
    return (double)gpufi_number_single(a, b, (float)p);
  }
  const double base = gpufi_number_base(transform, a, b, p);
  return probes->g->value_nbytes == 8 ? base : (double)(float)base;
}

void gpufi_sort_doubles(double *values, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const double x = values[i];
    size_t at = i;
    for (; at > 0 && values[at - 1] > x; at--) {
      values[at] = values[at - 1];
    }
    values[at] = x;
  }
}
