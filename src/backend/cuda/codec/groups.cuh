/* Groups of eight values as 32-bit words: between registers and memory. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_GROUPS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_GROUPS_CUH

#include "backend/cuda/codec/values.cuh"

namespace gpufi {

template <typename T> struct group_words {
  static constexpr int kCount = 2 * static_cast<int>(sizeof(T));
  static constexpr int kVector = kCount < 4 ? kCount : 4; /* words of a load */
};

/* Where each of a lane's groups starts, if group k of the block takes sizes[k / 32] in lane k % 32,
 * up to 512 each. Returns the end of the last. All lanes. */
__device__ inline uint32_t scan_groups(const uint32_t sizes[kLaneGroups], int lane,
                                       uint32_t starts[kLaneGroups]) {
  static_assert(kLaneGroups == 4, "two sums of 32 sizes fit a word");
  const uint32_t ends01 = warp_scan(sizes[0] | sizes[1] << 16, lane);
  const uint32_t ends23 = warp_scan(sizes[2] | sizes[3] << 16, lane);
  const uint32_t all01 = __shfl_sync(kAllLanes, ends01, kWarp - 1);
  const uint32_t all23 = __shfl_sync(kAllLanes, ends23, kWarp - 1);
  const uint32_t second = all01 & 0xffff, third = second + (all01 >> 16);
  const uint32_t fourth = third + (all23 & 0xffff);
  starts[0] = (ends01 & 0xffff) - sizes[0];
  starts[1] = second + (ends01 >> 16) - sizes[1];
  starts[2] = third + (ends23 & 0xffff) - sizes[2];
  starts[3] = fourth + (ends23 >> 16) - sizes[3];
  return fourth + (all23 >> 16);
}

/* All bits set if `is`, else 0: picks from registers by index where a conditional expression would
 * have the compiler move them to memory. */
template <typename T> __device__ __forceinline__ T mask_if(bool is) {
  return static_cast<T>(0 - static_cast<T>(is ? 1 : 0));
}

template <typename T> __device__ __forceinline__ void clear_groups(T r[kLaneGroups][kGroup]) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      r[j][t] = 0;
    }
  }
}

template <typename T, int kCount = kGroup>
__device__ __forceinline__ void words_to_values(const uint32_t *words, T *v) {
  if constexpr (sizeof(T) == 8) {
#pragma unroll
    for (int t = 0; t < kCount; t++) {
      v[t] = static_cast<uint64_t>(words[2 * t + 1]) << 32 | words[2 * t];
    }
  } else {
    constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int t = 0; t < kCount; t++) {
      v[t] = static_cast<T>(words[t / kPerWord] >> (t % kPerWord * kBits<T>));
    }
  }
}

template <typename T> __device__ __forceinline__ void values_to_words(const T *v, uint32_t *words) {
  if constexpr (sizeof(T) == 8) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      words[2 * t] = static_cast<uint32_t>(v[t]);
      words[2 * t + 1] = static_cast<uint32_t>(v[t] >> 32);
    }
  } else {
    constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int k = 0; k < group_words<T>::kCount; k++) {
      words[k] = 0;
#pragma unroll
      for (int t = 0; t < kPerWord; t++) {
        words[k] |= static_cast<uint32_t>(v[k * kPerWord + t]) << (t * kBits<T>);
      }
    }
  }
}

template <int kVector> __device__ inline void load_vector(const void *from, uint32_t *words) {
  if constexpr (kVector == 4) {
    const uint4 w = *static_cast<const uint4 *>(from);
    words[0] = w.x;
    words[1] = w.y;
    words[2] = w.z;
    words[3] = w.w;
  } else if constexpr (kVector == 1) {
    words[0] = *static_cast<const uint32_t *>(from);
  } else {
    const uint2 w = *static_cast<const uint2 *>(from);
    words[0] = w.x;
    words[1] = w.y;
  }
}

/* The eight values from raw[index] on, as they are, in aligned vectors: `raw` is aligned to 16
 * bytes, `index` to nothing. Reads whole vectors, each of which holds a byte that is asked for. */
template <typename T>
__device__ __forceinline__ void load_group(const T *raw, uint32_t index, T *v) {
  constexpr int kCount = group_words<T>::kCount, kVector = group_words<T>::kVector;
  const uintptr_t address = reinterpret_cast<uintptr_t>(raw + index);
  const uintptr_t past = address % (4 * kVector);
  const char *const from = reinterpret_cast<const char *>(address - past);
  uint32_t words[kCount + kVector];
#pragma unroll
  for (int k = 0; k < kCount; k += kVector) {
    load_vector<kVector>(from + 4 * k, words + k);
  }
  if (past != 0) {
    load_vector<kVector>(from + 4 * kCount, words + kCount);
    if (kVector == 4 && (past & 8)) {
#pragma unroll
      for (int k = 0; k < kCount + kVector - 2; k++) {
        words[k] = words[k + 2];
      }
    }
    if (past & 4) {
#pragma unroll
      for (int k = 0; k < kCount + kVector - 1; k++) {
        words[k] = words[k + 1];
      }
    }
    if constexpr (sizeof(T) < 4) {
      const uint32_t bits = 8 * static_cast<uint32_t>(past % 4);
#pragma unroll
      for (int k = 0; k < kCount; k++) {
        words[k] = __funnelshift_r(words[k], words[k + 1], bits);
      }
    }
  }
  words_to_values<T>(words, v);
}

/* kCount values that are aligned to all of them, or to 16 bytes if that is less. */
template <int kCount, typename T> __device__ __forceinline__ void load_values(const T *from, T *v) {
  constexpr int kWords = kCount * static_cast<int>(sizeof(T)) / 4;
  constexpr int kVector = kWords < 4 ? kWords : 4;
  uint32_t words[kWords];
#pragma unroll
  for (int k = 0; k < kWords; k += kVector) {
    load_vector<kVector>(reinterpret_cast<const char *>(from) + 4 * k, words + k);
  }
  words_to_values<T, kCount>(words, v);
}

/* Eight values from raw[index] on, a multiple of eight. */
template <typename T>
__device__ __forceinline__ void load_aligned_group(const T *raw, uint32_t index, T *v) {
  load_values<kGroup>(raw + index, v);
}

/* Store eight values from raw[index] on, a multiple of eight. */
template <typename T>
__device__ __forceinline__ void store_group(T *raw, uint32_t index, const T *v) {
  constexpr int kCount = group_words<T>::kCount;
  uint32_t words[kCount];
  values_to_words<T>(v, words);
  if constexpr (kCount == 2) {
    *reinterpret_cast<uint2 *>(raw + index) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int k = 0; k < kCount; k += 4) {
      reinterpret_cast<uint4 *>(raw + index)[k / 4] =
          make_uint4(words[k], words[k + 1], words[k + 2], words[k + 3]);
    }
  }
}

} // namespace gpufi

#endif
