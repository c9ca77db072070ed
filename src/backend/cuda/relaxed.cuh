/* Memory through which thread blocks that are under way tell each other how far they are. */
#ifndef GPUFI_BACKEND_CUDA_RELAXED_CUH
#define GPUFI_BACKEND_CUDA_RELAXED_CUH

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

} // namespace gpufi

#endif
