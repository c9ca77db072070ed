/* Probes: the few values of a chunk of floats by which the encoder looks for the numbers behind
 * them (numbers.c).
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_PROBES_H
#define GPUFI_CODEC_PROBES_H

#include "codec/number.h"
#include "codec/sample.h"

#define GPUFI_PROBED_VALUES 256 /* looked at for probes */
#define GPUFI_PROBES 64

/* Integers whose step is looked for are below this. */
#define GPUFI_FITTED_RANGE 0x1p21

/* Distinct values of the sample that are neither 0 nor far from 1. */
typedef struct gpufi_probes {
  const gpufi_geometry *g;
  const uint8_t *raw;
  bool swap; /* the values are big-endian */
  size_t count;
  uint64_t bits[GPUFI_PROBES];
  double values[GPUFI_PROBES]; /* of 32 and 64 bits; else 0 */
  size_t looked_at;            /* values, which were probes or not */
  /* The most frequent one of the probes, and of the values that were none of them. */
  size_t common_hits, odd_hits;
  uint64_t common, odd;
} gpufi_probes;

/* Take the probes of a chunk of floats; false if there are too few. */
bool gpufi_probes_take(const gpufi_sampled *sampled, gpufi_probes *probes);

/* Number `j` of the values that are looked at: two side by side in each of the sampled groups, here
 * and there in the group, in an order that soon has been all over the chunk; then two others in
 * each. */
size_t gpufi_probes_at(const gpufi_geometry *g, size_t j);

/* Whether the chunk has it, and it is not one of them again. */
bool gpufi_probes_has(const gpufi_geometry *g, size_t j);

/* The bits of value `i`, and the number that such bits are: 0 if values have fewer than 32. */
uint64_t gpufi_probes_load(const gpufi_probes *probes, size_t i);
double gpufi_probes_number(const gpufi_probes *probes, uint64_t bits);

/* Not 0, not NaN, not infinite, and for widths that may have parameters within their range. */
bool gpufi_is_probe(size_t value_nbytes, uint64_t bits);

/* The base of an integer. */
double gpufi_probes_base(const gpufi_probes *probes, unsigned transform, double a, double b,
                         double p);

/* Sort by insertion. */
void gpufi_sort_doubles(double *values, size_t count);

#endif
