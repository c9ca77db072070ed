/* What the codec's kernels share: a batch's geometry as the device needs it, warp-wide reductions,
 * values, the checksum. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_DEVICE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_DEVICE_CUH

#include <stdint.h>
#include <string.h>

#define _Static_assert static_assert
extern "C" {
#include "backend/codec.h"
#include "codec/format.h"
#include "codec/geometry.h"
#include "codec/ranked.h"
}
#undef _Static_assert

namespace gpufi {

constexpr unsigned kFull = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kGroup = GPUFI_GROUP_VALUES;
constexpr int kSubsetsMax = 1 << GPUFI_PREDICT_AXES;
constexpr uint32_t kRunValues = GPUFI_RUN_BLOCKS * GPUFI_BLOCK_VALUES;
/* Groups of a block that one lane holds: lane l has groups l, l + 32, l + 64 and l + 96, so that a
 * warp's loads are contiguous. */
constexpr int kLaneGroups = GPUFI_BLOCK_GROUPS / kWarp;

/* In the block, of the lane's group j. */
__device__ inline uint32_t index_of(int j, int lane) {
  return static_cast<uint32_t>(j * kWarp + lane);
}

/* Division by a number that is known when the kernel is launched. */
struct divisor {
  uint32_t d, multiplier;
  uint8_t shift1, shift2;
};

inline divisor make_divisor(uint32_t d) {
  uint32_t log2 = 0;
  while (log2 < 32 && (UINT64_C(1) << log2) < d) {
    log2++;
  }
  divisor result = {};
  result.d = d;
  result.multiplier = static_cast<uint32_t>((((UINT64_C(1) << log2) - d) << 32) / d + 1);
  result.shift1 = static_cast<uint8_t>(log2 < 1 ? log2 : 1);
  result.shift2 = static_cast<uint8_t>(log2 > 1 ? log2 - 1 : 0);
  return result;
}

__device__ inline uint32_t divide(uint32_t n, const divisor &by) {
  const uint32_t t = __umulhi(n, by.multiplier);
  return (t + ((n - t) >> by.shift1)) >> by.shift2;
}

/* A chunk's shape without axes of length 1, innermost axis first. A subset of the first
 * `usable_count` of them, as a number with bit k for axis k, is what prediction goes along. */
struct chunk_grid {
  uint32_t value_count, block_count, run_count;
  uint32_t component_count;
  uint32_t row_values; /* along axis 0; the whole chunk if there is no axis */
  int32_t axis_count, usable_count;
  divisor row;
  divisor dims[GPUFI_CODEC_NDIM_MAX];
  uint32_t strides[GPUFI_CODEC_NDIM_MAX]; /* in values */
  uint32_t offsets[kSubsetsMax];          /* in values, to the neighbour along all of a subset */
  uint8_t axis_of[GPUFI_CODEC_NDIM_MAX];  /* number of the axis in the chunk's header */
  /* Of the header. */
  uint64_t raw_nbytes, raw_pitch_nbytes;
  uint32_t header_dims[GPUFI_CODEC_NDIM_MAX];
  uint8_t dtype, ndim, value_nbytes;
  bool is_float;
  uint32_t descriptors_nbytes; /* with their padding */
};

chunk_grid make_grid(const gpufi_chunks *chunks);

/* The header's `axes` of a subset. */
__device__ inline uint32_t header_axes(const chunk_grid &grid, uint32_t subset) {
  uint32_t axes = 0;
  for (int k = 0; k < grid.usable_count; k++) {
    axes |= (subset >> k & 1) << grid.axis_of[k];
  }
  return axes;
}

/* The halves of 16 bytes, and back. */
__device__ inline uint64_t low_of(uint4 unit) {
  return static_cast<uint64_t>(unit.y) << 32 | unit.x;
}
__device__ inline uint64_t high_of(uint4 unit) {
  return static_cast<uint64_t>(unit.w) << 32 | unit.z;
}
__device__ inline uint4 unit_of(uint64_t low, uint64_t high) {
  return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                    static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
}

/* The thread block's dynamic shared memory. */
__device__ inline uint4 *dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_bytes[];
  return dynamic_shared_bytes;
}

/* --- warp-wide ----------------------------------------------------------------- */

__device__ inline uint32_t warp_or(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(kFull, x);
#else
  for (int step = 16; step > 0; step /= 2) {
    x |= __shfl_xor_sync(kFull, x, step);
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
  return __reduce_add_sync(kFull, x);
#else
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(kFull, x, step);
  }
  return x;
#endif
}

__device__ inline uint32_t warp_max(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kFull, x);
#else
  for (int step = 16; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(kFull, x, step);
    x = other > x ? other : x;
  }
  return x;
#endif
}

__device__ inline uint64_t warp_add(uint64_t x) {
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(kFull, x, step);
  }
  return x;
}

/* Sum over the lanes up to and with this one. */
template <typename U> __device__ inline U warp_scan(U x, int lane) {
  for (int step = 1; step < kWarp; step *= 2) {
    const U below = __shfl_up_sync(kFull, x, step);
    x = lane >= step ? static_cast<U>(x + below) : x;
  }
  return x;
}

/* Where each of a lane's groups starts, if group k of the block takes sizes[k / 32] in lane k % 32,
 * up to 512 each. Returns the end of the last. All lanes. */
__device__ inline uint32_t scan_groups(const uint32_t sizes[kLaneGroups], int lane,
                                       uint32_t starts[kLaneGroups]) {
  static_assert(kLaneGroups == 4, "two sums of 32 sizes fit a word");
  const uint32_t ends01 = warp_scan(sizes[0] | sizes[1] << 16, lane);
  const uint32_t ends23 = warp_scan(sizes[2] | sizes[3] << 16, lane);
  const uint32_t all01 = __shfl_sync(kFull, ends01, kWarp - 1);
  const uint32_t all23 = __shfl_sync(kFull, ends23, kWarp - 1);
  const uint32_t second = all01 & 0xffff, third = second + (all01 >> 16);
  const uint32_t fourth = third + (all23 & 0xffff);
  starts[0] = (ends01 & 0xffff) - sizes[0];
  starts[1] = second + (ends01 >> 16) - sizes[1];
  starts[2] = third + (ends23 & 0xffff) - sizes[2];
  starts[3] = fourth + (ends23 >> 16) - sizes[3];
  return fourth + (all23 >> 16);
}

/* --- values ---------------------------------------------------------------------- */

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

/* How the raw bytes of a chunk become values. */
struct loading {
  uint8_t transform;
  bool swap;
};

/* `count` values; the branches are the same for a whole warp. */
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

/* --- checksum ---------------------------------------------------------------------------- */

/* Sums over 64-bit words at `index` of a chunk: see codec/checksum.c. */
struct chunk_sum {
  uint64_t plain, mixed;

  __device__ void add(uint64_t index, uint64_t word) {
    const uint64_t x = word ^ (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    plain += word;
    mixed += static_cast<uint64_t>(static_cast<uint32_t>(x)) * static_cast<uint32_t>(x >> 32);
  }

  __device__ void add(uint64_t index, uint4 unit) {
    add(index, low_of(unit));
    add(index + 1, high_of(unit));
  }
};

/* The sums of all threads of a block, in thread 0. `kWarps` is how many warps it has; `partial` is
 * shared. Ends with the block synchronized. */
template <int kWarps> __device__ inline chunk_sum block_sum(chunk_sum sum, chunk_sum *partial) {
  sum.plain = warp_add(sum.plain);
  sum.mixed = warp_add(sum.mixed);
  if (threadIdx.x % kWarp == 0) {
    partial[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kWarps; w++) {
      sum.plain += partial[w].plain;
      sum.mixed += partial[w].mixed;
    }
  }
  return sum;
}

/* --- launching ------------------------------------------------------------------- */

template <typename... P, typename... A>
cudaError_t launch_kernel(void (*kernel)(P...), uint32_t blocks, uint32_t threads,
                          size_t shared_nbytes, cudaStream_t stream, const A &...arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim.x = blocks;
  config.blockDim.x = threads;
  config.dynamicSmemBytes = shared_nbytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Call f.run<T, C>() with the unsigned type of the chunks' values and their number an element. */
template <typename Function> auto with_values(const chunk_grid &grid, const Function &f) {
  const bool is_complex = grid.component_count == 2;
  switch (grid.value_nbytes) {
  case 1:
    return f.template run<uint8_t, 1>();
  case 2:
    return f.template run<uint16_t, 1>();
  case 4:
    return is_complex ? f.template run<uint32_t, 2>() : f.template run<uint32_t, 1>();
  default:
    return is_complex ? f.template run<uint64_t, 2>() : f.template run<uint64_t, 1>();
  }
}

} // namespace gpufi

#endif
