/* CUDA's language as C++, for kernels that the emulation runs: what they use, and no more. Included
 * by cuda_runtime_api.h.
 *
 * Memory is sequentially consistent, and atomics are plain: one thread runs at a time. */
#ifndef GPUFI_TEST_CUDA_EMULATION_KERNEL_H
#define GPUFI_TEST_CUDA_EMULATION_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <type_traits>

#include "emulation.h"

#define GPUFI_CUDA_EMULATION 1
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ thread_local /* which a variable in a function makes static */

namespace emulation {

/* A variable of the calling thread that every kernel has. */
template <typename Triple, Triple fiber::*kMember> struct builtin {
  struct {
    operator uint32_t() const {
      return (self().*kMember).x;
    }
  } x;
  struct {
    operator uint32_t() const {
      return (self().*kMember).y;
    }
  } y;
  struct {
    operator uint32_t() const {
      return (self().*kMember).z;
    }
  } z;
};

} // namespace emulation

inline constexpr emulation::builtin<uint3, &emulation::fiber::thread_index> threadIdx = {};
inline constexpr emulation::builtin<uint3, &emulation::fiber::block_index> blockIdx = {};
inline constexpr emulation::builtin<dim3, &emulation::fiber::block_dim> blockDim = {};
inline constexpr emulation::builtin<dim3, &emulation::fiber::grid_dim> gridDim = {};

/* --- types ------------------------------------------------------------------------- */

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

/* --- waiting for each other -------------------------------------------------------- */

namespace emulation {

template <typename T> uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "fits a register");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <typename T> T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* Each lane gets the value of the lane that it names. */
inline void give_named(const lanes &all) {
  all.each([&all](fiber &f) { f.result = all.value(static_cast<uint32_t>(f.operand), f); });
}

/* Every lane gets the same. */
template <typename Function> void give_sum(const lanes &all, const Function &add) {
  uint64_t sum = 0;
  all.each([&](const fiber &f) { sum = add(sum, f); });
  all.each([sum](fiber &f) { f.result = sum; });
}

template <typename T> T shuffle(const place &at, uint32_t mask, T value, uint32_t from) {
  return from_bits<T>(meet(at, mask, to_bits(value), from, give_named));
}

/* The first lane of the team of `width` lanes that the calling lane is in. */
inline uint32_t team_of(uint32_t lane, int width) {
  return lane & ~(static_cast<uint32_t>(width) - 1);
}

} // namespace emulation

/* Where in the kernel's source the intrinsic is called. */
#define EMULATION_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMULATION_HERE (emulation::place{__func__, file, line})

inline void __syncthreads(EMULATION_PLACE) {
  emulation::wait_at_barrier(EMULATION_HERE, false);
}
inline int __syncthreads_or(int predicate, EMULATION_PLACE) {
  return emulation::wait_at_barrier(EMULATION_HERE, predicate != 0) != 0;
}
inline void __syncwarp(uint32_t mask = 0xffffffffu, EMULATION_PLACE) {
  emulation::meet(EMULATION_HERE, mask, 0, 0, [](const emulation::lanes &) {});
}

template <typename T>
T __shfl_sync(uint32_t mask, T value, int lane, int width = 32, EMULATION_PLACE) {
  const uint32_t first = emulation::team_of(emulation::self().lane, width);
  const uint32_t within = static_cast<uint32_t>(lane) & (static_cast<uint32_t>(width) - 1);
  return emulation::shuffle(EMULATION_HERE, mask, value, first + within);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int step, int width = 32, EMULATION_PLACE) {
  const uint32_t lane = emulation::self().lane, from = lane ^ static_cast<uint32_t>(step);
  const uint32_t behind = emulation::team_of(lane, width) + static_cast<uint32_t>(width);
  return emulation::shuffle(EMULATION_HERE, mask, value, from < behind ? from : lane);
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned step, int width = 32, EMULATION_PLACE) {
  const uint32_t lane = emulation::self().lane, first = emulation::team_of(lane, width);
  return emulation::shuffle(EMULATION_HERE, mask, value, lane - first >= step ? lane - step : lane);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned step, int width = 32, EMULATION_PLACE) {
  const uint32_t lane = emulation::self().lane;
  const uint32_t behind = emulation::team_of(lane, width) + static_cast<uint32_t>(width);
  return emulation::shuffle(EMULATION_HERE, mask, value, behind - lane > step ? lane + step : lane);
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate, EMULATION_PLACE) {
  return static_cast<uint32_t>(
      emulation::meet(EMULATION_HERE, mask, predicate != 0, 0, [](const emulation::lanes &all) {
        emulation::give_sum(
            all, [](uint64_t sum, const emulation::fiber &f) { return sum | f.value << f.lane; });
      }));
}
inline int __any_sync(uint32_t mask, int predicate, EMULATION_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(uint32_t mask, int predicate, EMULATION_PLACE) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}
/* The lanes that have the calling lane's value. */
template <typename T> uint32_t __match_any_sync(uint32_t mask, T value, EMULATION_PLACE) {
  return static_cast<uint32_t>(emulation::meet(
      EMULATION_HERE, mask, emulation::to_bits(value), 0, [](const emulation::lanes &all) {
        all.each([&all](emulation::fiber &f) {
          f.result = 0;
          all.each([&f](const emulation::fiber &other) {
            f.result |= static_cast<uint64_t>(other.value == f.value) << other.lane;
          });
        });
      }));
}
inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t value, EMULATION_PLACE) {
  return static_cast<uint32_t>(
      emulation::meet(EMULATION_HERE, mask, value, 0, [](const emulation::lanes &all) {
        emulation::give_sum(all,
                            [](uint64_t sum, const emulation::fiber &f) { return sum | f.value; });
      }));
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value, EMULATION_PLACE) {
  return static_cast<uint32_t>(
      emulation::meet(EMULATION_HERE, mask, value, 0, [](const emulation::lanes &all) {
        emulation::give_sum(all,
                            [](uint64_t sum, const emulation::fiber &f) { return sum + f.value; });
      }));
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value, EMULATION_PLACE) {
  return static_cast<uint32_t>(
      emulation::meet(EMULATION_HERE, mask, value, 0, [](const emulation::lanes &all) {
        emulation::give_sum(all, [](uint64_t sum, const emulation::fiber &f) {
          return sum > f.value ? sum : f.value;
        });
      }));
}

/* --- memory ------------------------------------------------------------------------ */

inline void __threadfence() {
  emulation::may_yield();
}
template <typename T> T __ldcg(const T *p) {
  emulation::may_yield();
  return *p;
}
template <typename T> T __ldg(const T *p) {
  return *p;
}

namespace emulation {

/* Replace *p by `f` of it, and return what was there. */
template <typename T, typename Function> T change(T *p, const Function &f) {
  may_yield();
  const T before = *p;
  *p = f(before);
  return before;
}

} // namespace emulation

template <typename T, typename Value> T atomicAdd(T *p, Value value) {
  return emulation::change(p, [value](T old) { return static_cast<T>(old + value); });
}
template <typename T, typename Value> T atomicOr(T *p, Value value) {
  return emulation::change(p, [value](T old) { return static_cast<T>(old | value); });
}
template <typename T, typename Value> T atomicMin(T *p, Value value) {
  return emulation::change(p, [value](T old) { return value < old ? static_cast<T>(value) : old; });
}
template <typename T, typename Value> T atomicCAS(T *p, Value expected, Value value) {
  return emulation::change(p, [=](T old) { return old == expected ? static_cast<T>(value) : old; });
}

/* --- arithmetic -------------------------------------------------------------------- */

inline double __dmul_rn(double x, double y) {
  return x * y;
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __ddiv_rn(double x, double y) {
  return x / y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
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
inline float __uint_as_float(uint32_t bits) {
  return emulation::from_bits<float>(bits);
}
inline double __longlong_as_double(long long bits) {
  return emulation::from_bits<double>(static_cast<uint64_t>(bits));
}

/* --- launches ---------------------------------------------------------------------- */

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};

/* Kernels are done one after the other, whatever the attributes. */
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned numAttrs;
};

struct cudaFuncAttributes {
  int ptxVersion;
};

inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() {}

inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

/* Checks as a GPU does: sizes of the grid and of the thread block, and whether the kernel may have
 * as much dynamic shared memory. */
extern "C" cudaError_t emulation_check_launch(const struct cudaLaunchConfig_t *config,
                                              const void *kernel);
extern "C" cudaError_t emulation_allow_shared(const void *kernel, int nbytes);

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute, int value) {
  return emulation_allow_shared(reinterpret_cast<const void *>(kernel), value);
}

/* As on a GPU, the arguments are converted to the parameters' types once. */
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
  const void *const address = reinterpret_cast<const void *>(kernel);
  const cudaError_t code = emulation_check_launch(config, address);
  if (code == cudaSuccess) {
    const std::tuple<std::remove_cv_t<Parameters>...> converted(arguments...);
    emulation::launch(config->gridDim, config->blockDim, config->dynamicSmemBytes, address,
                      [&] { std::apply(kernel, converted); });
  }
  return code;
}

#endif
