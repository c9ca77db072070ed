/* Many small copies within the device by one kernel. */
#include "backend/cuda/gather.h"
#include "backend/cuda/launch.cuh"

#include <stdint.h>

namespace {

using gpufi::bytes16;
using gpufi::kThreadsEach;

/* As many copies as fit 4 KiB of kernel arguments, which need no memory that outlives the call. */
constexpr size_t kCopiesMax = 160;
constexpr size_t kNbytesEach = 16384; /* that a thread block copies; four 16-byte units a thread */
constexpr size_t kThreadBlocksEachMax = 64;

struct gather_args {
  gpufi_flat_copy copies[kCopiesMax];
};

/* This thread's share of a copy, in units that both of its addresses are multiples of. */
template <typename Unit>
__device__ void copy_units(const gpufi_flat_copy &copy, size_t first, size_t step) {
  const size_t count = copy.nbytes / sizeof(Unit);
  for (size_t i = first; i < count; i += step) {
    static_cast<Unit *>(copy.dst)[i] = static_cast<const Unit *>(copy.src)[i];
  }
  for (size_t i = count * sizeof(Unit) + first; i < copy.nbytes; i += step) {
    static_cast<char *>(copy.dst)[i] = static_cast<const char *>(copy.src)[i];
  }
}

/* blockIdx.y chooses the copy; the thread blocks along x share it. */
__global__ void gather_kernel(const __grid_constant__ gather_args args) {
  const gpufi_flat_copy &copy = args.copies[blockIdx.y];
  const size_t first = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(copy.dst) | reinterpret_cast<uintptr_t>(copy.src);
  if (bits % sizeof(bytes16) == 0) {
    copy_units<bytes16>(copy, first, step);
  } else if (bits % sizeof(uint32_t) == 0) {
    copy_units<uint32_t>(copy, first, step);
  } else {
    copy_units<uint8_t>(copy, first, step);
  }
}

} // namespace

cudaError_t gpufi_cuda_gather(const gpufi_flat_copy *copies, size_t count, cudaStream_t stream) {
  for (size_t begin = 0; begin < count; begin += kCopiesMax) {
    const size_t some = count - begin < kCopiesMax ? count - begin : kCopiesMax;
    gather_args args;
    size_t thread_blocks = 1;
    for (size_t i = 0; i < some; i++) {
      args.copies[i] = copies[begin + i];
      const size_t wanted = (args.copies[i].nbytes + kNbytesEach - 1) / kNbytesEach;
      thread_blocks = wanted > thread_blocks ? wanted : thread_blocks;
    }
    thread_blocks = thread_blocks < kThreadBlocksEachMax ? thread_blocks : kThreadBlocksEachMax;
    const dim3 grid(static_cast<unsigned>(thread_blocks), static_cast<unsigned>(some));
    const cudaError_t code =
        gpufi::launch_kernel(gather_kernel, grid, kThreadsEach, 0, stream, args);
    if (code != cudaSuccess) {
      return code;
    }
  }
  return cudaSuccess;
}
