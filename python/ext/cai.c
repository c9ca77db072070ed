/* Import of tensors through __cuda_array_interface__, versions 0 to 3.
 * https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html */
#include "cai.h"

#include "arguments.h"
#include "dtypes.h"

#include <string.h>

/* What the dict holds under these names: strong references, since parsing runs code of the
 * producer, which may change the dict. NULL for what is missing or None. */
typedef struct entries {
  PyObject *typestr, *shape, *strides, *data, *stream, *mask;
} entries;

static int take_entry(PyObject *dict, PyObject *name, PyObject **value) {
  PyObject *found = PyDict_GetItemWithError(dict, name);
  *value = found == Py_None ? NULL : Py_XNewRef(found);
  return PyErr_Occurred() ? -1 : 0;
}

/* The entries must be released also when this fails. */
static int take_entries(const gpufi_py_state *state, PyObject *dict, entries *found) {
  const gpufi_py_names *names = &state->names;
  *found = (entries){0};
  if (!PyDict_Check(dict)) {
    PyErr_Format(PyExc_TypeError, "__cuda_array_interface__ is %R, not a dict", dict);
    return -1;
  }
  return take_entry(dict, names->typestr, &found->typestr) < 0 ||
                 take_entry(dict, names->shape, &found->shape) < 0 ||
                 take_entry(dict, names->strides, &found->strides) < 0 ||
                 take_entry(dict, names->data, &found->data) < 0 ||
                 take_entry(dict, names->stream, &found->stream) < 0 ||
                 take_entry(dict, names->mask, &found->mask) < 0
             ? -1
             : 0;
}

static void release_entries(const entries *found) {
  Py_XDECREF(found->typestr);
  Py_XDECREF(found->shape);
  Py_XDECREF(found->strides);
  Py_XDECREF(found->data);
  Py_XDECREF(found->stream);
  Py_XDECREF(found->mask);
}

/* NumPy parses the type string ("<f4"); types without a gpuf_dtype are refused. */
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

static int parse_shape(PyObject *shape, gpuf_tensor *tensor) {
  if (!shape) {
    PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ has no shape");
    return -1;
  }
  return gpufi_py_axes_any(shape, "__cuda_array_interface__'s shape", &tensor->ndim, tensor->shape);
}

/* Without strides the elements are in C order. */
static int parse_strides(PyObject *strides, PyObject *shape, gpuf_tensor *tensor) {
  if (strides) {
    return gpufi_py_axes(strides, "__cuda_array_interface__'s strides", tensor->ndim,
                         tensor->strides_nbytes);
  }
  int64_t stride = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    tensor->strides_nbytes[i] = stride;
    const int64_t extent = tensor->shape[i] > 0 ? tensor->shape[i] : 1;
    if (__builtin_mul_overflow(stride, extent, &stride)) {
      PyErr_Format(PyExc_ValueError, "shape %S is too large", shape);
      return -1;
    }
  }
  return 0;
}

/* Say which integer it is that does not fit into 64 bits. */
static int name_overflow(PyObject *value, const char *what) {
  if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Format(PyExc_ValueError,
                 "__cuda_array_interface__ has %s %R, which is no address of 64 bits", what, value);
  }
  return -1;
}

static int parse_data(PyObject *data, gpufi_py_import *import) {
  if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
    PyErr_SetString(PyExc_TypeError,
                    "__cuda_array_interface__ has no (pointer, read-only) as its data");
    return -1;
  }
  import->tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  if (PyErr_Occurred()) {
    return name_overflow(PyTuple_GetItem(data, 0), "the pointer");
  }
  const int readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1));
  import->readonly = readonly > 0;
  return readonly < 0 ? -1 : 0;
}

/* The interface says that no stream means no pending work, but Numba gives none for arrays that a
 * kernel on the default stream still writes. Waiting for the default stream costs little. */
static int parse_stream(PyObject *stream, gpuf_stream *result) {
  *result = GPUF_STREAM_LEGACY;
  if (!stream) {
    return 0;
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(stream);
  if (PyErr_Occurred()) {
    return name_overflow(stream, "stream");
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

/* The interface does not name the device, but the driver knows it from the pointer. A pointer that
 * it does not know is given to the first GPU, whose copy refuses it; so is that of an empty array.
 */
static void find_device(gpuf_tensor *tensor) {
  if (!tensor->data || gpuf_device_of(tensor->data, &tensor->device, NULL) != GPUF_OK) {
    tensor->device = (gpuf_device){GPUF_DEVICE_CUDA, 0};
  }
  if (tensor->device.kind != GPUF_DEVICE_CUDA) {
    tensor->stream = GPUF_STREAM_NONE; /* the interface's streams are CUDA's */
  }
}

static int parse(const gpufi_py_state *state, const entries *found, gpufi_py_import *import) {
  gpuf_tensor *tensor = &import->tensor;
  if (found->mask) {
    PyErr_SetString(PyExc_TypeError,
                    "a masked array is not supported: pass the data and the mask apart");
    return -1;
  }
  if (parse_typestr(state, found->typestr, &tensor->dtype) < 0 ||
      parse_shape(found->shape, tensor) < 0 ||
      parse_strides(found->strides, found->shape, tensor) < 0 ||
      parse_data(found->data, import) < 0 || parse_stream(found->stream, &tensor->stream) < 0) {
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
  entries found;
  const int status =
      take_entries(state, dict, &found) < 0 || parse(state, &found, import) < 0 ? -1 : 0;
  release_entries(&found);
  Py_DECREF(dict);
  if (status < 0) {
    return -1;
  }
  Py_INCREF(object);
  import->keepalive = object;
  return 1;
}
