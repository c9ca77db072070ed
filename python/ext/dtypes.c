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

/* The gpuf_dtype whose name stands in the str `text` from `start` on, or 0. */
static gpuf_dtype dtype_of_name(PyObject *text, Py_ssize_t start) {
  PyObject *name = PyUnicode_Substring(text, start, PY_SSIZE_T_MAX);
  gpuf_dtype found = (gpuf_dtype)0;
  for (int dtype = 1; name && dtype <= GPUF_DTYPE_MAX && !found; dtype++) {
    if (PyUnicode_CompareWithASCIIString(name, gpuf_dtype_name((gpuf_dtype)dtype)) == 0) {
      found = (gpuf_dtype)dtype;
    }
  }
  Py_XDECREF(name);
  return found;
}

/* A dtype of PyTorch's, whose str() is "torch.float32". */
static bool is_torch_dtype(PyObject *object) {
  PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
  PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
  const bool found = name && module && PyUnicode_Check(name) && PyUnicode_Check(module) &&
                     PyUnicode_CompareWithASCIIString(name, "dtype") == 0 &&
                     PyUnicode_CompareWithASCIIString(module, "torch") == 0;
  PyErr_Clear();
  Py_XDECREF(name);
  Py_XDECREF(module);
  return found;
}

static int parse_torch(PyObject *object, gpuf_dtype *dtype) {
  PyObject *text = PyObject_Str(object);
  if (!text) {
    return -1;
  }
  *dtype = dtype_of_name(text, (Py_ssize_t)strlen("torch."));
  Py_DECREF(text);
  if (!*dtype) {
    PyErr_Format(PyExc_TypeError,
                 "dtype %S is not supported; use one of bool, the integers, float16 to float64, "
                 "complex64, complex128, bfloat16 and the float8 types",
                 object);
    return -1;
  }
  return 0;
}

static int parse_numpy(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype) {
  PyArray_Descr *descr = NULL;
  if (PyArray_DescrConverter(object, &descr) != NPY_SUCCEED) {
    return -1;
  }
  const int status = gpufi_py_dtype_from_descr(state, (PyObject *)descr, dtype);
  Py_DECREF(descr);
  return status;
}

/* TensorFlow's dtypes have the NumPy type as an attribute. 1 if `object` is such a one, 0 if not.
 */
static int parse_tensorflow(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype) {
  PyObject *numpy_type = PyObject_GetAttrString(object, "as_numpy_dtype");
  if (!numpy_type) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return -1;
    }
    PyErr_Clear();
    return 0;
  }
  const int status = parse_numpy(state, numpy_type, dtype);
  Py_DECREF(numpy_type);
  return status < 0 ? -1 : 1;
}

int gpufi_py_dtype_parse(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype) {
  *dtype = (gpuf_dtype)0;
  if (PyUnicode_Check(object)) { /* NumPy knows "bfloat16" only as long as ml_dtypes tells it */
    *dtype = dtype_of_name(object, 0);
    return *dtype ? 0 : parse_numpy(state, object, dtype);
  }
  if (is_torch_dtype(object)) {
    return parse_torch(object, dtype);
  }
  const int is_tensorflow = PyType_Check(object) ? 0 : parse_tensorflow(state, object, dtype);
  return is_tensorflow < 0 ? -1 : is_tensorflow > 0 ? 0 : parse_numpy(state, object, dtype);
}
