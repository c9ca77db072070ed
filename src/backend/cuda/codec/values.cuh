/* Values: their bits, and how the raw bytes of a chunk become values and values raw bytes. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_VALUES_CUH
#define GPUFI_BACKEND_CUDA_CODEC_VALUES_CUH

#include "backend/cuda/codec/grid.cuh"

namespace gpufi {

template <typename T> struct signed_of;
template <> struct signed_of<uint8_t> {
  using type = int8_t;
};
template <> struct signed_of<uint16_t> {
  using type = int16_t;
};
template <> struct signed_of<uint32_t> {
  using type = int32_t;
};
template <> struct signed_of<uint64_t> {
  using type = int64_t;
};

template <typename T> constexpr int kBits = 8 * static_cast<int>(sizeof(T));

__device__ inline uint32_t bit_length(uint32_t x) {
  return 32 - static_cast<uint32_t>(__clz(x));
}
__device__ inline uint32_t bit_length(uint64_t x) {
  return 64 - static_cast<uint32_t>(__clzll(x));
}
__device__ inline uint32_t bit_length(uint16_t x) {
  return bit_length(static_cast<uint32_t>(x));
}
__device__ inline uint32_t bit_length(uint8_t x) {
  return bit_length(static_cast<uint32_t>(x));
}

__device__ inline uint32_t trailing_zeros(uint32_t x) {
  return x ? static_cast<uint32_t>(__ffs(x)) - 1 : 0;
}
__device__ inline uint32_t trailing_zeros(uint64_t x) {
  return x ? static_cast<uint32_t>(__ffsll(x)) - 1 : 0;
}

__device__ inline uint8_t swap_bytes(uint8_t x) {
  return x;
}
__device__ inline uint16_t swap_bytes(uint16_t x) {
  return static_cast<uint16_t>(x << 8 | x >> 8);
}
__device__ inline uint32_t swap_bytes(uint32_t x) {
  return __byte_perm(x, 0, 0x0123);
}
__device__ inline uint64_t swap_bytes(uint64_t x) {
  return static_cast<uint64_t>(swap_bytes(static_cast<uint32_t>(x))) << 32 |
         swap_bytes(static_cast<uint32_t>(x >> 32));
}

template <typename T> __device__ inline T order(T x) {
  using S = typename signed_of<T>::type;
  const T signs = static_cast<T>(static_cast<S>(x) >> (kBits<T> - 1));
  return static_cast<T>(x ^ (signs & static_cast<T>(static_cast<T>(~static_cast<T>(0)) >> 1)));
}

template <typename T> __device__ inline T zigzagged(T r) {
  return static_cast<T>(static_cast<T>(r << 1) ^ static_cast<T>(0 - (r >> (kBits<T> - 1))));
}

/* How the raw bytes of a chunk become values. */
struct loading {
  uint8_t transform;
  bool swap;
};

/* Transform `count` raw values. All lanes of a warp take the same branches. */
template <typename T, int count>
__device__ __forceinline__ void transform_values(T *v, loading how) {
  if (how.swap) {
#pragma unroll
    for (int t = 0; t < count; t++) {
      v[t] = swap_bytes(v[t]);
    }
  }
  if (how.transform == GPUFI_TRANSFORM_ROTATE) {
#pragma unroll
    for (int t = 0; t < count; t++) {
      v[t] = static_cast<T>(v[t] << 1 | v[t] >> (kBits<T> - 1));
    }
  } else if (how.transform == GPUFI_TRANSFORM_ORDER) {
#pragma unroll
    for (int t = 0; t < count; t++) {
      v[t] = order(v[t]);
    }
  }
}

template <typename T, int count> __device__ __forceinline__ void restore_values(T *v, loading how) {
  if (how.transform == GPUFI_TRANSFORM_ROTATE) {
#pragma unroll
    for (int t = 0; t < count; t++) {
      v[t] = static_cast<T>(v[t] >> 1 | v[t] << (kBits<T> - 1));
    }
  } else if (how.transform == GPUFI_TRANSFORM_ORDER) {
#pragma unroll
    for (int t = 0; t < count; t++) {
      v[t] = order(v[t]);
    }
  }
  if (how.swap) {
#pragma unroll
    for (int t = 0; t < count; t++) {
      v[t] = swap_bytes(v[t]);
    }
  }
}

template <typename T> __device__ inline T load_value(const T *raw, uint32_t index, loading how) {
  T v = raw[index];
  transform_values<T, 1>(&v, how);
  return v;
}

} // namespace gpufi

#endif
