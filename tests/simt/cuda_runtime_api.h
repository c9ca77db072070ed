/* Stands in for the CUDA toolkit's header when a kernel's source is compiled as C++ for the CPU:
 * what the codec's kernels use of CUDA, and no more. simt.h runs them.
 *
 * The threads of a block take turns on the calling thread and change only where they wait for each
 * other, in an order that differs from run to run, so that a result which depends on the order
 * shows. Thread blocks run one after the other, by their numbers. What differs from a GPU: memory
 * is sequentially consistent, and atomics are plain. */
#ifndef GPUFI_TEST_SIMT_CUDA_RUNTIME_API_H
#define GPUFI_TEST_SIMT_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum cudaError { cudaSuccess = 0 } cudaError_t;
typedef struct simt_stream *cudaStream_t;

#ifdef __cplusplus

#include "simt.h"

#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ thread_local /* which a variable in a function makes static */

/* --- types --------------------------------------------------------------------- */

struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline uint2 make_uint2(uint32_t x, uint32_t y) {
  return {x, y};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}

#define threadIdx (simt::self().thread)
#define blockIdx (simt::self().block)

/* --- waiting for each other -------------------------------------------------------- */

inline void __syncthreads() {
  simt::wait_for_block(0);
}
inline int __syncthreads_or(int predicate) {
  return simt::wait_for_block(predicate) != 0;
}
inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  simt::exchange("__syncwarp", mask, 0);
}

/* The value of a lane of the mask. */
template <typename T> T __shfl_sync(uint32_t mask, T value, int lane) {
  return static_cast<T>(simt::exchange("__shfl_sync", mask, value).of(static_cast<uint32_t>(lane)));
}
template <typename T> T __shfl_xor_sync(uint32_t mask, T value, int step) {
  const uint32_t lane = simt::self().lane ^ static_cast<uint32_t>(step);
  return static_cast<T>(simt::exchange("__shfl_xor_sync", mask, value).of(lane));
}
template <typename T> T __shfl_up_sync(uint32_t mask, T value, unsigned step) {
  const uint32_t lane = simt::self().lane;
  const simt::values &all = simt::exchange("__shfl_up_sync", mask, value);
  return lane < step ? value : static_cast<T>(all.of(lane - step));
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  const simt::values &all = simt::exchange("__ballot_sync", mask, predicate != 0);
  return all.fold([](uint64_t sum, uint64_t value, uint32_t lane) { return sum | value << lane; });
}
inline int __any_sync(uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
/* The lanes that have this lane's value. */
template <typename T> uint32_t __match_any_sync(uint32_t mask, T value) {
  const simt::values &all = simt::exchange("__match_any_sync", mask, value);
  return all.fold([value](uint64_t sum, uint64_t other, uint32_t lane) {
    return sum | static_cast<uint64_t>(other == value) << lane;
  });
}
inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t value) {
  const simt::values &all = simt::exchange("__reduce_or_sync", mask, value);
  return all.fold([](uint64_t a, uint64_t b, uint32_t) { return a | b; });
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value) {
  const simt::values &all = simt::exchange("__reduce_add_sync", mask, value);
  return all.fold([](uint64_t a, uint64_t b, uint32_t) { return a + b; });
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value) {
  const simt::values &all = simt::exchange("__reduce_max_sync", mask, value);
  return all.fold([](uint64_t a, uint64_t b, uint32_t) { return a > b ? a : b; });
}

/* --- memory ---------------------------------------------------------------------- */

inline void __threadfence() {}
template <typename T> T __ldcg(const T *p) {
  return *p;
}
template <typename T, typename Value> T atomicAdd(T *p, Value value) {
  const T before = *p;
  *p += static_cast<T>(value);
  return before;
}
template <typename T, typename Value> T atomicOr(T *p, Value value) {
  const T before = *p;
  *p |= static_cast<T>(value);
  return before;
}
template <typename T, typename Value> T atomicCAS(T *p, Value expected, Value value) {
  const T before = *p;
  *p = before == static_cast<T>(expected) ? static_cast<T>(value) : before;
  return before;
}

/* --- arithmetic -------------------------------------------------------------------- */

inline int __popc(uint32_t x) {
  return __builtin_popcount(x);
}
inline int __clz(int x) {
  return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<uint32_t>(both << (shift & 31) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<uint32_t>(both >> (shift & 31));
}
/* Each nibble of the selector names one of eight bytes; its top bit would repeat a sign. */
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t nibble = selector >> (4 * i) & 15;
    const uint32_t byte = bytes >> (8 * (nibble & 7)) & 255;
    result |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}

/* --- the runtime ------------------------------------------------------------------- */

inline cudaError_t cudaMemsetAsync(void *p, int value, size_t nbytes, cudaStream_t) {
  memset(p, value, nbytes);
  return cudaSuccess;
}

#define cudaFuncAttributeMaxDynamicSharedMemorySize 0
template <typename Kernel> cudaError_t cudaFuncSetAttribute(Kernel, int, int) {
  return cudaSuccess;
}

struct cudaLaunchConfig_t {
  struct {
    uint32_t x;
  } gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               const Arguments &...arguments) {
  simt::run(config->gridDim.x, config->blockDim.x, config->dynamicSmemBytes,
            [&] { kernel(arguments...); });
  return cudaSuccess;
}

#endif /* __cplusplus */

#endif
