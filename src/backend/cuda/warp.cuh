/* What the lanes of a warp do together. Every function is for all lanes of a warp. */
#ifndef GPUFI_BACKEND_CUDA_WARP_CUH
#define GPUFI_BACKEND_CUDA_WARP_CUH

#include <stdint.h>
#include <string.h>

namespace gpufi {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32; /* lanes */

__device__ inline uint32_t warp_or(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(kAllLanes, x);
#else
  for (int step = 16; step > 0; step /= 2) {
    x |= __shfl_xor_sync(kAllLanes, x, step);
  }
  return x;
#endif
}

__device__ inline uint64_t warp_or(uint64_t x) {
  return static_cast<uint64_t>(warp_or(static_cast<uint32_t>(x >> 32))) << 32 |
         warp_or(static_cast<uint32_t>(x));
}

__device__ inline uint32_t warp_or(uint8_t x) {
  return warp_or(static_cast<uint32_t>(x));
}
__device__ inline uint32_t warp_or(uint16_t x) {
  return warp_or(static_cast<uint32_t>(x));
}

__device__ inline uint32_t warp_add(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAllLanes, x);
#else
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, step);
  }
  return x;
#endif
}

__device__ inline uint32_t warp_max(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, x);
#else
  for (int step = 16; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, x, step);
    x = other > x ? other : x;
  }
  return x;
#endif
}

__device__ inline uint64_t warp_add(uint64_t x) {
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, step);
  }
  return x;
}

/* Sum over the lanes up to and with this one. */
template <typename U> __device__ inline U warp_scan(U x, int lane) {
  for (int step = 1; step < kWarp; step *= 2) {
    const U below = __shfl_up_sync(kAllLanes, x, step);
    x = lane >= step ? static_cast<U>(x + below) : x;
  }
  return x;
}

/* The value of the lane `distance` further on in the same team of `width` lanes. */
template <typename T> __device__ T shuffle_down(const T &value, int distance, int width = kWarp) {
  static_assert(sizeof(T) % 8 == 0, "whole words");
  unsigned long long words[sizeof(T) / 8];
  T other;
  memcpy(words, &value, sizeof(value));
  for (unsigned i = 0; i < sizeof(T) / 8; i++) {
    words[i] = __shfl_down_sync(kAllLanes, words[i], distance, width);
  }
  memcpy(&other, words, sizeof(other));
  return other;
}

} // namespace gpufi

#endif
