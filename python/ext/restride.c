/* gpufetch._core._restride: another shape and other strides over a DeviceArray's elements. */
#include "core.h"

/* Byte offsets, from the tensor's data, of the lowest byte of an element and of the end of the
 * highest one. False if they overflow. The tensor has elements. */
static bool extent_of(const gpuf_tensor *tensor, int64_t *low, int64_t *end) {
  *low = 0;
  *end = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  for (int32_t i = 0; i < tensor->ndim; i++) {
    int64_t reach;
    if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides_nbytes[i], &reach)) {
      return false;
    }
    int64_t *bound = reach < 0 ? low : end;
    if (__builtin_add_overflow(*bound, reach, bound)) {
      return false;
    }
  }
  return true;
}

static int fill(int64_t *values, PyObject *sequence, int32_t count, const char *what) {
  for (int32_t i = 0; i < count; i++) {
    values[i] = PyLong_AsLongLong(PyTuple_GetItem(sequence, i));
    if (values[i] == -1 && PyErr_Occurred()) {
      gpufi_py_raise_from(PyExc_ValueError, "%s[%d] does not fit 64 bits", what, (int)i);
      return -1;
    }
  }
  return 0;
}

static int parse(gpuf_tensor *tensor, PyObject *shape, PyObject *strides) {
  const Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim > GPUF_NDIM_MAX || PyTuple_Size(strides) != ndim) {
    PyErr_Format(PyExc_ValueError,
                 "shape %S and strides %S do not fit: at most %d axes, one "
                 "stride each",
                 shape, strides, GPUF_NDIM_MAX);
    return -1;
  }
  tensor->ndim = (int32_t)ndim;
  return fill(tensor->shape, shape, tensor->ndim, "shape") < 0 ||
                 fill(tensor->strides_nbytes, strides, tensor->ndim, "strides") < 0
             ? -1
             : 0;
}

PyObject *gpufi_py_restride(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *shape, *strides;
  gpufi_py_device_array *array;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "O!O!O!:_restride", state->device_array_type, &array, &PyTuple_Type,
                        &shape, &PyTuple_Type, &strides)) {
    return NULL;
  }
  gpuf_tensor tensor = array->tensor;
  int64_t low = 0, end = 0, own_low = 0, own_end = 0;
  if (parse(&tensor, shape, strides) < 0) {
    return NULL;
  }
  if (gpuf_tensor_check(&tensor, &err) != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  const bool has_elements = gpuf_tensor_count(&tensor) > 0;
  if (has_elements &&
      (gpuf_tensor_count(&array->tensor) == 0 || !extent_of(&array->tensor, &own_low, &own_end) ||
       !extent_of(&tensor, &low, &end) || low < own_low || end > own_end)) {
    PyErr_Format(PyExc_ValueError, "shape %S with strides %S reaches outside the array", shape,
                 strides);
    return NULL;
  }
  PyObject *owner = array->keepalive ? array->keepalive : (PyObject *)array;
  return gpufi_py_device_array_create(state, &tensor, array->readonly, owner);
}
