/* Element types, NumPy arrays and device names in both directions. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gpufi_py_dtypes_init(gpufi_py_state *state) {
  PyObject *ml_dtypes = PyImport_ImportModule("ml_dtypes");
  if (!ml_dtypes) {
    return -1;
  }
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    const char *name = gpuf_dtype_name((gpuf_dtype)dtype);
    PyArray_Descr *descr = NULL;
    PyObject *source = NULL;
    if (dtype == GPUF_DTYPE_BFLOAT16 || dtype >= GPUF_DTYPE_FLOAT8_E3M4) {
      source = PyObject_GetAttrString(ml_dtypes, name);
    } else {
      source = PyUnicode_FromString(name);
    }
    if (source && PyArray_DescrConverter(source, &descr) == NPY_SUCCEED) {
      state->descrs[dtype] = (PyObject *)descr;
    }
    Py_XDECREF(source);
    if (!state->descrs[dtype]) {
      Py_DECREF(ml_dtypes);
      return -1;
    }
  }
  Py_DECREF(ml_dtypes);
  return 0;
}

/* The gpuf_dtype of NumPy's own type of `kind` and `nbytes`, or 0. */
static int dtype_of_kind(char kind, npy_intp nbytes) {
  switch (kind) {
  case 'b':
    return GPUF_DTYPE_BOOL;
  case 'i':
  case 'u': {
    const int first = kind == 'i' ? GPUF_DTYPE_INT8 : GPUF_DTYPE_UINT8;
    return nbytes == 1 ? first : nbytes == 2 ? first + 1 : nbytes == 4 ? first + 2 : first + 3;
  }
  case 'f':
    return nbytes == 2   ? GPUF_DTYPE_FLOAT16
           : nbytes == 4 ? GPUF_DTYPE_FLOAT32
           : nbytes == 8 ? GPUF_DTYPE_FLOAT64
                         : 0;
  case 'c':
    return nbytes == 8 ? GPUF_DTYPE_COMPLEX64 : nbytes == 16 ? GPUF_DTYPE_COMPLEX128 : 0;
  default:
    return 0;
  }
}

int gpufi_py_dtype_from_descr(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype) {
  const PyArray_Descr *descr = (const PyArray_Descr *)object;
  int found = 0;
  if (PyTypeNum_ISUSERDEF(descr->type_num)) {
    for (int i = GPUF_DTYPE_BFLOAT16; i <= GPUF_DTYPE_MAX && !found; i++) {
      if (((PyArray_Descr *)state->descrs[i])->type_num == descr->type_num) {
        found = i;
      }
    }
  } else if (PyTypeNum_ISNUMBER(descr->type_num) || PyTypeNum_ISBOOL(descr->type_num)) {
    found = dtype_of_kind(descr->kind, PyDataType_ELSIZE(descr));
  }
  if (!found) {
    PyErr_Format(PyExc_TypeError,
                 "dtype %S is not supported; convert with astype to bool, an integer, float16 to "
                 "float64, complex64, complex128, or ml_dtypes' bfloat16 or float8",
                 object);
    return -1;
  }
  if (!PyArray_ISNBO(descr->byteorder)) {
    PyErr_Format(PyExc_TypeError,
                 "dtype %S is not in native byte order; convert with "
                 "astype(dtype.newbyteorder('='))",
                 object);
    return -1;
  }
  *dtype = (gpuf_dtype)found;
  return 0;
}

/* A MaskedArray's data without its mask would be a wrong answer. */
static int refuse_masked(PyObject *array) {
  if (PyArray_CheckExact(array) || !PyObject_HasAttrString(array, "_mask")) {
    return 0;
  }
  PyErr_SetString(PyExc_TypeError,
                  "a masked array is not supported: pass x.filled(value), or x.data and the mask "
                  "apart");
  return -1;
}

int gpufi_py_dtype_parse(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype) {
  PyArray_Descr *descr = NULL;
  if (PyArray_DescrConverter(object, &descr) != NPY_SUCCEED) {
    return -1;
  }
  const int status = gpufi_py_dtype_from_descr(state, (PyObject *)descr, dtype);
  Py_DECREF(descr);
  return status;
}

int gpufi_py_tensor_from_array(const gpufi_py_state *state, PyObject *object, gpuf_tensor *tensor) {
  PyArrayObject *array = (PyArrayObject *)object;
  const int ndim = PyArray_NDIM(array);
  gpuf_dtype dtype;
  if (refuse_masked(object) < 0 ||
      gpufi_py_dtype_from_descr(state, (PyObject *)PyArray_DESCR(array), &dtype) < 0) {
    return -1;
  }
  if (ndim > GPUF_NDIM_MAX) {
    PyErr_Format(PyExc_ValueError, "an array of %d dimensions is not supported: the limit is %d",
                 ndim, GPUF_NDIM_MAX);
    return -1;
  }
  tensor->data = PyArray_DATA(array);
  tensor->device = (gpuf_device){GPUF_DEVICE_CPU, 0};
  tensor->dtype = dtype;
  tensor->ndim = ndim;
  tensor->stream = GPUF_STREAM_NONE;
  for (int i = 0; i < ndim; i++) {
    tensor->shape[i] = PyArray_DIM(array, i);
    tensor->strides_nbytes[i] = PyArray_STRIDE(array, i);
  }
  return 0;
}

PyObject *gpufi_py_tuple_of(const int64_t *values, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; i++) {
    PyObject *item = PyLong_FromLongLong(values[i]);
    if (!item) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SetItem(tuple, i, item);
  }
  return tuple;
}

/* --- Devices --------------------------------------------------------------- */

const char *gpufi_py_device_text(gpuf_device device, char *text) {
  if (device.kind == GPUF_DEVICE_CPU) {
    return "cpu";
  }
  snprintf(text, 32, "%s:%d", gpuf_device_kind_name(device.kind), (int)device.index);
  return text;
}

/* Parse "kind" or "kind:index" of at most nine digits. */
static int parse_device_text(const char *text, gpuf_device *device) {
  static const gpuf_device_kind kinds[] = {GPUF_DEVICE_CPU, GPUF_DEVICE_CUDA, GPUF_DEVICE_HOST};
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    const char *name = gpuf_device_kind_name(kinds[i]);
    const size_t length = strlen(name);
    if (strncmp(text, name, length) != 0) {
      continue;
    }
    const char *digits = text + length;
    *device = (gpuf_device){kinds[i], 0};
    if (*digits == '\0') {
      return 0;
    }
    const size_t digit_count = strlen(digits + 1);
    if (*digits != ':' || kinds[i] == GPUF_DEVICE_CPU || digit_count == 0 || digit_count > 9 ||
        strspn(digits + 1, "0123456789") != digit_count) {
      return -1;
    }
    device->index = (int32_t)strtol(digits + 1, NULL, 10);
    return 0;
  }
  return -1;
}

int gpufi_py_device_parse(const gpufi_py_state *state, PyObject *object, gpuf_device *device) {
  if (!object || object == Py_None) {
    gpuf_error err;
    if (gpuf_device_default(device, &err) != GPUF_OK) {
      gpufi_py_raise(state, &err);
      return -1;
    }
    return 0;
  }
  const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  if (!text || parse_device_text(text, device) < 0) {
    PyErr_Format(text ? PyExc_ValueError : PyExc_TypeError,
                 "device %R is not understood: use \"cuda:0\", \"host:0\" or \"cpu\"", object);
    return -1;
  }
  return 0;
}

int gpufi_py_device_check(const gpufi_py_state *state, gpuf_device device) {
  gpuf_error err;
  int32_t count = 0;
  char text[32];
  if (device.kind == GPUF_DEVICE_CPU) {
    return 0;
  }
  if (gpuf_device_count(device.kind, &count, &err) != GPUF_OK) {
    gpufi_py_raise(state, &err);
    return -1;
  }
  if (device.index < 0 || device.index >= count) {
    PyErr_Format(PyExc_ValueError, "device %s does not exist: there %s %d of that kind",
                 gpufi_py_device_text(device, text), count == 1 ? "is" : "are", (int)count);
    return -1;
  }
  return 0;
}
