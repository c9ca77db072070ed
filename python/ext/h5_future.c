/* Asynchronous writes for gpufetch.hdf5. */
#include <gpufetch/hdf5.h>

#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "arguments.h"
#include "errors.h"
#include "h5py_lock.h"
#include "handle.h"
#include "interpreter.h"
#include "methods.h"

static const char write_kind[] = "gpufetch.write";

/* What a handle holds. Used alone. */
typedef struct async_write {
  gpufi_py_h5py_lock lock;
  gpufi_py_import import; /* until the tensor was copied */
  gpuf_h5_options options;
  gpuf_h5_future *future; /* NULL until the write has begun */
} async_write;

/* Without the GIL, which this takes for h5py's lock and for the tensor's owner. */
static void destroy_write(void *object) {
  async_write *const w = object;
  const PyGILState_STATE gil = PyGILState_Ensure();
  const gpufi_py_exception set = gpufi_py_exception_take();
  gpufi_py_h5py_lock_leave_gil(&w->lock);
  gpuf_h5_future_destroy(w->future);
  gpufi_py_h5py_lock_enter_gil(&w->lock);
  if (PyErr_Occurred()) { /* by a file object */
    PyErr_WriteUnraisable(NULL);
  }
  gpufi_py_import_clear(&w->import);
  gpufi_py_h5py_lock_fini(&w->lock);
  free(w);
  gpufi_py_exception_restore(set);
  PyGILState_Release(gil);
}

/* A write of `x` that has not begun; NULL with an exception. */
static async_write *create_write(PyObject *module, PyObject *phil, PyObject *x, size_t max_nbytes) {
  async_write *const w = calloc(1, sizeof(*w));
  if (!w) {
    PyErr_NoMemory();
    return NULL;
  }
  w->options = (gpuf_h5_options)GPUF_H5_OPTIONS_INIT;
  w->options.async_max_nbytes = max_nbytes;
  if (gpufi_py_h5py_lock_init(&w->lock, phil, &w->options) < 0) {
    free(w);
    return NULL;
  }
  if (gpufi_py_adapter_import(gpufi_py_state_of_module(module), x, &w->import) < 0) {
    gpufi_py_h5py_lock_fini(&w->lock);
    free(w);
    return NULL;
  }
  return w;
}

static void free_write(async_write *w) {
  gpufi_py_import_clear(&w->import);
  gpufi_py_h5py_lock_fini(&w->lock);
  free(w);
}

/* The capsule of a write that has begun, or the exception for its failure. */
static PyObject *begun(PyObject *module, async_write *w, gpuf_status status,
                       const gpuf_error *err) {
  if (status != GPUF_OK) {
    free_write(w);
    return gpufi_py_raise(gpufi_py_state_of_module(module), err);
  }
  w->options.chunk_shape = NULL;
  PyObject *capsule = gpufi_py_handle_create(write_kind, w, destroy_write);
  if (PyErr_Occurred()) { /* by a file object within the call */
    Py_CLEAR(capsule);
  }
  return capsule;
}

PyDoc_STRVAR(h5_write_async_doc,
             "h5_write_async(phil, location, name, x, chunks, codec, max_nbytes, /)\n--\n\n"
             "Begin to write x as the dataset `name`, as h5_write does; a capsule of the write.");

static PyObject *h5_write_async(PyObject *module, PyObject *args) {
  long long location;
  const char *name;
  PyObject *phil, *x, *chunks;
  int codec;
  Py_ssize_t max_nbytes;
  int64_t chunk[GPUF_NDIM_MAX];
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "OLsOOin:h5_write_async", &phil, &location, &name, &x, &chunks,
                        &codec, &max_nbytes)) {
    return NULL;
  }
  async_write *const w = create_write(module, phil, x, (size_t)max_nbytes);
  if (!w) {
    return NULL;
  }
  if (chunks != Py_None) {
    w->options.chunk_shape = chunk;
    if (gpufi_py_axes(chunks, "chunks", w->import.tensor.ndim, chunk) < 0) {
      free_write(w);
      return NULL;
    }
  }
  w->options.codec = (gpuf_h5_codec)codec;
  gpufi_py_h5py_lock_leave_gil(&w->lock);
  const gpuf_status status =
      gpuf_h5_write_async(location, name, &w->import.tensor, &w->options, &w->future, &err);
  gpufi_py_h5py_lock_enter_gil(&w->lock);
  return begun(module, w, status, &err);
}

/* Give `tensor` leading axes of one element, up to `ndim` axes. */
static int widen(gpuf_tensor *tensor, int32_t ndim) {
  const int32_t added = ndim - tensor->ndim;
  if (added < 0) {
    PyErr_Format(PyExc_ValueError, "start has %d indices, and x %d axes", (int)ndim,
                 (int)tensor->ndim);
    return -1;
  }
  for (int32_t axis = ndim - 1; axis >= 0; axis--) {
    tensor->shape[axis] = axis < added ? 1 : tensor->shape[axis - added];
    tensor->strides_nbytes[axis] = axis < added ? (int64_t)gpuf_dtype_nbytes(tensor->dtype)
                                                : tensor->strides_nbytes[axis - added];
  }
  tensor->ndim = ndim;
  return 0;
}

PyDoc_STRVAR(
    h5_write_region_async_doc,
    "h5_write_region_async(phil, dataset, start, x, max_nbytes, /)\n--\n\n"
    "Begin to overwrite the box of a dataset that begins at `start` and has x's shape,\n"
    "with leading axes of one element where x has fewer, or for None all of it; a capsule of\n"
    "the write.");

static PyObject *h5_write_region_async(PyObject *module, PyObject *args) {
  long long dataset;
  PyObject *phil, *start_arg, *x;
  Py_ssize_t max_nbytes;
  int64_t start[GPUF_NDIM_MAX];
  int32_t ndim;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "OLOOn:h5_write_region_async", &phil, &dataset, &start_arg, &x,
                        &max_nbytes)) {
    return NULL;
  }
  const bool is_whole = start_arg == Py_None;
  if (!is_whole && gpufi_py_axes_any(start_arg, "start", &ndim, start) < 0) {
    return NULL;
  }
  async_write *const w = create_write(module, phil, x, (size_t)max_nbytes);
  if (!w || (!is_whole && widen(&w->import.tensor, ndim) < 0)) {
    if (w) {
      free_write(w);
    }
    return NULL;
  }
  gpufi_py_h5py_lock_leave_gil(&w->lock);
  const gpuf_status status = gpuf_h5_write_region_async(
      dataset, is_whole ? NULL : start, &w->import.tensor, &w->options, &w->future, &err);
  gpufi_py_h5py_lock_enter_gil(&w->lock);
  return begun(module, w, status, &err);
}

PyDoc_STRVAR(
    h5_write_wait_doc,
    "h5_write_wait(write, timeout_ns, until_copied, /)\n--\n\n"
    "Hand to HDF5 what is ready, until all is, or, with `until_copied`, the tensor may be\n"
    "overwritten. False after the timeout, which is -1 for none; raises the failure.");

static PyObject *h5_write_wait(PyObject *module, PyObject *args) {
  PyObject *capsule;
  long long timeout_ns;
  int until_copied;
  gpuf_error err;
  gpufi_py_import copied = {.keepalive = NULL};
  gpuf_status status = GPUF_ERR_STATE;
  if (!PyArg_ParseTuple(args, "OLp:h5_write_wait", &capsule, &timeout_ns, &until_copied)) {
    return NULL;
  }
  gpufi_py_handle *const handle = gpufi_py_handle_of(capsule, write_kind);
  if (!handle) {
    return NULL;
  }
  PyThreadState *const thread = PyEval_SaveThread();
  async_write *const w = gpufi_py_handle_begin(handle, true, &err);
  if (w) {
    w->lock.thread = thread;
    status = until_copied ? gpuf_h5_future_wait_copied(w->future, timeout_ns, &err)
                          : gpuf_h5_future_wait(w->future, timeout_ns, &err);
    if (status != GPUF_ERR_TIMEOUT) {
      copied = w->import; /* whose owner may run Python code when it is released */
      w->import.keepalive = NULL;
    }
    gpufi_py_handle_end(handle, true);
  }
  gpufi_py_restore_thread(thread);
  gpufi_py_import_clear(&copied);
  if (PyErr_Occurred() || (status != GPUF_OK && status != GPUF_ERR_TIMEOUT)) {
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  return PyBool_FromLong(status == GPUF_OK);
}

PyDoc_STRVAR(h5_write_close_doc,
             "h5_write_close(write, /)\n--\n\n"
             "Give the write up where it is not finished. Does nothing where that was done.");

static PyObject *h5_write_close(PyObject *module, PyObject *capsule) {
  gpufi_py_handle *const handle = gpufi_py_handle_of(capsule, write_kind);
  if (!handle) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    async_write *const w = gpufi_py_handle_take(handle);
    if (w) {
      destroy_write(w);
    }
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyMethodDef gpufi_py_h5_future_methods[] = {
    {"h5_write_async", h5_write_async, METH_VARARGS, h5_write_async_doc},
    {"h5_write_region_async", h5_write_region_async, METH_VARARGS, h5_write_region_async_doc},
    {"h5_write_wait", h5_write_wait, METH_VARARGS, h5_write_wait_doc},
    {"h5_write_close", h5_write_close, METH_O, h5_write_close_doc},
    {0},
};
