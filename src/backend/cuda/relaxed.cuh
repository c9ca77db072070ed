/* Memory through which thread blocks that are under way tell each other how far they are. */
#ifndef GPUFI_BACKEND_CUDA_RELAXED_CUH
#define GPUFI_BACKEND_CUDA_RELAXED_CUH

#include <stdint.h>

namespace gpufi {

/* Whoever waits for another thread block calls this in its loop, on a GPU and in
 * tests/cuda_emulation, where the others run meanwhile. */
template <typename T> __device__ inline T load_relaxed(const T *p) {
#ifdef GPUFI_CUDA_EMULATION
  emulation::yield();
#endif
  return *static_cast<const volatile T *>(p);
}

template <typename T> __device__ inline void store_relaxed(T *p, T value) {
  *static_cast<volatile T *>(p) = value;
}

/* The same of a word that says of other memory that it is written: whoever loads it with
 * load_acquire sees all that the thread which stored it with store_release had written or seen
 * before; also what others had written before they were synchronized with that thread. */
__device__ inline uint32_t load_acquire(const uint32_t *p) {
#ifdef GPUFI_CUDA_EMULATION
  emulation::yield();
  return *p;
#else
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
#endif
}

__device__ inline void store_release(uint32_t *p, uint32_t value) {
#ifdef GPUFI_CUDA_EMULATION
  emulation::may_yield();
  *p = value;
#else
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
#endif
}

/* Add to a word as store_release stores. */
__device__ inline void add_release(uint32_t *p, uint32_t value) {
#ifdef GPUFI_CUDA_EMULATION
  emulation::may_yield();
  *p += value;
#else
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
#endif
}

} // namespace gpufi

#endif
