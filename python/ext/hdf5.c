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

/* Fill `values` from a tuple of ints, one for each axis. */
static int parse_axes(PyObject *tuple, const char *name, int32_t ndim, int64_t *values) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0) {
    return -1;
  }
  if (count != ndim) {
    PyErr_Format(PyExc_ValueError, "%s has %zd values but there are %d axes: give one for each",
                 name, count, (int)ndim);
    return -1;
  }
  for (Py_ssize_t axis = 0; axis < count; axis++) {
    PyObject *item = PyNumber_Index(PyTuple_GetItem(tuple, axis));
    if (!item) {
      return -1;
    }
    values[axis] = PyLong_AsLongLong(item);
    Py_DECREF(item);
    if (values[axis] == -1 && PyErr_Occurred()) {
      return -1;
    }
  }
  return 0;
}

/* Back from the library: the GIL, what was held for the call, and its outcome. */
static PyObject *write_end(const gpufi_py_state *state, gpufi_py_h5_lock *lock,
                           gpufi_py_import *import, gpuf_status status, const gpuf_error *err) {
  PyEval_RestoreThread(lock->thread);
  lock_fini(lock);
  gpufi_py_import_clear(import);
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, err);
  }
  Py_RETURN_NONE;
}

static PyObject *h5_write(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  long long location;
  const char *name;
  PyObject *x, *chunks, *phil;
  int codec;
  int64_t chunk[GPUF_NDIM_MAX];
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  gpufi_py_h5_lock lock = {0};
  gpufi_py_import import = {0};
  gpuf_status status;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "LsOOiO:h5_write", &location, &name, &x, &chunks, &codec, &phil) ||
      gpufi_py_adapter_import(state, x, &import) < 0) {
    return NULL;
  }
  options.codec = (gpuf_h5_codec)codec;
  options.chunk_shape = chunks == Py_None ? NULL : chunk;
  if ((options.chunk_shape && parse_axes(chunks, "chunks", import.tensor.ndim, chunk) < 0) ||
      lock_init(&lock, &options, phil) < 0) {
    gpufi_py_import_clear(&import);
    return NULL;
  }
  lock.thread = PyEval_SaveThread();
  status = gpuf_h5_write(location, name, &import.tensor, &options, &err);
  return write_end(state, &lock, &import, status, &err);
}

static PyObject *h5_write_region(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  long long dataset;
  PyObject *start_arg, *x, *phil;
  int64_t start[GPUF_NDIM_MAX];
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  gpufi_py_h5_lock lock = {0};
  gpufi_py_import import = {0};
  gpuf_status status;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "LO!OO:h5_write_region", &dataset, &PyTuple_Type, &start_arg, &x,
                        &phil) ||
      gpufi_py_adapter_import(state, x, &import) < 0) {
    return NULL;
  }
  if (parse_axes(start_arg, "start", import.tensor.ndim, start) < 0 ||
      lock_init(&lock, &options, phil) < 0) {
    gpufi_py_import_clear(&import);
    return NULL;
  }
  lock.thread = PyEval_SaveThread();
  status = gpuf_h5_write_region(dataset, start, &import.tensor, &options, &err);
  return write_end(state, &lock, &import, status, &err);
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

/* A part of the dataset: an axis whose length is -1 has one element, and the result lacks it. */
typedef struct region {
  bool given; /* else all of the dataset */
  int32_t ndim;
  int64_t start[GPUF_NDIM_MAX];
  int64_t shape[GPUF_NDIM_MAX];
} region;

static int region_parse(PyObject *arg, region *part) {
  PyObject *start, *shape;
  memset(part, 0, sizeof(*part));
  if (arg == Py_None) {
    return 0;
  }
  if (!PyArg_ParseTuple(arg, "O!O!:region", &PyTuple_Type, &start, &PyTuple_Type, &shape)) {
    return -1;
  }
  part->given = true;
  part->ndim = PyTuple_Size(shape) <= GPUF_NDIM_MAX ? (int32_t)PyTuple_Size(shape) : 0;
  return parse_axes(start, "start", part->ndim, part->start) < 0 ||
                 parse_axes(shape, "shape", part->ndim, part->shape) < 0
             ? -1
             : 0;
}

/* Make `tensor` of the result's shape, which lacks the region's axes of -1. */
static void region_narrow(const region *part, gpuf_tensor *tensor) {
  if (part->given) {
    tensor->ndim = 0;
    for (int32_t axis = 0; axis < part->ndim; axis++) {
      if (part->shape[axis] >= 0) {
        tensor->shape[tensor->ndim++] = part->shape[axis];
      }
    }
  }
}

static int32_t region_missing_count(const region *part) {
  int32_t count = 0;
  for (int32_t axis = 0; axis < part->ndim; axis++) {
    count += part->shape[axis] < 0;
  }
  return count;
}

/* Put the missing axes back into `tensor`, which must have the result's shape. */
static int region_widen(const region *part, gpuf_tensor *tensor) {
  gpuf_tensor wide = *tensor;
  int32_t used = 0;
  if (!part->given) {
    return 0;
  }
  if (tensor->ndim != part->ndim - region_missing_count(part)) {
    PyErr_Format(PyExc_ValueError, "out has %d axes, which is not what the selection gives",
                 (int)tensor->ndim);
    return -1;
  }
  for (int32_t axis = 0; axis < part->ndim; axis++) {
    if (part->shape[axis] < 0) {
      wide.shape[axis] = 1;
      wide.strides_nbytes[axis] = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
      continue;
    }
    wide.shape[axis] = tensor->shape[used];
    wide.strides_nbytes[axis] = tensor->strides_nbytes[used++];
    if (wide.shape[axis] != part->shape[axis]) {
      PyErr_Format(PyExc_ValueError, "axis %d of out has %lld elements, and the selection %lld",
                   (int)used - 1, (long long)wide.shape[axis], (long long)part->shape[axis]);
      return -1;
    }
  }
  wide.ndim = part->ndim;
  *tensor = wide;
  return 0;
}

static PyObject *describe_and_create(gpufi_py_state *state, long long dataset, const region *part,
                                     PyObject *device, const gpufi_py_h5_lock *lock,
                                     gpuf_tensor *tensor) {
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
  region_narrow(part, tensor);
  return where.kind == GPUF_DEVICE_CPU ? create_array(state, tensor)
                                       : create_device_array(state, tensor, where);
}

static PyObject *h5_read(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  long long dataset;
  PyObject *region_arg, *device, *out, *phil;
  PyObject *result = NULL;
  region part;
  gpuf_tensor tensor;
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  gpufi_py_h5_lock lock = {0};
  gpufi_py_import import = {0};
  gpuf_status status;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "LOOOO:h5_read", &dataset, &region_arg, &device, &out, &phil) ||
      region_parse(region_arg, &part) < 0) {
    return NULL;
  }
  if (lock_init(&lock, &options, phil) < 0) {
    return NULL;
  }
  if (out == Py_None) {
    result = describe_and_create(state, dataset, &part, device, &lock, &tensor);
  } else if (import_out(state, out, &import) == 0) {
    tensor = import.tensor;
    result = out;
    Py_INCREF(result);
  }
  if (result && region_widen(&part, &tensor) < 0) {
    gpufi_py_import_clear(&import);
    Py_CLEAR(result);
  }
  if (!result) {
    lock_fini(&lock);
    return NULL;
  }
  lock.thread = PyEval_SaveThread();
  status = gpuf_h5_read_region(dataset, part.given ? part.start : NULL, &tensor, &options, &err);
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
     "h5_write(location, name, x, chunks, codec, phil, /)\n--\n\nCreate a dataset."},
    {"h5_write_region", h5_write_region, METH_VARARGS,
     "h5_write_region(dataset, start, x, phil, /)\n--\n\nOverwrite a part of a dataset."},
    {"h5_read", h5_read, METH_VARARGS,
     "h5_read(dataset, region, device, out, phil, /)\n--\n\nRead a dataset, or its region (start, "
     "shape)."},
    {NULL, NULL, 0, NULL},
};
