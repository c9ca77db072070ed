#include "core/geometry.h"

bool gpufi_tensor_is_f_contiguous(const gpuf_tensor *tensor) {
  gpuf_tensor reversed = *tensor;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    reversed.shape[axis] = tensor->shape[tensor->ndim - 1 - axis];
    reversed.strides_nbytes[axis] = tensor->strides_nbytes[tensor->ndim - 1 - axis];
  }
  return gpuf_tensor_is_contiguous(&reversed);
}

void gpufi_tensor_reach(const gpuf_tensor *tensor, size_t *below_nbytes, size_t *above_nbytes) {
  *below_nbytes = *above_nbytes = 0;
  if (gpuf_tensor_count(tensor) == 0) {
    return;
  }
  *above_nbytes = gpuf_dtype_nbytes(tensor->dtype);
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t span = (tensor->shape[axis] - 1) * tensor->strides_nbytes[axis];
    *(span < 0 ? below_nbytes : above_nbytes) += (size_t)(span < 0 ? -span : span);
  }
}

void gpufi_tensor_extent(const gpuf_tensor *tensor, uintptr_t *low, uintptr_t *high) {
  size_t below_nbytes, above_nbytes;
  gpufi_tensor_reach(tensor, &below_nbytes, &above_nbytes);
  *low = (uintptr_t)tensor->data - below_nbytes;
  *high = (uintptr_t)tensor->data + above_nbytes;
}

void gpufi_tensor_swap_axes(gpuf_tensor *tensor, int32_t a, int32_t b) {
  const int64_t length = tensor->shape[a], stride = tensor->strides_nbytes[a];
  tensor->shape[a] = tensor->shape[b];
  tensor->strides_nbytes[a] = tensor->strides_nbytes[b];
  tensor->shape[b] = length;
  tensor->strides_nbytes[b] = stride;
}
