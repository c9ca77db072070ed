/* The sample that every choice of an encoder rests on: up to GPUFI_SAMPLE_GROUPS groups of a chunk,
 * one from each of as many equal ranges of the chunk, at a pseudo-random place in the range.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_SAMPLE_H
#define GPUFI_CODEC_SAMPLE_H

#include "codec/geometry.h"
#include "codec/kernels.h"

#include <assert.h>

static inline size_t gpufi_sample_count(const gpufi_geometry *g) {
  const size_t groups = gpufi_group_count(g);
  return groups < GPUFI_SAMPLE_GROUPS ? groups : GPUFI_SAMPLE_GROUPS;
}

/* First value of the k-th sampled group. */
static inline size_t gpufi_sample_first(const gpufi_geometry *g, size_t k) {
  const uint64_t groups = gpufi_group_count(g);
  if (groups <= GPUFI_SAMPLE_GROUPS) {
    return k * GPUFI_GROUP_VALUES;
  }
  const uint64_t begin = k * groups / GPUFI_SAMPLE_GROUPS;
  const uint64_t end = (k + 1) * groups / GPUFI_SAMPLE_GROUPS;
  const uint32_t jitter = (uint32_t)(k * 2654435761u) % (uint32_t)(end - begin);
  return (size_t)(begin + jitter) * GPUFI_GROUP_VALUES;
}

/* Where a sampled group is. Bit b of inside[j]: along axis[b] of the sample, value j has an index
 * above 0. far is for values of which all these bits are 0: how many values back one of them is
 * predicted from, or 0. Only one element of a group can be such a value with `far` above 0, for the
 * axes of the sample have 16 elements or more where the chunk has others. */
typedef struct gpufi_sample_place {
  size_t first, far;
  uint8_t far_value; /* which of the group is predicted from there */
  uint8_t inside[GPUFI_GROUP_VALUES];
} gpufi_sample_place;

/* The places of a chunk's sample, and the axes that prediction may go along, of which a chunk's set
 * is some subset, as a number: bit 0 is the last such axis, bit 1 the one before it, and so on. */
typedef struct gpufi_sample {
  size_t count;
  unsigned subset_count;
  int32_t axis[GPUFI_PREDICT_AXES];
  size_t offset[GPUFI_SUBSETS]; /* values from an element to its neighbour in the subset */
  gpufi_sample_place places[GPUFI_SAMPLE_GROUPS];
} gpufi_sample;

void gpufi_sample_init(gpufi_sample *sample, const gpufi_geometry *g, const uint8_t *raw);

/* What the sample is taken of. */
typedef struct gpufi_sampled {
  const gpufi_geometry *g;
  const gpufi_sample *sample;
  const uint8_t *raw;
  bool swap;        /* the values are big-endian */
  gpuf_dtype dtype; /* of what is predicted; uint8 for places in a dictionary */
} gpufi_sampled;

/* Gather sampled groups from number `k` on and their neighbours, as many as fit up to `most`, in
 * this machine's byte order. */
void gpufi_sample_gather(const gpufi_sampled *of, size_t k, size_t most, gpufi_sample_batch *batch);

/* The same without their neighbours. */
void gpufi_sample_gather_alone(const gpufi_sampled *of, size_t k, size_t most,
                               gpufi_sample_batch *batch);

/* What is predicted in place of the raw values. */
void gpufi_sample_convert(const gpufi_sampled *of, const gpufi_numbers *numbers,
                          gpufi_sample_batch *batch);

#endif
