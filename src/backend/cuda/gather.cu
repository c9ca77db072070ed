/* Many small copies within the device by one kernel. */
#include "backend/cuda/gather.h"
#include "backend/cuda/launch.cuh"

#include <stdint.h>

namespace {

using gpufi::bytes16;
using gpufi::kThreadsEach;

/* As many pieces as fit 4 KiB of kernel arguments, which need no memory that outlives the call. */
constexpr size_t kPiecesMax = 160;
constexpr size_t kNbytesEach = 16384; /* of a piece; four 16-byte units a thread */
constexpr size_t kThreadBlocksEachMax = 64;

struct piece_batch {
  gpufi_piece pieces[kPiecesMax];
};

/* This thread's share of a piece, in units that both of its addresses are multiples of. */
template <typename Unit>
__device__ void copy_piece(const gpufi_piece &piece, size_t first, size_t step) {
  const size_t count = piece.nbytes / sizeof(Unit);
  for (size_t i = first; i < count; i += step) {
    static_cast<Unit *>(piece.dst)[i] = static_cast<const Unit *>(piece.src)[i];
  }
  for (size_t i = count * sizeof(Unit) + first; i < piece.nbytes; i += step) {
    static_cast<char *>(piece.dst)[i] = static_cast<const char *>(piece.src)[i];
  }
}

/* blockIdx.y chooses the piece; the blocks along x share it. */
__global__ void gather_kernel(const __grid_constant__ piece_batch batch) {
  const gpufi_piece &piece = batch.pieces[blockIdx.y];
  const size_t first = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(piece.dst) | reinterpret_cast<uintptr_t>(piece.src);
  if (bits % sizeof(bytes16) == 0) {
    copy_piece<bytes16>(piece, first, step);
  } else if (bits % sizeof(uint32_t) == 0) {
    copy_piece<uint32_t>(piece, first, step);
  } else {
    copy_piece<uint8_t>(piece, first, step);
  }
}

} // namespace

cudaError_t gpufi_cuda_gather(const gpufi_piece *pieces, size_t count, cudaStream_t stream) {
  for (size_t begin = 0; begin < count; begin += kPiecesMax) {
    const size_t part = count - begin < kPiecesMax ? count - begin : kPiecesMax;
    piece_batch batch;
    size_t blocks = 1;
    for (size_t i = 0; i < part; i++) {
      batch.pieces[i] = pieces[begin + i];
      const size_t wanted = (batch.pieces[i].nbytes + kNbytesEach - 1) / kNbytesEach;
      blocks = wanted > blocks ? wanted : blocks;
    }
    blocks = blocks < kThreadBlocksEachMax ? blocks : kThreadBlocksEachMax;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(part));
    gather_kernel<<<grid, kThreadsEach, 0, stream>>>(batch);
    const cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess) {
      return code;
    }
  }
  return cudaSuccess;
}
