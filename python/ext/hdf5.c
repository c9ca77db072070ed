/* HDF5 for gpufetch/hdf5.py: identifiers are ints, h5py's lock is an argument. */
#include "hdf5.h"

#include <gpufetch/hdf5.h>

/* --- h5py's lock ------------------------------------------------------------- */

/* Only exhausted memory can make the call fail; HDF5 must not be entered then, so try again. */
static void call_until_done(PyObject *method) {
  PyObject *result;
  while (!(result = PyObject_CallNoArgs(method))) {
    PyErr_Clear();
  }
  Py_DECREF(result);
}

static void lock_h5py(void *arg) {
  gpufi_py_h5_lock *lock = arg;
  PyEval_RestoreThread(lock->thread);
  call_until_done(lock->acquire);
  lock->thread = PyEval_SaveThread();
}

static void unlock_h5py(void *arg) {
  gpufi_py_h5_lock *lock = arg;
  PyEval_RestoreThread(lock->thread);
  call_until_done(lock->release);
  lock->thread = PyEval_SaveThread();
}

static int lock_init(gpufi_py_h5_lock *lock, gpuf_h5_options *options, PyObject *phil) {
  lock->acquire = PyObject_GetAttrString(phil, "acquire");
  lock->release = lock->acquire ? PyObject_GetAttrString(phil, "release") : NULL;
  if (!lock->release) {
    Py_CLEAR(lock->acquire);
    return -1;
  }
  options->lock = lock_h5py;
  options->unlock = unlock_h5py;
  options->lock_arg = lock;
  return 0;
}

static void lock_fini(gpufi_py_h5_lock *lock) {
  Py_CLEAR(lock->acquire);
  Py_CLEAR(lock->release);
}

/* --- Binding ------------------------------------------------------------------ */

static PyObject *h5_bind(PyObject *module, PyObject *args) {
  const char *path;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "s:h5_bind", &path)) {
    return NULL;
  }
  if (gpuf_h5_bind(path, &err) != GPUF_OK || gpuf_h5_filter_register(&err) != GPUF_OK) {
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  Py_RETURN_NONE;
}

/* --- Writing ------------------------------------------------------------------- */

/* Fill `chunk` from a tuple of ints, one for each of the tensor's axes. */
static int parse_chunks(PyObject *chunks, int32_t ndim, int64_t *chunk) {
  const Py_ssize_t count = PyTuple_Size(chunks);
  if (count < 0) {
    return -1;
  }
  if (count != ndim) {
    PyErr_Format(PyExc_ValueError, "chunks has %zd values but x has %d axes: give one for each",
                 count, (int)ndim);
    return -1;
  }
  for (Py_ssize_t axis = 0; axis < count; axis++) {
    PyObject *item = PyNumber_Index(PyTuple_GetItem(chunks, axis));
    if (!item) {
      return -1;
    }
    chunk[axis] = PyLong_AsLongLong(item);
    Py_DECREF(item);
    if (chunk[axis] == -1 && PyErr_Occurred()) {
      return -1;
    }
  }
  return 0;
}

static PyObject *h5_write(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  long long location;
  const char *name;
  PyObject *x, *chunks, *phil;
  int plain;
  int64_t chunk[GPUF_NDIM_MAX];
  gpuf_h5_options options = {0};
  gpufi_py_h5_lock lock = {0};
  gpufi_py_import import = {0};
  gpuf_status status;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "LsOOpO:h5_write", &location, &name, &x, &chunks, &plain, &phil) ||
      gpufi_py_adapter_import(state, x, &import) < 0) {
    return NULL;
  }
  options.codec = plain ? GPUF_H5_CODEC_NONE : GPUF_H5_CODEC_GPUFETCH;
  options.chunk_shape = chunks == Py_None ? NULL : chunk;
  if ((options.chunk_shape && parse_chunks(chunks, import.tensor.ndim, chunk) < 0) ||
      lock_init(&lock, &options, phil) < 0) {
    gpufi_py_import_clear(&import);
    return NULL;
  }
  lock.thread = PyEval_SaveThread();
  status = gpuf_h5_write(location, name, &import.tensor, &options, &err);
  PyEval_RestoreThread(lock.thread);
  lock_fini(&lock);
  gpufi_py_import_clear(&import);
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  Py_RETURN_NONE;
}

/* --- Reading -------------------------------------------------------------------- */

/* A fresh ndarray, or DeviceArray, for what `tensor` describes; sets its data and strides. */
static PyObject *create_array(const gpufi_py_state *state, gpuf_tensor *tensor) {
  PyObject *descr = state->descrs[tensor->dtype];
  npy_intp dims[GPUF_NDIM_MAX];
  PyObject *array;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    dims[axis] = (npy_intp)tensor->shape[axis];
  }
  Py_INCREF(descr); /* stolen */
  array = PyArray_Empty(tensor->ndim, dims, (PyArray_Descr *)descr, 0);
  if (array && gpufi_py_tensor_from_array(state, array, tensor) < 0) {
    Py_CLEAR(array);
  }
  return array;
}

static PyObject *create_device_array(const gpufi_py_state *state, gpuf_tensor *tensor,
                                     gpuf_device device) {
  int64_t shape[GPUF_NDIM_MAX];
  void *d_data = NULL;
  PyObject *array = NULL;
  gpuf_error err;
  memcpy(shape, tensor->shape, sizeof(shape));
  if (gpuf_alloc(device, gpuf_tensor_nbytes(tensor), &d_data, &err) != GPUF_OK ||
      gpuf_tensor_init(tensor, d_data, device, tensor->dtype, tensor->ndim, shape, &err) !=
          GPUF_OK) {
    gpufi_py_raise(state, &err);
  } else {
    array = gpufi_py_device_array_create(state, tensor, false, NULL);
  }
  if (array) {
    ((gpufi_py_device_array *)array)->d_owned = d_data;
  } else {
    gpuf_free(device, d_data, NULL);
  }
  return array;
}

/* The destination as the caller gave it: any writable tensor. */
static int import_out(gpufi_py_state *state, PyObject *out, gpufi_py_import *import) {
  if (gpufi_py_adapter_import(state, out, import) < 0) {
    return -1;
  }
  if (import->readonly) {
    gpufi_py_import_clear(import);
    PyErr_SetString(PyExc_ValueError, "out is read-only: give a writable array");
    return -1;
  }
  return 0;
}

static PyObject *describe_and_create(gpufi_py_state *state, long long dataset, PyObject *device,
                                     const gpufi_py_h5_lock *lock, gpuf_tensor *tensor) {
  gpuf_device where;
  gpuf_status status;
  gpuf_error err;
  memset(tensor, 0, sizeof(*tensor));
  if (gpufi_py_device_parse(state, device, &where) < 0 || gpufi_py_device_check(state, where) < 0) {
    return NULL;
  }
  call_until_done(lock->acquire);
  status = gpuf_h5_describe(dataset, tensor, &err);
  call_until_done(lock->release);
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  return where.kind == GPUF_DEVICE_CPU ? create_array(state, tensor)
                                       : create_device_array(state, tensor, where);
}

static PyObject *h5_read(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  long long dataset;
  PyObject *device, *out, *phil;
  PyObject *result = NULL;
  gpuf_tensor tensor;
  gpuf_h5_options options = {0};
  gpufi_py_h5_lock lock = {0};
  gpufi_py_import import = {0};
  gpuf_status status;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "LOOO:h5_read", &dataset, &device, &out, &phil)) {
    return NULL;
  }
  if (lock_init(&lock, &options, phil) < 0) {
    return NULL;
  }
  if (out == Py_None) {
    result = describe_and_create(state, dataset, device, &lock, &tensor);
  } else if (import_out(state, out, &import) == 0) {
    tensor = import.tensor;
    result = out;
    Py_INCREF(result);
  }
  if (!result) {
    lock_fini(&lock);
    return NULL;
  }
  lock.thread = PyEval_SaveThread();
  status = gpuf_h5_read_dataset(dataset, &tensor, &options, &err);
  PyEval_RestoreThread(lock.thread);
  lock_fini(&lock);
  gpufi_py_import_clear(&import);
  if (status != GPUF_OK) {
    Py_CLEAR(result);
    return gpufi_py_raise(state, &err);
  }
  return result;
}

PyMethodDef gpufi_py_hdf5_methods[] = {
    {"h5_bind", h5_bind, METH_VARARGS,
     "h5_bind(path, /)\n--\n\nUse the libhdf5 that the extension module at `path` uses, and "
     "register the filter with it."},
    {"h5_write", h5_write, METH_VARARGS,
     "h5_write(location, name, x, chunks, plain, phil, /)\n--\n\nCreate a dataset."},
    {"h5_read", h5_read, METH_VARARGS,
     "h5_read(dataset, device, out, phil, /)\n--\n\nRead a whole dataset."},
    {NULL, NULL, 0, NULL},
};
