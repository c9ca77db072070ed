/* What the caller of fetch wants: parsing it, and the result's layout. */
#include "request.h"

#include "arguments.h"
#include "dtypes.h"

#include "base/arithmetic.h"
#include "core/geometry.h"

/* Sort the axes from the outermost in memory to the innermost, as NumPy's order='K' does: by
 * stride, axes with equal strides staying in their order. */
static void sort_by_stride(const gpuf_tensor *tensor, int32_t *axes) {
  for (int32_t i = 1; i < tensor->ndim; i++) {
    const int32_t axis = axes[i];
    const int64_t stride = gpufi_magnitude(tensor->strides_nbytes[axis]);
    int32_t at = i;
    for (; at > 0 && gpufi_magnitude(tensor->strides_nbytes[axes[at - 1]]) < stride; at--) {
      axes[at] = axes[at - 1];
    }
    axes[at] = axis;
  }
}

/* The axes of `tensor` in the order that the result's have in memory, the outermost first. */
static void order_axes(const gpuf_tensor *tensor, char order, int32_t *axes) {
  const bool in_c_order = gpuf_tensor_is_contiguous(tensor);
  const bool in_f_order = gpufi_tensor_is_f_contiguous(tensor);
  const bool keep = order == 'A' || order == 'K';
  const bool to_f_order = order == 'F' || (keep && in_f_order && !in_c_order);
  for (int32_t i = 0; i < tensor->ndim; i++) {
    axes[i] = to_f_order ? tensor->ndim - 1 - i : i;
  }
  if (order == 'K' && !in_c_order && !in_f_order) {
    sort_by_stride(tensor, axes);
  }
}

void gpufi_py_request_describe(const gpufi_py_request *wanted, const gpuf_tensor *tensor,
                               gpuf_tensor *result) {
  int32_t axes[GPUF_NDIM_MAX] = {0};
  /* Without elements the strides mean nothing, and the product may overflow. */
  const bool empty = gpuf_tensor_count(tensor) == 0;
  order_axes(tensor, wanted->order, axes);
  *result = (gpuf_tensor){
      .device = {GPUF_DEVICE_CPU, 0},
      .dtype = wanted->dtype ? wanted->dtype : tensor->dtype,
      .ndim = tensor->ndim,
      .stream = GPUF_STREAM_NONE,
  };
  int64_t stride = (int64_t)gpuf_dtype_nbytes(result->dtype);
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    const int64_t length = tensor->shape[axes[i]];
    result->shape[axes[i]] = length;
    result->strides_nbytes[axes[i]] = stride;
    stride *= empty ? 1 : length; /* no overflow: gpufi_py_request_check has seen the product */
  }
}

gpuf_status gpufi_py_request_check(const gpufi_py_request *wanted, const gpuf_tensor *tensor,
                                   gpuf_error *err) {
  gpuf_tensor result;
  gpuf_status status = gpuf_tensor_check(tensor, err);
  if (status == GPUF_OK && wanted->dtype) {
    status = gpuf_tensor_init(&result, (void *)1, (gpuf_device){GPUF_DEVICE_CPU, 0}, wanted->dtype,
                              tensor->ndim, tensor->shape, err);
  }
  return status;
}

gpuf_copy_options gpufi_py_request_options(const gpufi_py_request *wanted) {
  return (gpuf_copy_options){.struct_nbytes = sizeof(gpuf_copy_options),
                             .cast = wanted->dtype != 0};
}

static int parse_order(PyObject *object, char *order) {
  const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  if (!text || strlen(text) != 1 || !strchr("CFAKcfak", text[0])) {
    PyErr_Format(text ? PyExc_ValueError : PyExc_TypeError,
                 "order is %R; it must be \"C\", \"F\", \"A\" or \"K\"", object);
    return -1;
  }
  *order = (char)(text[0] & ~0x20); /* upper case */
  return 0;
}

int gpufi_py_request_parse(const gpufi_py_state *state, const char *function, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames, gpufi_py_request *wanted) {
  PyObject *out = Py_None, *dtype = Py_None, *order = Py_None;
  PyObject *const names[] = {state->names.out, state->names.dtype, state->names.order, NULL};
  PyObject **values[] = {&out, &dtype, &order};
  *wanted = (gpufi_py_request){0};
  if (gpufi_py_keywords(function, args, nargs, 1, kwnames, names, values) < 0 ||
      (dtype != Py_None && gpufi_py_dtype_parse(state, dtype, &wanted->dtype) < 0) ||
      (order != Py_None && parse_order(order, &wanted->order) < 0)) {
    return -1;
  }
  if (out != Py_None && order != Py_None) {
    PyErr_SetString(PyExc_ValueError, "out has a layout of its own: leave order out");
    return -1;
  }
  wanted->out = out == Py_None ? NULL : out;
  return 0;
}
