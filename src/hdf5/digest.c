#include "hdf5/digest.h"

#include <string.h>

#include "codec/checksum.h"
#include "codec/format.h"

#define K UINT64_C(0x9e3779b97f4a7c15)
#define LANE_COUNT 4

/* Every bit of the result depends on every bit of `x` (the finalizer of splitmix64). */
static uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static uint64_t step(uint64_t hash, uint64_t word) {
  const uint64_t product = (hash ^ word) * K;
  return product ^ (product >> 32);
}

/* Four chains of words side by side, which a processor multiplies at once. Each step is a bijection
 * of the word, so that a change within one word always shows. */
uint64_t gpufi_h5_hash(const void *bytes, size_t nbytes) {
  uint64_t lanes[LANE_COUNT] = {1, 2, 3, 4};
  uint64_t words[LANE_COUNT];
  const size_t step_nbytes = sizeof(words);
  const unsigned char *at = bytes;
  size_t left = nbytes;
  for (; left >= step_nbytes; left -= step_nbytes, at += step_nbytes) {
    memcpy(words, at, step_nbytes);
    for (int i = 0; i < LANE_COUNT; i++) {
      lanes[i] = step(lanes[i], words[i]);
    }
  }
  memset(words, 0, sizeof(words));
  if (left > 0) {
    memcpy(words, at, left);
  }
  uint64_t hash = nbytes;
  for (int i = 0; i < LANE_COUNT; i++) {
    hash = mix(hash ^ mix(step(lanes[i], words[i])));
  }
  return hash;
}

bool gpufi_h5_digest_add(gpufi_h5_digest *digest, const gpufi_h5_dataset *dataset, int64_t index,
                         const void *bytes, size_t nbytes, bool is_trusted) {
  uint64_t sums[2] = {0, 0};
  const uint8_t *const stored = (const uint8_t *)bytes + GPUFI_AT_CHECKSUM;
  if (dataset->route != GPUFI_H5_ROUTE_GPUFETCH) {
    sums[0] = gpufi_h5_hash(bytes, nbytes);
  } else if (nbytes < GPUFI_HEADER_NBYTES || nbytes % 16 != 0) {
    return false;
  } else if (is_trusted) {
    memcpy(sums, stored, sizeof(sums));
  } else {
    gpufi_checksum(bytes, nbytes, sums);
    if (memcmp(sums, stored, sizeof(sums)) != 0) {
      return false;
    }
  }
  digest->sum += mix(mix(mix((uint64_t)index + K) ^ nbytes) ^ mix(sums[0]) ^ (sums[1] * K));
  digest->chunk_count++;
  digest->stored_nbytes += nbytes;
  return true;
}
