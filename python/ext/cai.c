/* __cuda_array_interface__, versions 0 to 3, in.
 * https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html */
#include "core.h"

#include <string.h>

/* Borrowed; NULL without an exception if the key is missing or None. */
static PyObject *entry(PyObject *dict, PyObject *name) {
  PyObject *value = PyDict_GetItemWithError(dict, name);
  return value == Py_None ? NULL : value;
}

/* "<f4" and so on; NumPy knows the rest of the type strings, which are refused. */
static int parse_typestr(const gpufi_py_state *state, PyObject *typestr, gpuf_dtype *dtype) {
  if (!typestr || !PyUnicode_Check(typestr)) {
    PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ has no typestr");
    return -1;
  }
  const char *text = PyUnicode_AsUTF8AndSize(typestr, NULL);
  if (!text) {
    return -1;
  }
  if (text[0] != '\0' && text[1] == 'V') {
    PyErr_Format(PyExc_TypeError,
                 "__cuda_array_interface__ typestr %R says no more than a size (bfloat16 and "
                 "float8 look so too): view the array as an integer dtype first",
                 typestr);
    return -1;
  }
  return gpufi_py_dtype_parse(state, typestr, dtype);
}

/* A tuple of ints into `values`; its length, or -1. */
static Py_ssize_t parse_ints(PyObject *tuple, const char *what, int64_t *values) {
  if (!tuple || !PyTuple_Check(tuple)) {
    PyErr_Format(PyExc_TypeError, "__cuda_array_interface__ has no tuple as its %s", what);
    return -1;
  }
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count > GPUF_NDIM_MAX) {
    PyErr_Format(PyExc_ValueError,
                 "a tensor of %zd dimensions is not supported: the limit is %d; reshape it first",
                 count, GPUF_NDIM_MAX);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred()) {
      return -1;
    }
  }
  return count;
}

static int parse_layout(PyObject *dict, const gpufi_py_state *state, gpuf_tensor *tensor) {
  const Py_ssize_t ndim = parse_ints(entry(dict, state->names.shape), "shape", tensor->shape);
  PyObject *strides = entry(dict, state->names.strides);
  if (ndim < 0) {
    return -1;
  }
  tensor->ndim = (int32_t)ndim;
  if (strides) {
    const Py_ssize_t count = parse_ints(strides, "strides", tensor->strides_nbytes);
    if (count >= 0 && count != ndim) {
      PyErr_Format(PyExc_ValueError, "__cuda_array_interface__ has %zd strides for %zd dimensions",
                   count, ndim);
    }
    return count == ndim ? 0 : -1;
  }
  int64_t stride = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  for (Py_ssize_t i = ndim - 1; i >= 0; i--) {
    tensor->strides_nbytes[i] = stride;
    const int64_t extent = tensor->shape[i] > 0 ? tensor->shape[i] : 1;
    if (__builtin_mul_overflow(stride, extent, &stride)) {
      PyErr_Format(PyExc_ValueError, "shape %S is too large",
                   PyDict_GetItemWithError(dict, state->names.shape));
      return -1;
    }
  }
  return 0;
}

static int parse_data(PyObject *data, gpufi_py_import *import) {
  if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
    PyErr_SetString(PyExc_TypeError,
                    "__cuda_array_interface__ has no (pointer, read-only) as its data");
    return -1;
  }
  import->tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  if (PyErr_Occurred()) {
    return -1;
  }
  const int readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1));
  import->readonly = readonly > 0;
  return readonly < 0 ? -1 : 0;
}

/* No stream means "nothing to wait for", but Numba says so of arrays that a kernel on the default
 * stream still writes. Waiting for the default stream costs little and is always right. */
static int parse_stream(PyObject *stream, gpuf_stream *result) {
  *result = GPUF_STREAM_LEGACY;
  if (!stream) {
    return 0;
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(stream);
  if (PyErr_Occurred()) {
    return -1;
  }
  if (value == 0) {
    PyErr_SetString(PyExc_ValueError,
                    "__cuda_array_interface__ has stream 0, which is ambiguous and not allowed: "
                    "the producer must give 1 (legacy default), 2 (per thread) or a handle");
    return -1;
  }
  *result = (gpuf_stream)value;
  return 0;
}

/* The interface does not name the device, but the pointer does. One that nobody knows is left to
 * the first GPU to refuse; an empty array has none. */
static void find_device(gpuf_tensor *tensor) {
  if (!tensor->data || gpuf_device_of(tensor->data, &tensor->device, NULL) != GPUF_OK) {
    tensor->device = (gpuf_device){GPUF_DEVICE_CUDA, 0};
  }
  if (tensor->device.kind != GPUF_DEVICE_CUDA) {
    tensor->stream = GPUF_STREAM_NONE; /* the interface's streams are CUDA's */
  }
}

static int parse(const gpufi_py_state *state, PyObject *dict, gpufi_py_import *import) {
  gpuf_tensor *tensor = &import->tensor;
  if (!PyDict_Check(dict)) {
    PyErr_Format(PyExc_TypeError, "__cuda_array_interface__ is %R, not a dict", dict);
    return -1;
  }
  if (entry(dict, state->names.mask)) {
    PyErr_SetString(PyExc_TypeError,
                    "a masked array is not supported: pass the data and the mask apart");
    return -1;
  }
  if (parse_typestr(state, entry(dict, state->names.typestr), &tensor->dtype) < 0 ||
      parse_layout(dict, state, tensor) < 0 ||
      parse_data(entry(dict, state->names.data), import) < 0 ||
      parse_stream(entry(dict, state->names.stream), &tensor->stream) < 0) {
    return -1;
  }
  find_device(tensor);
  return 0;
}

int gpufi_py_cai_import(const gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  PyObject *dict = PyObject_GetAttr(object, state->names.__cuda_array_interface__);
  if (!dict) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return -1;
    }
    PyErr_Clear();
    return 0;
  }
  const int status = parse(state, dict, import);
  Py_DECREF(dict);
  if (status < 0) {
    return -1;
  }
  Py_INCREF(object);
  import->keepalive = object;
  return 1;
}
