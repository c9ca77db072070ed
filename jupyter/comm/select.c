#include "comm/select.h"

#include <inttypes.h>
#include <string.h>

/* A bound as Python takes it: a negative one counts from the end; the result lies in [low, high].
 */
static int64_t clamp_bound(int64_t bound, int64_t length, int64_t low, int64_t high) {
  if (bound < 0) {
    bound += length;
  }
  return bound < low ? low : bound > high ? high : bound;
}

static gpuf_status take_slice(gpuf_tensor *tensor, int32_t axis, const gpufi_slice *slice,
                              gpuf_error *err) {
  const int64_t length = tensor->shape[axis];
  const bool back = slice->step < 0;
  const int64_t low = back ? -1 : 0, high = back ? length - 1 : length;
  const int64_t start = slice->has_start ? clamp_bound(slice->start, length, low, high)
                        : back           ? high
                                         : low;
  const int64_t stop = slice->has_stop ? clamp_bound(slice->stop, length, low, high)
                       : back          ? low
                                       : high;
  const uint64_t stride = back ? -(uint64_t)slice->step : (uint64_t)slice->step;
  const int64_t span = back ? start - stop : stop - start;
  const int64_t count = span > 0 ? (int64_t)(((uint64_t)span - 1) / stride) + 1 : 0;
  return gpuf_tensor_slice(tensor, axis, count > 0 ? start : 0, slice->step, count, err);
}

static void remove_axis(gpuf_tensor *tensor, int32_t axis) {
  const size_t after = sizeof(int64_t) * (size_t)(tensor->ndim - axis - 1);
  memmove(&tensor->shape[axis], &tensor->shape[axis + 1], after);
  memmove(&tensor->strides_nbytes[axis], &tensor->strides_nbytes[axis + 1], after);
  tensor->ndim--;
}

gpufi_code gpufi_select(const gpufi_request *request, gpuf_tensor *tensor, gpuf_error *err) {
  if (request->slice_count > tensor->ndim) {
    return REFUSE(err, CODE_BAD_SLICE, "%" PRId32 " slices for %s, which has %" PRId32 " axes",
                  request->slice_count, request->name, tensor->ndim);
  }
  for (int32_t i = 0, axis = 0; i < request->slice_count; i++) {
    const gpufi_slice *slice = &request->slices[i];
    const int64_t length = tensor->shape[axis];
    gpuf_error cause;
    if (slice->is_index) {
      if (slice->start < -length || slice->start >= length) {
        return REFUSE(err, CODE_BAD_SLICE,
                      "slices[%" PRId32 "] %" PRId64 " is outside axis %" PRId32
                      " of %s, of length %" PRId64,
                      i, slice->start, i, request->name, length);
      }
      const int64_t index = slice->start < 0 ? slice->start + length : slice->start;
      tensor->data = (char *)tensor->data + index * tensor->strides_nbytes[axis];
      remove_axis(tensor, axis);
    } else if (take_slice(tensor, axis, slice, &cause) != GPUF_OK) {
      return REFUSE(err, CODE_BAD_SLICE, "slices[%" PRId32 "] of %s: %s", i, request->name,
                    cause.message);
    } else {
      axis++;
    }
  }
  return CODE_OK;
}

gpufi_code gpufi_select_fragment(gpuf_tensor *tensor, size_t element_nbytes, int64_t index,
                                 gpufi_fragment *fragment, gpuf_error *err) {
  const int64_t limit = (int64_t)(GPUFI_REPLY_MAX_NBYTES / element_nbytes);
  const bool empty = gpuf_tensor_count(tensor) == 0;
  int32_t axis = tensor->ndim; /* axes from here on fit a reply */
  int64_t inner = 1, outer = 1, total;
  while (!empty && axis > 0 && tensor->shape[axis - 1] <= limit / inner) {
    inner *= tensor->shape[--axis];
  }
  *fragment = (gpufi_fragment){.count = 1};
  if (__builtin_mul_overflow(gpuf_tensor_count(tensor), (int64_t)element_nbytes, &total)) {
    return REFUSE(err, CODE_TOO_LARGE, "a selection of more than %" PRId64 " bytes", INT64_MAX);
  }
  const bool split = !empty && axis > 0;
  const int64_t rows = split ? limit / inner : 1; /* of the axis before, in one fragment */
  const int64_t length = split ? tensor->shape[axis - 1] : 1;
  const int64_t per_row = (length - 1) / rows + 1;
  for (int32_t i = 0; split && i < axis - 1; i++) {
    outer *= tensor->shape[i];
  }
  fragment->count = outer * per_row;
  if (index >= fragment->count) {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "fragment %" PRId64 " of a selection that has %" PRId64 " fragments", index,
                  fragment->count);
  }
  if (!split) {
    return CODE_OK;
  }
  const int64_t first = index % per_row * rows;
  int64_t which = index / per_row;
  fragment->offset_nbytes = (size_t)((which * length + first) * inner) * element_nbytes;
  gpuf_status status = gpuf_tensor_slice(tensor, axis - 1, first, 1,
                                         length - first < rows ? length - first : rows, err);
  for (int32_t i = axis - 2; i >= 0 && status == GPUF_OK; i--) {
    const int64_t at = which % tensor->shape[i];
    which /= tensor->shape[i];
    status = gpuf_tensor_slice(tensor, i, at, 1, 1, err);
  }
  return status == GPUF_OK ? CODE_OK : CODE_INTERNAL;
}
