/* Element types and tensor descriptors. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "core/geometry.h"

typedef struct dtype_row {
  const char *name;
  size_t nbytes;
} dtype_row;

static const dtype_row dtypes[GPUF_DTYPE_MAX + 1] = {
    [GPUF_DTYPE_BOOL] = {"bool", 1},
    [GPUF_DTYPE_INT8] = {"int8", 1},
    [GPUF_DTYPE_INT16] = {"int16", 2},
    [GPUF_DTYPE_INT32] = {"int32", 4},
    [GPUF_DTYPE_INT64] = {"int64", 8},
    [GPUF_DTYPE_UINT8] = {"uint8", 1},
    [GPUF_DTYPE_UINT16] = {"uint16", 2},
    [GPUF_DTYPE_UINT32] = {"uint32", 4},
    [GPUF_DTYPE_UINT64] = {"uint64", 8},
    [GPUF_DTYPE_FLOAT16] = {"float16", 2},
    [GPUF_DTYPE_BFLOAT16] = {"bfloat16", 2},
    [GPUF_DTYPE_FLOAT32] = {"float32", 4},
    [GPUF_DTYPE_FLOAT64] = {"float64", 8},
    [GPUF_DTYPE_COMPLEX64] = {"complex64", 8},
    [GPUF_DTYPE_COMPLEX128] = {"complex128", 16},
    [GPUF_DTYPE_FLOAT8_E3M4] = {"float8_e3m4", 1},
    [GPUF_DTYPE_FLOAT8_E4M3] = {"float8_e4m3", 1},
    [GPUF_DTYPE_FLOAT8_E4M3B11FNUZ] = {"float8_e4m3b11fnuz", 1},
    [GPUF_DTYPE_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [GPUF_DTYPE_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1},
    [GPUF_DTYPE_FLOAT8_E5M2] = {"float8_e5m2", 1},
    [GPUF_DTYPE_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1},
    [GPUF_DTYPE_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1},
};

static bool dtype_known(gpuf_dtype dtype) {
  return dtype >= 1 && dtype <= GPUF_DTYPE_MAX;
}

const char *gpuf_dtype_name(gpuf_dtype dtype) {
  return dtype_known(dtype) ? dtypes[dtype].name : "unknown";
}

size_t gpuf_dtype_nbytes(gpuf_dtype dtype) {
  return dtype_known(dtype) ? dtypes[dtype].nbytes : 0;
}

static gpuf_status check_rank(gpuf_dtype dtype, int32_t ndim, gpuf_error *err) {
  if (!dtype_known(dtype)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "dtype %d is not an element type; use a value of gpuf_dtype", (int)dtype);
  }
  if (ndim < 0 || ndim > GPUF_NDIM_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "ndim is %" PRId32 "; it must be 0 to %d: merge axes with a reshape", ndim,
                      GPUF_NDIM_MAX);
  }
  return GPUF_OK;
}

static gpuf_status too_large(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "the shape and strides span more than %td bytes; check them for a wrong value",
                    PTRDIFF_MAX);
}

/* Check that the shape, the total size and the reach of the strides all fit in ptrdiff_t. */
static gpuf_status check_extent(const gpuf_tensor *tensor, gpuf_error *err) {
  int64_t nbytes = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  int64_t reach_nbytes = nbytes;
  bool empty = false;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    if (tensor->shape[axis] < 0) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "shape[%" PRId32 "] is %" PRId64 "; lengths are 0 or more", axis,
                        tensor->shape[axis]);
    }
    empty |= tensor->shape[axis] == 0;
  }
  for (int32_t axis = 0; axis < tensor->ndim && !empty; axis++) {
    const int64_t stride = tensor->strides_nbytes[axis];
    int64_t span;
    if (tensor->shape[axis] == 1) {
      continue; /* the stride means nothing */
    }
    if (stride == INT64_MIN || __builtin_mul_overflow(nbytes, tensor->shape[axis], &nbytes) ||
        __builtin_mul_overflow(tensor->shape[axis] - 1, stride < 0 ? -stride : stride, &span) ||
        __builtin_add_overflow(reach_nbytes, span, &reach_nbytes)) {
      return too_large(err);
    }
  }
  return GPUF_OK;
}

/* Check that no element of a tensor, whose extent was checked, lies below address 0 or beyond the
 * last one. */
static gpuf_status check_addresses(const gpuf_tensor *tensor, gpuf_error *err) {
  size_t below_nbytes, above_nbytes;
  const uintptr_t data = (uintptr_t)tensor->data;
  gpufi_tensor_reach(tensor, &below_nbytes, &above_nbytes);
  if (data < below_nbytes || above_nbytes > UINTPTR_MAX - data) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "elements lie from %zu bytes before data, %p, to %zu behind it, which is "
                      "beyond memory; check data, the shape and the strides",
                      below_nbytes, tensor->data, above_nbytes);
  }
  return GPUF_OK;
}

gpuf_status gpuf_tensor_check(const gpuf_tensor *tensor, gpuf_error *err) {
  GPUFI_REQUIRE(tensor, err);
  gpuf_status status = check_rank(tensor->dtype, tensor->ndim, err);
  if (status == GPUF_OK) {
    status = check_extent(tensor, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if ((unsigned)tensor->device.kind > GPUF_DEVICE_HOST) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "device kind %d is not one of gpuf_device_kind",
                      (int)tensor->device.kind);
  }
  if (tensor->device.kind == GPUF_DEVICE_CPU && tensor->device.index != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "there is no device cpu:%" PRId32 "; the CPU's index is 0",
                      tensor->device.index);
  }
  if (gpuf_tensor_count(tensor) == 0) {
    return GPUF_OK;
  }
  if (!tensor->data) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "data is NULL but the shape holds %" PRId64 " elements",
                      gpuf_tensor_count(tensor));
  }
  return check_addresses(tensor, err);
}

gpuf_status gpuf_tensor_init(gpuf_tensor *tensor, const void *data, gpuf_device device,
                             gpuf_dtype dtype, int32_t ndim, const int64_t *shape,
                             gpuf_error *err) {
  GPUFI_REQUIRE(tensor, err);
  gpuf_tensor t = {.data = (void *)data, .device = device, .dtype = dtype, .ndim = ndim};
  gpuf_status status = check_rank(dtype, ndim, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (ndim > 0) {
    GPUFI_REQUIRE(shape, err);
    memcpy(t.shape, shape, (size_t)ndim * sizeof(*shape));
  }
  const bool empty =
      gpuf_tensor_count(&t) == 0; /* then the strides do not matter, but must not overflow */
  int64_t stride = (int64_t)gpuf_dtype_nbytes(dtype);
  for (int32_t axis = ndim - 1; axis >= 0; axis--) {
    t.strides_nbytes[axis] = stride;
    if (!empty && __builtin_mul_overflow(stride, t.shape[axis], &stride)) {
      return too_large(err);
    }
  }
  status = gpuf_tensor_check(&t, err);
  if (status == GPUF_OK) {
    *tensor = t;
  }
  return status;
}

int64_t gpuf_tensor_count(const gpuf_tensor *tensor) {
  int64_t count = 1;
  if (!tensor) {
    return 0;
  }
  if (tensor->ndim < 0 || tensor->ndim > GPUF_NDIM_MAX) {
    return INT64_MAX;
  }
  bool empty = false, valid = true;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    empty |= tensor->shape[axis] == 0; /* the product of the others may overflow then */
    valid &= tensor->shape[axis] >= 0;
  }
  for (int32_t axis = 0; axis < tensor->ndim && valid && !empty; axis++) {
    valid = !__builtin_mul_overflow(count, tensor->shape[axis], &count);
  }
  return !valid ? INT64_MAX : empty ? 0 : count;
}

size_t gpuf_tensor_nbytes(const gpuf_tensor *tensor) {
  const int64_t count = gpuf_tensor_count(tensor);
  size_t nbytes = 0;
  if (count > 0 && (!dtype_known(tensor->dtype) || count == INT64_MAX ||
                    __builtin_mul_overflow(count, dtypes[tensor->dtype].nbytes, &nbytes))) {
    return SIZE_MAX;
  }
  return nbytes;
}

bool gpuf_tensor_is_contiguous(const gpuf_tensor *tensor) {
  if (!tensor || gpuf_tensor_nbytes(tensor) == SIZE_MAX) {
    return false;
  }
  int64_t stride = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  if (gpuf_tensor_count(tensor) < 2) {
    return true;
  }
  for (int32_t axis = tensor->ndim - 1; axis >= 0; axis--) {
    if (tensor->shape[axis] != 1 && tensor->strides_nbytes[axis] != stride) {
      return false;
    }
    stride *= tensor->shape[axis];
  }
  return true;
}

gpuf_status gpuf_tensor_slice(gpuf_tensor *tensor, int32_t axis, int64_t start, int64_t step,
                              int64_t count, gpuf_error *err) {
  gpuf_status status = gpuf_tensor_check(tensor, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (axis < 0 || axis >= tensor->ndim) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "axis %" PRId32 " of a tensor with %" PRId32 " axes; axes go from 0", axis,
                      tensor->ndim);
  }
  const int64_t length = tensor->shape[axis];
  int64_t last = start;
  if (count < 0 || (count > 1 && (__builtin_mul_overflow(count - 1, step, &last) ||
                                  __builtin_add_overflow(last, start, &last)))) {
    last = -1;
  }
  if (count < 0 || (count > 0 && (start < 0 || start >= length || last < 0 || last >= length))) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "slice start %" PRId64 ", step %" PRId64 ", count %" PRId64
                      " leaves axis %" PRId32 " of length %" PRId64,
                      start, step, count, axis, length);
  }
  if (count > 0) {
    tensor->data = (char *)tensor->data + start * tensor->strides_nbytes[axis];
  }
  tensor->shape[axis] = count;
  tensor->strides_nbytes[axis] *= count > 1 ? step : 1;
  return GPUF_OK;
}
