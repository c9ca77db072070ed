/* Packing and unpacking element by element, and the choice among the kernels that do. */
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

/* A launch of either kernel. */
struct launch {
  const gpufi_packing &packing;
  bool unpack;
  cudaStream_t stream;

  template <typename Element, typename Index> cudaError_t start() const {
    const gpufi_packing &p = packing;
    const unsigned grid = gpufi::grid_of((p.count + kThreadsEach - 1) / kThreadsEach);
    char *const base = static_cast<char *>(p.d_base);
    Element *const packed = static_cast<Element *>(p.d_packed);
    if (unpack) {
      return gpufi::launch_kernel(unpack_kernel<Element, Index>, grid, kThreadsEach, 0, stream,
                                  p.layout, base, p.first, p.count, packed);
    }
    return gpufi::launch_kernel(pack_kernel<Element, Index>, grid, kThreadsEach, 0, stream,
                                p.layout, base, p.first, p.count, packed);
  }

  template <typename Element> cudaError_t run() const {
    return packing.first + packing.count <= UINT32_MAX ? start<Element, uint32_t>()
                                                       : start<Element, uint64_t>();
  }
};

/* Elements first .. first+count-1 of the packing's, by either kernel; count may be 0. */
cudaError_t pack_some(const gpufi_packing &all, int64_t first, int64_t count, bool unpack,
                      cudaStream_t stream) {
  gpufi_packing some = all;
  some.first += first;
  some.count = count;
  some.d_packed = static_cast<char *>(all.d_packed) + first * all.layout.element_nbytes;
  return count == 0 ? cudaSuccess
                    : gpufi::with_element(all.layout.element_nbytes, launch{some, unpack, stream});
}

} // namespace

cudaError_t gpufi_cuda_pack(const gpufi_packing *packing, bool unpack, cudaStream_t stream) {
  if (gpufi_packing_casts(packing)) {
    return gpufi_cuda_pack_cast(packing, unpack, stream);
  }
  gpufi_packing p = *packing; /* in the widest units */
  gpufi_tiles tiles;
  gpufi_strided_refit(&p.layout, p.d_base, &p.first, &p.count);
  if (!gpufi_strided_tiles(&p.layout, p.first, p.count, &tiles)) {
    return pack_some(p, 0, p.count, unpack, stream);
  }
  cudaError_t code = pack_some(p, 0, tiles.head_count, unpack, stream);
  if (code == cudaSuccess) {
    gpufi_packing middle = p;
    middle.d_packed = static_cast<char *>(p.d_packed) + tiles.head_count * p.layout.element_nbytes;
    code = gpufi_cuda_transpose(&middle, &tiles, unpack, stream);
  }
  return code == cudaSuccess
             ? pack_some(p, p.count - tiles.tail_count, tiles.tail_count, unpack, stream)
             : code;
}
