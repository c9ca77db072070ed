/* Element types in both directions. */
#include "dtypes.h"

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

int gpufi_py_dtype_parse(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype) {
  PyArray_Descr *descr = NULL;
  if (PyArray_DescrConverter(object, &descr) != NPY_SUCCEED) {
    return -1;
  }
  const int status = gpufi_py_dtype_from_descr(state, (PyObject *)descr, dtype);
  Py_DECREF(descr);
  return status;
}
