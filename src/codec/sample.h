/* The sample that every choice of an encoder rests on: up to GPUFI_SAMPLE_GROUPS groups of a chunk,
 * one from each of as many equal ranges of the chunk, at a pseudo-random place in the range. */
#ifndef GPUFI_CODEC_SAMPLE_H
#define GPUFI_CODEC_SAMPLE_H

#include "codec/geometry.h"

#include <assert.h>

static inline size_t gpufi_sample_count(const gpufi_geometry *g) {
  const size_t groups = gpufi_group_count(g);
  return groups < GPUFI_SAMPLE_GROUPS ? groups : GPUFI_SAMPLE_GROUPS;
}

/* First value of the k-th sampled group. */
static inline size_t gpufi_sample_first(const gpufi_geometry *g, size_t k) {
  const uint64_t groups = gpufi_group_count(g), take = gpufi_sample_count(g);
  assert(take != 0 && take <= groups);
  const uint64_t begin = k * groups / take, end = (k + 1) * groups / take;
  const uint64_t jitter = (uint32_t)(k * 2654435761u) % (end - begin);
  return (size_t)(begin + jitter) * GPUFI_GROUP_VALUES;
}

#endif
