/* Where the elements of a strided layout are. */
#ifndef GPUFI_BACKEND_CUDA_STRIDED_CUH
#define GPUFI_BACKEND_CUDA_STRIDED_CUH

#include "backend/strided.h"

namespace gpufi {

/* Byte offset, from the base, of an element by its index in C order over axes begin .. end-1. Index
 * is the narrowest type that holds their element count: 64-bit division costs several times the
 * 32-bit one. */
template <typename Index>
__device__ int64_t offset_within(const gpufi_strided &layout, int begin, int end, Index element) {
  int64_t offset = 0;
  if (begin == end) {
    return 0;
  }
  for (int axis = end - 1; axis > begin; axis--) {
    const Index length = static_cast<Index>(layout.shape[axis]);
    const Index outer = element / length;
    offset += static_cast<int64_t>(element - outer * length) * layout.strides_nbytes[axis];
    element = outer;
  }
  return offset + static_cast<int64_t>(element) * layout.strides_nbytes[begin];
}

template <typename Index>
__device__ int64_t strided_offset(const gpufi_strided &layout, Index element) {
  return offset_within(layout, 0, layout.ndim, element);
}

} // namespace gpufi

#endif
