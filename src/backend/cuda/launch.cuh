/* Launching kernels: what those of all folders need. */
#ifndef GPUFI_BACKEND_CUDA_LAUNCH_CUH
#define GPUFI_BACKEND_CUDA_LAUNCH_CUH

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

namespace gpufi {

/* Kernels whose threads take elements in turn are launched with this many threads to a thread
 * block, and no more thread blocks than the maximum. */
constexpr int kThreadsEach = 256;
constexpr int64_t kThreadBlocksMax = 1 << 20;

inline unsigned grid_of(int64_t thread_blocks) {
  return static_cast<unsigned>(thread_blocks < kThreadBlocksMax ? thread_blocks : kThreadBlocksMax);
}

/* The widest element that one load or store moves. */
struct alignas(16) bytes16 {
  uint64_t low, high;
};

inline cudaLaunchConfig_t launch_config(dim3 thread_blocks, dim3 threads, size_t shared_nbytes,
                                        cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = thread_blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_nbytes;
  config.stream = stream;
  return config;
}

/* Every kernel is launched here, which tests/cuda_emulation can compile as C++. */
template <typename... P, typename... A>
cudaError_t launch_kernel(void (*kernel)(P...), dim3 thread_blocks, dim3 threads,
                          size_t shared_nbytes, cudaStream_t stream, const A &...arguments) {
  const cudaLaunchConfig_t config = launch_config(thread_blocks, threads, shared_nbytes, stream);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Kernels that follow each other, many of which have nothing to do: on a GPU that can do so
 * (programmatic dependent launch), the thread blocks of such a kernel start while the kernel before
 * it ends, and wait in begin_early() for all that it and those before it write. Each of these
 * kernels begins with that call. */
__device__ __forceinline__ void begin_early() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

/* Whether the kernels that this device runs were compiled with what begin_early() does: `kernel` is
 * any of them. */
bool can_begin_early(const void *kernel);

template <typename... P, typename... A>
cudaError_t launch_early(void (*kernel)(P...), dim3 thread_blocks, dim3 threads,
                         size_t shared_nbytes, cudaStream_t stream, const A &...arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = launch_config(thread_blocks, threads, shared_nbytes, stream);
  config.attrs = &early;
  config.numAttrs = can_begin_early(reinterpret_cast<const void *>(kernel)) ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* The thread block's dynamic shared memory. */
__device__ inline uint4 *dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_bytes[];
  return dynamic_shared_bytes;
}

/* The same as an array of its own, for which nvcc makes better code. */
#ifdef GPUFI_CUDA_EMULATION
#define GPUFI_DYNAMIC_SHARED(type, name)                                                           \
  type *const name = reinterpret_cast<type *>(gpufi::dynamic_shared())
#else
#define GPUFI_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

} // namespace gpufi

#endif
