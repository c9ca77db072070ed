/* CUDA kernels. Each has a twin in C that is its reference: strided.c. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/pack.h"
#include "backend/cuda/strided.cuh"

namespace {

using gpufi::bytes16;
using gpufi::kThreadsEach;
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
    const int64_t blocks = (count + kThreadsEach - 1) / kThreadsEach;
    const unsigned grid = gpufi::grid_of(blocks);
    Element *elements = static_cast<Element *>(packed);
    if (unpack) {
      unpack_kernel<Element, Index>
          <<<grid, kThreadsEach, 0, stream>>>(layout, base, first, count, elements);
    } else {
      pack_kernel<Element, Index>
          <<<grid, kThreadsEach, 0, stream>>>(layout, base, first, count, elements);
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

} // namespace

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
