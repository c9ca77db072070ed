/* CUDA kernels. Each has a twin in C that is its reference: strided.c. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/strided.cuh"

namespace {

using gpufi::bytes16;
using gpufi::kBlockThreads;
using gpufi::strided_offset;

template <typename Element, typename Index>
__global__ void pack_kernel(const __grid_constant__ gpufi_strided layout, const char *base,
                            int64_t first, int64_t count, Element *packed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const int64_t offset = strided_offset(layout, static_cast<Index>(first + i));
    packed[i] = *reinterpret_cast<const Element *>(base + offset);
  }
}

template <typename Element, typename Index>
__global__ void unpack_kernel(const __grid_constant__ gpufi_strided layout, char *base,
                              int64_t first, int64_t count, const Element *packed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const int64_t offset = strided_offset(layout, static_cast<Index>(first + i));
    *reinterpret_cast<Element *>(base + offset) = packed[i];
  }
}

/* One launch of either kernel; `base` is const in a pack. */
struct launch {
  const gpufi_strided &layout;
  char *base;
  int64_t first;
  int64_t count;
  void *packed;
  bool unpack;
  cudaStream_t stream;

  template <typename Element, typename Index> cudaError_t run() const {
    const int64_t blocks = (count + kBlockThreads - 1) / kBlockThreads;
    const unsigned grid = gpufi::grid_of(blocks);
    Element *elements = static_cast<Element *>(packed);
    if (unpack) {
      unpack_kernel<Element, Index>
          <<<grid, kBlockThreads, 0, stream>>>(layout, base, first, count, elements);
    } else {
      pack_kernel<Element, Index>
          <<<grid, kBlockThreads, 0, stream>>>(layout, base, first, count, elements);
    }
    return cudaGetLastError();
  }

  template <typename Element> cudaError_t with_index() const {
    return first + count <= UINT32_MAX ? run<Element, uint32_t>() : run<Element, uint64_t>();
  }

  cudaError_t with_element() const {
    switch (layout.element_nbytes) {
    case 1:
      return with_index<uint8_t>();
    case 2:
      return with_index<uint16_t>();
    case 4:
      return with_index<uint32_t>();
    case 8:
      return with_index<uint64_t>();
    default:
      return with_index<bytes16>();
    }
  }
};

/* As many pieces as fit 4 KiB of kernel arguments, which need no memory that outlives the call. */
constexpr size_t kPiecesMax = 160;
constexpr size_t kBlockNbytes = 16384; /* of a piece; four 16-byte units a thread */
constexpr size_t kBlocksPerPieceMax = 64;

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
      const size_t wanted = (batch.pieces[i].nbytes + kBlockNbytes - 1) / kBlockNbytes;
      blocks = wanted > blocks ? wanted : blocks;
    }
    blocks = blocks < kBlocksPerPieceMax ? blocks : kBlocksPerPieceMax;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(part));
    gather_kernel<<<grid, kBlockThreads, 0, stream>>>(batch);
    const cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess) {
      return code;
    }
  }
  return cudaSuccess;
}

cudaError_t gpufi_cuda_pack(const gpufi_strided *layout, const void *d_base, int64_t first,
                            int64_t count, void *d_packed, cudaStream_t stream) {
  char *base = const_cast<char *>(static_cast<const char *>(d_base));
  return launch{*layout, base, first, count, d_packed, false, stream}.with_element();
}

cudaError_t gpufi_cuda_unpack(const gpufi_strided *layout, void *d_base, int64_t first,
                              int64_t count, const void *d_packed, cudaStream_t stream) {
  return launch{*layout, static_cast<char *>(d_base),  first,
                count,   const_cast<void *>(d_packed), true,
                stream}
      .with_element();
}
