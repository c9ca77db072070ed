/* Reading elements: each reader says what the bits of an element mean. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_READERS_CUH
#define GPUFI_BACKEND_CUDA_REDUCE_READERS_CUH

#include <cuda_fp16.h>
#include <math_constants.h>

#include <type_traits>

#include "backend/cuda/reduce/params.cuh"

namespace gpufi {

/* A reader says what an element's bits mean: `value` is compared, `number` added. */

/* Where the value that is compared is the one that is added. */
template <typename Raw, typename Value> struct plain_reader {
  using raw = Raw;
  using value = Value;
  __device__ double number(value v) const {
    return v;
  }
};

struct read_byte : plain_reader<uint8_t, float> {
  const float *table;
  __device__ read_byte(const reduce_params &p, float *shared) : table(shared) {
    shared[threadIdx.x] = p.byte_table[threadIdx.x];
    __syncthreads();
  }
  __device__ value of(raw bits) const {
    return table[bits];
  }
};

struct read_half : plain_reader<uint16_t, float> {
  __device__ read_half(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __half2float(__ushort_as_half(bits));
  }
};

struct read_bfloat16 : plain_reader<uint16_t, float> {
  __device__ read_bfloat16(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
};

/* Signed and unsigned: flipping the sign bit moves a signed value up by the bias. */
struct read_int16 : plain_reader<uint16_t, float> {
  uint32_t flip;
  float bias;
  __device__ read_int16(const reduce_params &p, float *)
      : flip(p.job.dtype == GPUF_DTYPE_INT16 ? 0x8000u : 0u), bias(static_cast<float>(flip)) {}
  __device__ value of(raw bits) const {
    return static_cast<float>(bits ^ flip) - bias;
  }
};

struct read_int32 {
  using raw = uint32_t;
  using value = uint32_t;
  uint32_t flip;
  double bias;
  __device__ read_int32(const reduce_params &p, float *)
      : flip(p.job.dtype == GPUF_DTYPE_INT32 ? 0x80000000u : 0u), bias(flip) {}
  __device__ value of(raw bits) const {
    return bits ^ flip;
  }
  __device__ double number(value v) const {
    return static_cast<double>(v) - bias;
  }
};

struct read_int64 {
  using raw = uint64_t;
  using value = uint64_t;
  uint64_t flip;
  __device__ read_int64(const reduce_params &p, float *)
      : flip(gpufi_reduce_key_flip(p.job.dtype)) {}
  __device__ value of(raw bits) const {
    return bits ^ flip;
  }
  __device__ double number(value v) const {
    return flip ? static_cast<double>(static_cast<int64_t>(v ^ flip)) : static_cast<double>(v);
  }
};

struct read_float : plain_reader<uint32_t, float> {
  __device__ read_float(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __uint_as_float(bits);
  }
};

struct read_double : plain_reader<uint64_t, double> {
  __device__ read_double(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __longlong_as_double(static_cast<long long>(bits));
  }
};

__device__ inline bool is_finite(float v) {
  return fabsf(v) < CUDART_INF_F;
}
__device__ inline bool is_finite(double v) {
  return fabs(v) < CUDART_INF;
}
__device__ inline bool is_finite(uint32_t) {
  return true;
}
__device__ inline bool is_finite(uint64_t) {
  return true;
}

template <typename Value, int kCount> __device__ bool all_finite(const Value (&v)[kCount]) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    all = all && is_finite(v[i]);
  }
  return all;
}

/* The lesser and the greater of two that are not NaN. */
__device__ inline float lesser(float a, float b) {
  return fminf(a, b);
}
__device__ inline double lesser(double a, double b) {
  return fmin(a, b);
}
__device__ inline uint32_t lesser(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}
__device__ inline uint64_t lesser(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}
__device__ inline float greater(float a, float b) {
  return fmaxf(a, b);
}
__device__ inline double greater(double a, double b) {
  return fmax(a, b);
}
__device__ inline uint32_t greater(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}
__device__ inline uint64_t greater(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

__device__ inline void set_top(float &v) {
  v = CUDART_INF_F;
}
__device__ inline void set_top(double &v) {
  v = CUDART_INF;
}
__device__ inline void set_top(uint32_t &v) {
  v = UINT32_MAX;
}
__device__ inline void set_top(uint64_t &v) {
  v = UINT64_MAX;
}
__device__ inline void set_bottom(float &v) {
  v = -CUDART_INF_F;
}
__device__ inline void set_bottom(double &v) {
  v = -CUDART_INF;
}
__device__ inline void set_bottom(uint32_t &v) {
  v = 0;
}
__device__ inline void set_bottom(uint64_t &v) {
  v = 0;
}

/* A compared value as results hold it. */
template <typename Reader>
__device__ gpufi_reduce_number stored(const Reader &reader, typename Reader::value v) {
  gpufi_reduce_number n;
  if constexpr (std::is_same_v<typename Reader::value, uint64_t>) {
    n.key = v;
  } else {
    n.number = reader.number(v);
  }
  return n;
}

template <typename Raw> __device__ Raw load_one(const char *from, bool aligned) {
  if (aligned) {
    return __ldg(reinterpret_cast<const Raw *>(from));
  }
  uint64_t bits = 0;
  for (unsigned i = 0; i < sizeof(Raw); i++) {
    bits |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  }
  return static_cast<Raw>(bits);
}
template <> __device__ inline uint64_t load_one<uint64_t>(const char *from, bool aligned) {
  if (aligned) {
    return __ldg(reinterpret_cast<const unsigned long long *>(from));
  }
  uint64_t bits = 0;
  for (unsigned i = 0; i < 8; i++) {
    bits |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  }
  return bits;
}

/* 4, 8 or 16 bytes by one load, at an address that is a multiple of as many. */
template <int kWords> struct word_pack {
  uint32_t at[kWords];

  __device__ void load(const char *from) {
    if constexpr (kWords == 4) {
      const uint4 v = __ldg(reinterpret_cast<const uint4 *>(from));
      at[0] = v.x, at[1] = v.y, at[2] = v.z, at[3] = v.w;
    } else if constexpr (kWords == 2) {
      const uint2 v = __ldg(reinterpret_cast<const uint2 *>(from));
      at[0] = v.x, at[1] = v.y;
    } else {
      at[0] = __ldg(reinterpret_cast<const uint32_t *>(from));
    }
  }

  /* Element i, for an i known at compile time. */
  template <typename Raw> __device__ Raw element(int i) const {
    if constexpr (sizeof(Raw) == 8) {
      return static_cast<uint64_t>(at[2 * i + 1]) << 32 | at[2 * i];
    } else {
      constexpr int kIn = 4 / sizeof(Raw);
      return static_cast<Raw>(at[i / kIn] >> (8 * sizeof(Raw) * (i % kIn)));
    }
  }
};

/* Call f.run<Reader>() with the reader of a type. */
template <typename Function> cudaError_t with_reader(gpuf_dtype dtype, const Function &f) {
  switch (dtype) {
  case GPUF_DTYPE_INT16:
  case GPUF_DTYPE_UINT16:
    return f.template run<read_int16>();
  case GPUF_DTYPE_INT32:
  case GPUF_DTYPE_UINT32:
    return f.template run<read_int32>();
  case GPUF_DTYPE_INT64:
  case GPUF_DTYPE_UINT64:
    return f.template run<read_int64>();
  case GPUF_DTYPE_FLOAT16:
    return f.template run<read_half>();
  case GPUF_DTYPE_BFLOAT16:
    return f.template run<read_bfloat16>();
  case GPUF_DTYPE_FLOAT32:
    return f.template run<read_float>();
  case GPUF_DTYPE_FLOAT64:
    return f.template run<read_double>();
  default:
    return f.template run<read_byte>();
  }
}

} // namespace gpufi

#endif
