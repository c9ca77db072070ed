/* NumPy arrays and tensors in CPU memory. */
#include "arrays.h"

#include "dtypes.h"

/* A MaskedArray's data without its mask would be a wrong answer. */
int gpufi_py_refuse_masked(PyObject *array) {
  if (PyArray_CheckExact(array) || !PyObject_HasAttrString(array, "_mask")) {
    return 0;
  }
  PyErr_SetString(PyExc_TypeError,
                  "a masked array is not supported: pass x.filled(value), or x.data and the mask "
                  "apart");
  return -1;
}

int gpufi_py_tensor_from_array(const gpufi_py_state *state, PyObject *object, gpuf_tensor *tensor) {
  PyArrayObject *array = (PyArrayObject *)object;
  gpuf_dtype dtype;
  if (gpufi_py_refuse_masked(object) < 0) { /* runs a subclass's code, which may change the array */
    return -1;
  }
  const int ndim = PyArray_NDIM(array);
  PyObject *descr = Py_NewRef((PyObject *)PyArray_DESCR(array));
  const int status = gpufi_py_dtype_from_descr(state, descr, &dtype);
  Py_DECREF(descr);
  if (status < 0) {
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

/* `shape` for NumPy, whose npy_intp is another type of the same 64 bits. */
static void to_npy(const int64_t *values, int32_t count, npy_intp *result) {
  for (int32_t i = 0; i < count; i++) {
    result[i] = (npy_intp)values[i];
  }
}

/* `strides` and `data` may be NULL, as PyArray_NewFromDescr has them. */
static PyObject *new_array(const gpufi_py_state *state, gpuf_dtype dtype, int32_t ndim,
                           npy_intp *shape, npy_intp *strides, void *data) {
  PyArray_Descr *descr = (PyArray_Descr *)Py_NewRef(state->descrs[dtype]); /* stolen */
  return PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, data,
                              data ? NPY_ARRAY_DEFAULT : 0, NULL);
}

PyObject *gpufi_py_array_create(const gpufi_py_state *state, gpuf_dtype dtype, int32_t ndim,
                                const int64_t *shape) {
  npy_intp dims[GPUF_NDIM_MAX];
  to_npy(shape, ndim, dims);
  return new_array(state, dtype, ndim, dims, NULL, NULL);
}

PyObject *gpufi_py_array_over(const gpufi_py_state *state, const gpuf_tensor *tensor,
                              PyObject *owner) {
  npy_intp shape[GPUF_NDIM_MAX], strides[GPUF_NDIM_MAX];
  to_npy(tensor->shape, tensor->ndim, shape);
  to_npy(tensor->strides_nbytes, tensor->ndim, strides);
  /* Without strides NumPy marks the array as contiguous at once. */
  const bool in_c_order = gpuf_tensor_is_contiguous(tensor);
  PyObject *array = new_array(state, tensor->dtype, tensor->ndim, shape,
                              in_c_order ? NULL : strides, tensor->data);
  if (!array) {
    Py_DECREF(owner);
    return NULL;
  }
  if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) { /* steals owner */
    Py_DECREF(array);
    return NULL;
  }
  return array;
}
