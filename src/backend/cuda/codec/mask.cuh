/* The mask of a sparse block, spread over a warp: docs/format.md, Mask; codec/sparse.c is the
 * reference. Byte k of its lowest level belongs to group k. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_MASK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_MASK_CUH

#include "backend/cuda/codec/groups.cuh"

namespace gpufi {

/* Sizes of the mask's levels for a block of `count` values. */
struct mask_shape {
  uint32_t groups, sets, top_nbytes;

  __device__ explicit mask_shape(uint32_t count)
      : groups((count + kGroup - 1) / kGroup), sets((groups + 7) / 8), top_nbytes((sets + 7) / 8) {}
};

/* The same on all lanes but for `used`. */
struct warp_mask {
  uint32_t used;                /* byte j: the lowest level's byte of this lane's group j */
  uint32_t middle[kLaneGroups]; /* bit l of word j: group j * 32 + l has a byte that is not 0 */
  uint32_t top;

  __device__ uint32_t byte(int j) const {
    return used >> 8 * j & 0xff;
  }

  __device__ uint32_t middle_byte(uint32_t m) const {
    uint32_t word = 0;
#pragma unroll
    for (uint32_t j = 0; j < kLaneGroups; j++) {
      word |= middle[j] & mask_if<uint32_t>(m / 4 == j);
    }
    return word >> m % 4 * 8 & 0xff;
  }

  /* Where the lowest level's bytes of this lane's groups are, counting from the first of them. */
  __device__ void ranks(int lane, uint32_t at[kLaneGroups]) const {
    uint32_t before = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      at[j] = before + static_cast<uint32_t>(__popc(middle[j] & ((1u << lane) - 1)));
      before += static_cast<uint32_t>(__popc(middle[j]));
    }
  }

  __device__ uint32_t lowest_nbytes() const {
    uint32_t nbytes = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      nbytes += static_cast<uint32_t>(__popc(middle[j]));
    }
    return nbytes;
  }

  __device__ uint32_t used_count() const {
    return warp_add(static_cast<uint32_t>(__popc(used)));
  }

  /* Where the lane's groups' values are in the list of those that are not 0. Returns the list's
   * end. All lanes. */
  __device__ uint32_t list_starts(int lane, uint32_t starts[kLaneGroups]) const {
    uint32_t sizes[kLaneGroups];
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      sizes[j] = static_cast<uint32_t>(__popc(byte(j)));
    }
    return scan_groups(sizes, lane, starts);
  }

  /* The upper levels from `used`. All lanes. */
  __device__ void summarize() {
    top = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      middle[j] = __ballot_sync(kAllLanes, byte(j) != 0);
#pragma unroll
      for (uint32_t q = 0; q < 4; q++) {
        top |= (middle[j] >> 8 * q & 0xff ? 1u : 0u) << (4 * static_cast<uint32_t>(j) + q);
      }
    }
  }

  __device__ uint32_t nbytes(const mask_shape &shape) const {
    return shape.top_nbytes + static_cast<uint32_t>(__popc(top)) + lowest_nbytes();
  }
};

template <typename T>
__device__ __forceinline__ warp_mask mask_of(const T values[kLaneGroups][kGroup]) {
  warp_mask mask;
  mask.used = 0;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      mask.used |= (values[j][t] != 0 ? 1u : 0u) << (8 * j + t);
    }
  }
  return mask;
}

/* The values that are not 0 to `list`, `mask.used_count()` of them, in order, and zeros that fill
 * the last group up. All lanes. */
template <typename T>
__device__ __forceinline__ void
compact_values(const warp_mask &mask, const T values[kLaneGroups][kGroup], int lane, T *list) {
  uint32_t at[kLaneGroups];
  const uint32_t end = mask.list_starts(lane, at);
  if (static_cast<uint32_t>(lane) < (kGroup - end % kGroup) % kGroup) {
    list[end + static_cast<uint32_t>(lane)] = 0;
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      if (mask.byte(j) >> t & 1) {
        list[at[j]++] = values[j][t];
      }
    }
  }
  __syncwarp();
}

/* The inverse. All lanes. */
template <typename T>
__device__ __forceinline__ void expand_values(const warp_mask &mask, const T *list, int lane,
                                              T values[kLaneGroups][kGroup]) {
  uint32_t at[kLaneGroups];
  mask.list_starts(lane, at);
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      values[j][t] = mask.byte(j) >> t & 1 ? list[at[j]++] : static_cast<T>(0);
    }
  }
}

/* The list itself as groups, zeros behind it, as compact_values left it; and back. All lanes. */
template <typename T>
__device__ __forceinline__ void load_list(const T *list, uint32_t count, int lane,
                                          T values[kLaneGroups][kGroup]) {
  clear_groups(values);
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
    if (first < count) {
      load_aligned_group(list, first, values[j]);
    }
  }
  __syncwarp();
}

template <typename T>
__device__ __forceinline__ void store_list(const T values[kLaneGroups][kGroup], uint32_t count,
                                           int lane, T *list) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
    if (first < count) {
      store_group(list, first, values[j]);
    }
  }
  __syncwarp();
}

/* A byte of words that are zero there, and that others may share. */
__device__ inline void put_byte(uint32_t *words, uint32_t at, uint32_t byte) {
  atomicOr(words + at / 4, byte << at % 4 * 8);
}

/* The mask of a block of `count` values, to byte `at` of words that are zero. All lanes. */
__device__ inline void write_mask(const warp_mask &mask, uint32_t count, uint32_t *words,
                                  uint32_t at, int lane) {
  const mask_shape shape(count);
  if (static_cast<uint32_t>(lane) < shape.top_nbytes) {
    put_byte(words, at + static_cast<uint32_t>(lane), mask.top >> 8 * lane & 0xff);
  }
  at += shape.top_nbytes;
  const uint32_t m = static_cast<uint32_t>(lane);
  if (m < 16 && (mask.top >> m & 1)) {
    put_byte(words, at + static_cast<uint32_t>(__popc(mask.top & ((1u << m) - 1))),
             mask.middle_byte(m));
  }
  at += static_cast<uint32_t>(__popc(mask.top));
  uint32_t ranks[kLaneGroups];
  mask.ranks(lane, ranks);
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    if (mask.byte(j) != 0) {
      put_byte(words, at + ranks[j], mask.byte(j));
    }
  }
}

/* The mask of a block of `count` values from `bytes`, which are untrusted input and of which
 * `in_nbytes` belong to the block; as many as a whole mask takes can be read. False if it is not
 * right. All lanes, the same answer. */
__device__ inline bool read_mask(const uint8_t *bytes, uint32_t in_nbytes, uint32_t count, int lane,
                                 warp_mask *mask) {
  const mask_shape shape(count);
  mask->top = bytes[0] | (shape.top_nbytes > 1 ? static_cast<uint32_t>(bytes[1]) << 8 : 0);
  bool good = mask->top >> shape.sets == 0 && mask->top != 0;
  const uint32_t m = static_cast<uint32_t>(lane) % 16;
  const uint32_t middle_at =
      shape.top_nbytes + static_cast<uint32_t>(__popc(mask->top & ((1u << m) - 1)));
  const bool there = mask->top >> m & 1;
  uint32_t own = there ? bytes[middle_at] : 0;
  good = good && (!there || own != 0) && (m != shape.groups / 8 || own >> shape.groups % 8 == 0);
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    mask->middle[j] = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
      mask->middle[j] |= __shfl_sync(kAllLanes, own, 4 * j + q) << 8 * q;
    }
  }
  const uint32_t lowest_at = shape.top_nbytes + static_cast<uint32_t>(__popc(mask->top));
  uint32_t ranks[kLaneGroups];
  mask->ranks(lane, ranks);
  mask->used = 0;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t k = index_of(j, lane);
    if (mask->middle[j] >> lane & 1) {
      own = bytes[lowest_at + ranks[j]];
      good = good && own != 0 && (k != count / kGroup || own >> count % kGroup == 0);
      mask->used |= own << 8 * j;
    }
  }
  return __all_sync(kAllLanes, good) && lowest_at + mask->lowest_nbytes() <= in_nbytes;
}

} // namespace gpufi

#endif
