/* Where the elements of a strided layout are. */
#ifndef GPUFI_BACKEND_CUDA_STRIDED_CUH
#define GPUFI_BACKEND_CUDA_STRIDED_CUH

#include "backend/cuda/launch.cuh"
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

/* Call f.run<Element>() with a type of `nbytes`. */
template <typename Function> cudaError_t with_element(uint32_t nbytes, const Function &f) {
  switch (nbytes) {
  case 1:
    return f.template run<uint8_t>();
  case 2:
    return f.template run<uint16_t>();
  case 4:
    return f.template run<uint32_t>();
  case 8:
    return f.template run<uint64_t>();
  default:
    return f.template run<bytes16>();
  }
}

} // namespace gpufi

#endif
