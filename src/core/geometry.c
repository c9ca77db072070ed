#include "core/geometry.h"

#include <inttypes.h>

#include "base/error.h"

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

bool gpufi_tensors_overlap(const gpuf_tensor *a, const gpuf_tensor *b) {
  uintptr_t a_low, a_high, b_low, b_high;
  gpufi_tensor_extent(a, &a_low, &a_high);
  gpufi_tensor_extent(b, &b_low, &b_high);
  return a_low < b_high && b_low < a_high;
}

void gpufi_tensor_swap_axes(gpuf_tensor *tensor, int32_t a, int32_t b) {
  const int64_t length = tensor->shape[a], stride = tensor->strides_nbytes[a];
  tensor->shape[a] = tensor->shape[b];
  tensor->strides_nbytes[a] = tensor->strides_nbytes[b];
  tensor->shape[b] = length;
  tensor->strides_nbytes[b] = stride;
}

/* The first axis along which an element is repeated; -1 if there is none. */
static int32_t repeated_axis(const gpuf_tensor *tensor) {
  if (gpuf_tensor_count(tensor) == 0) {
    return -1; /* its strides mean nothing */
  }
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    if (tensor->shape[axis] > 1 && tensor->strides_nbytes[axis] == 0) {
      return axis;
    }
  }
  return -1;
}

bool gpufi_tensor_repeats_elements(const gpuf_tensor *tensor) {
  return repeated_axis(tensor) >= 0;
}

gpuf_status gpufi_destination_check(const gpuf_tensor *dst, const gpuf_tensor *src,
                                    gpuf_error *err) {
  if (dst->ndim != src->ndim) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination has %" PRId32 " axes and the source %" PRId32
                      "; the shapes must be equal",
                      dst->ndim, src->ndim);
  }
  for (int32_t axis = 0; axis < dst->ndim; axis++) {
    if (dst->shape[axis] != src->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the destination's shape[%" PRId32 "] is %" PRId64
                        " and the source's %" PRId64 "; the shapes must be equal",
                        axis, dst->shape[axis], src->shape[axis]);
    }
  }
  const int32_t repeated = repeated_axis(dst);
  if (repeated >= 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination repeats one element along axis %" PRId32
                      " (stride 0); give each element memory of its own",
                      repeated);
  }
  return GPUF_OK;
}
