/* HDF5 for gpufetch.hdf5: identifiers are ints, and h5py's lock is the first argument. */
#include <errno.h>
#include <fcntl.h>

#include "adapter.h"
#include "arguments.h"
#include "base/error.h"
#include "base/publish.h"
#include "base/system.h"
#include "devices.h"
#include "errors.h"
#include "h5py_lock.h"
#include "hdf5/access.h"
#include "hdf5/checkpoint/seal.h"
#include "hdf5/stored.h"
#include "methods.h"
#include "results.h"

/* --- Binding ------------------------------------------------------------- */

PyDoc_STRVAR(h5_bind_doc,
             "h5_bind(path, /)\n--\n\n"
             "Use the libhdf5 that the extension module at `path` is linked with, and register\n"
             "the filter with it. gpufetch.Error if there is none or another is bound.");

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

/* --- Files --------------------------------------------------------------- */

/* Without the GIL. */
static gpuf_status publish(gpufi_publication *publication, gpuf_error *err) {
  gpuf_status status;
  publication->fd = gpufi_open(publication->from, O_RDONLY, 0);
  if (publication->fd < 0) {
    return gpufi_fail_system(err, "opening", publication->from, errno);
  }
  publication->folder_fd = gpufi_open(publication->folder, O_RDONLY | O_DIRECTORY, 0);
  if (publication->folder_fd < 0) {
    status = gpufi_fail_system(err, "opening", publication->folder, errno);
  } else {
    status = gpufi_publish_file(publication, err);
    gpufi_close(publication->folder_fd);
  }
  gpufi_close(publication->fd);
  return status;
}

PyDoc_STRVAR(publish_file_doc,
             "publish_file(from_, to, folder, replaces, syncs, /)\n--\n\n"
             "Give a file that is complete its name in a folder, as checkpoints get theirs.");

static PyObject *publish_file(PyObject *module, PyObject *args) {
  gpufi_publication publication;
  PyObject *from = NULL, *to = NULL, *folder = NULL, *result = NULL;
  int replaces, syncs;
  gpuf_error err;
  gpuf_status status;
  if (PyArg_ParseTuple(args, "O&O&O&pp:publish_file", PyUnicode_FSConverter, &from,
                       PyUnicode_FSConverter, &to, PyUnicode_FSConverter, &folder, &replaces,
                       &syncs)) {
    publication = (gpufi_publication){
        .from = PyBytes_AsString(from),
        .to = PyBytes_AsString(to),
        .folder = PyBytes_AsString(folder),
        .replaces = replaces,
        .syncs = syncs,
    };
    Py_BEGIN_ALLOW_THREADS
      status = publish(&publication, &err);
    Py_END_ALLOW_THREADS
    result = gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
  }
  Py_XDECREF(from);
  Py_XDECREF(to);
  Py_XDECREF(folder);
  return result;
}

/* --- A call -------------------------------------------------------------- */

/* What every call into HDF5 has: the tensor that it reads or fills, and h5py's lock. */
typedef struct h5_call {
  gpufi_py_state *state;
  gpufi_py_import import; /* empty when a fresh result is filled */
  gpufi_py_h5py_lock lock;
  gpuf_h5_options options;
} h5_call;

static void call_fini(h5_call *call) {
  gpufi_py_h5py_lock_fini(&call->lock);
  gpufi_py_import_clear(&call->import);
}

static int call_init(h5_call *call, PyObject *module, PyObject *phil) {
  memset(call, 0, sizeof(*call));
  call->state = gpufi_py_state_of_module(module);
  call->options = (gpuf_h5_options)GPUF_H5_OPTIONS_INIT;
  return gpufi_py_h5py_lock_init(&call->lock, phil, &call->options);
}

/* As call_init, with the tensor `x`. */
static int call_init_with(h5_call *call, PyObject *module, PyObject *phil, PyObject *x) {
  if (call_init(call, module, phil) < 0) {
    return -1;
  }
  if (gpufi_py_adapter_import(call->state, x, &call->import) < 0) {
    call_fini(call);
    return -1;
  }
  return 0;
}

/* --- Writing ------------------------------------------------------------- */

PyDoc_STRVAR(h5_write_doc,
             "h5_write(phil, location, name, x, /, *, chunks=None, codec=0)\n--\n\n"
             "Create the dataset `name` at a group's identifier, with the elements of x.\n\n"
             "chunks: a chunk's shape, or None for the library's choice. codec: a gpuf_h5_codec.");

static PyObject *h5_write(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"", "", "", "", "chunks", "codec", NULL};
  long long location;
  const char *name;
  PyObject *phil, *x, *chunks = Py_None, *result = NULL;
  int codec = 0;
  int64_t chunk[GPUF_NDIM_MAX];
  h5_call call;
  gpuf_status status;
  gpuf_error err;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLsO|$Oi:h5_write", keywords, &phil, &location,
                                   &name, &x, &chunks, &codec) ||
      call_init_with(&call, module, phil, x) < 0) {
    return NULL;
  }
  call.options.codec = (gpuf_h5_codec)codec;
  call.options.chunk_shape = chunks == Py_None ? NULL : chunk;
  if (chunks == Py_None || gpufi_py_axes(chunks, "chunks", call.import.tensor.ndim, chunk) == 0) {
    gpufi_py_h5py_lock_leave_gil(&call.lock);
    status = gpuf_h5_write(location, name, &call.import.tensor, &call.options, &err);
    gpufi_py_h5py_lock_enter_gil(&call.lock);
    result = gpufi_py_outcome(call.state, status, &err);
  }
  call_fini(&call);
  return result;
}

PyDoc_STRVAR(h5_write_region_doc,
             "h5_write_region(phil, dataset, start, x, /)\n--\n\n"
             "Overwrite the box of a dataset that begins at `start` and has x's shape.");

static PyObject *h5_write_region(PyObject *module, PyObject *args) {
  long long dataset;
  PyObject *phil, *start_arg, *x, *result = NULL;
  int64_t start[GPUF_NDIM_MAX];
  h5_call call;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "OLOO:h5_write_region", &phil, &dataset, &start_arg, &x) ||
      call_init_with(&call, module, phil, x) < 0) {
    return NULL;
  }
  if (gpufi_py_axes(start_arg, "start", call.import.tensor.ndim, start) == 0) {
    gpufi_py_h5py_lock_leave_gil(&call.lock);
    const gpuf_status status =
        gpuf_h5_write_region(dataset, start, &call.import.tensor, &call.options, &err);
    gpufi_py_h5py_lock_enter_gil(&call.lock);
    result = gpufi_py_outcome(call.state, status, &err);
  }
  call_fini(&call);
  return result;
}

/* --- Regions ------------------------------------------------------------- */

/* A box of the dataset. A length of -1 stands for one element of an axis that the result lacks. */
typedef struct region {
  bool given; /* else all of the dataset */
  int32_t ndim;
  int64_t start[GPUF_NDIM_MAX];
  int64_t shape[GPUF_NDIM_MAX];
} region;

static int region_parse(PyObject *arg, region *box) {
  PyObject *start, *shape;
  memset(box, 0, sizeof(*box));
  if (arg == Py_None) {
    return 0;
  }
  box->given = true;
  return PyArg_ParseTuple(arg, "OO:region", &start, &shape) &&
                 gpufi_py_axes_any(shape, "shape", &box->ndim, box->shape) == 0 &&
                 gpufi_py_axes(start, "start", box->ndim, box->start) == 0
             ? 0
             : -1;
}

/* Give `tensor` the shape of the result. */
static void region_narrow(const region *box, gpuf_tensor *tensor) {
  if (box->given) {
    tensor->ndim = 0;
    for (int32_t axis = 0; axis < box->ndim; axis++) {
      if (box->shape[axis] >= 0) {
        tensor->shape[tensor->ndim++] = box->shape[axis];
      }
    }
  }
}

static int32_t region_missing_count(const region *box) {
  int32_t count = 0;
  for (int32_t axis = 0; axis < box->ndim; axis++) {
    count += box->shape[axis] < 0;
  }
  return count;
}

/* Give `tensor`, which must have the result's shape, the axes that the result lacks. */
static int region_widen(const region *box, gpuf_tensor *tensor) {
  gpuf_tensor wide = *tensor;
  int32_t used = 0;
  if (!box->given) {
    return 0;
  }
  if (tensor->ndim != box->ndim - region_missing_count(box)) {
    PyErr_Format(PyExc_ValueError, "out has %d axes, which is not what the selection gives",
                 (int)tensor->ndim);
    return -1;
  }
  for (int32_t axis = 0; axis < box->ndim; axis++) {
    if (box->shape[axis] < 0) {
      wide.shape[axis] = 1;
      wide.strides_nbytes[axis] = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
      continue;
    }
    wide.shape[axis] = tensor->shape[used];
    wide.strides_nbytes[axis] = tensor->strides_nbytes[used++];
    if (wide.shape[axis] != box->shape[axis]) {
      PyErr_Format(PyExc_ValueError, "axis %d of out has %lld elements, and the selection %lld",
                   (int)used - 1, (long long)wide.shape[axis], (long long)box->shape[axis]);
      return -1;
    }
  }
  wide.ndim = box->ndim;
  *tensor = wide;
  return 0;
}

/* --- Reading ------------------------------------------------------------- */

/* A fresh result for the call; `tensor` describes it. */
static PyObject *create_result(h5_call *call, long long dataset, const region *box,
                               PyObject *device_name, gpuf_tensor *tensor) {
  gpuf_device device;
  gpuf_error err;
  memset(tensor, 0, sizeof(*tensor));
  if (gpufi_py_device_parse(call->state, device_name, &device) < 0 ||
      gpufi_py_device_check(call->state, device) < 0) {
    return NULL;
  }
  gpufi_py_h5py_lock_leave_gil(&call->lock);
  const gpuf_status status = gpuf_h5_describe(dataset, tensor, &call->options, &err);
  gpufi_py_h5py_lock_enter_gil(&call->lock);
  if (status != GPUF_OK || PyErr_Occurred()) {
    return gpufi_py_raise(call->state, &err);
  }
  region_narrow(box, tensor);
  return gpufi_py_result_create(call->state, device, tensor);
}

PyDoc_STRVAR(h5_read_doc,
             "h5_read(phil, dataset, /, *, region=None, device=None, out=None)\n--\n\n"
             "Read a dataset into `out` or a fresh array on `device`, and return that.\n\n"
             "region: None for all of it, or (start, shape), in which a length of -1 stands for\n"
             "one element of an axis that the result lacks. device: \"cpu\" gives an ndarray,\n"
             "\"cuda:0\" a DeviceArray, None one on the default device.");

static PyObject *h5_read(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"", "", "region", "device", "out", NULL};
  long long dataset;
  PyObject *phil, *region_arg = Py_None, *device = Py_None, *out = Py_None;
  region box;
  gpuf_tensor tensor;
  h5_call call;
  gpuf_error err;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OL|$OOO:h5_read", keywords, &phil, &dataset,
                                   &region_arg, &device, &out) ||
      region_parse(region_arg, &box) < 0 || call_init(&call, module, phil) < 0) {
    return NULL;
  }
  PyObject *result;
  if (out == Py_None) {
    result = create_result(&call, dataset, &box, device, &tensor);
  } else {
    result = gpufi_py_result_use(call.state, out, &call.import);
    tensor = call.import.tensor;
  }
  if (result && region_widen(&box, &tensor) < 0) {
    Py_CLEAR(result);
  }
  if (result) {
    gpufi_py_h5py_lock_leave_gil(&call.lock);
    const gpuf_status status =
        gpuf_h5_read_region(dataset, box.given ? box.start : NULL, &tensor, &call.options, &err);
    gpufi_py_h5py_lock_enter_gil(&call.lock);
    if (status != GPUF_OK || PyErr_Occurred()) {
      gpufi_py_raise(call.state, &err);
      Py_CLEAR(result);
    }
  }
  call_fini(&call);
  return result;
}

/* What a dataset is, and where the first chunk starts that is missing, if one is. */
typedef struct inspection {
  gpufi_h5_dataset dataset;
  bool is_missing;
  int64_t start[GPUF_NDIM_MAX];
} inspection;

/* Without the GIL. */
static gpuf_status inspect(long long id, const gpuf_h5_options *options, inspection *found,
                           gpuf_error *err) {
  gpufi_h5_session session;
  gpuf_status status = gpufi_h5_session_init(&session, options, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_inspect(&session, id, false, &found->dataset, err);
  }
  if (status == GPUF_OK) {
    gpufi_h5_enter(&session);
    status = gpufi_h5_stored_flush(&session, &found->dataset, err);
    if (status == GPUF_OK) {
      status =
          gpufi_h5_stored_missing(&session, &found->dataset, &found->is_missing, found->start, err);
    }
    gpufi_h5_leave(&session);
  }
  return status;
}

PyDoc_STRVAR(
    h5_inspect_doc,
    "h5_inspect(phil, dataset, /)\n--\n\n"
    "The dtype's name, whether the elements are stored as the CPU has them, the shape, and\n"
    "where the first chunk starts that HDF5 does not find when it reads elements, or None.\n"
    "Of damaged files it may list chunks that it does not find.");

static PyObject *h5_inspect(PyObject *module, PyObject *args) {
  long long dataset;
  PyObject *phil;
  inspection found;
  h5_call call;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "OL:h5_inspect", &phil, &dataset) ||
      call_init(&call, module, phil) < 0) {
    return NULL;
  }
  gpufi_py_h5py_lock_leave_gil(&call.lock);
  const gpuf_status status = inspect(dataset, &call.options, &found, &err);
  gpufi_py_h5py_lock_enter_gil(&call.lock);
  PyObject *result = NULL;
  if (status != GPUF_OK || PyErr_Occurred()) {
    gpufi_py_raise(call.state, &err);
  } else {
    const gpufi_h5_dataset *const is = &found.dataset;
    result = Py_BuildValue("(sNNN)", gpuf_dtype_name(is->dtype), PyBool_FromLong(is->is_native),
                           gpufi_py_tuple_of(is->shape, is->ndim),
                           found.is_missing ? gpufi_py_tuple_of(found.start, is->ndim)
                                            : Py_NewRef(Py_None));
  }
  call_fini(&call);
  return result;
}

PyDoc_STRVAR(
    restart_check_seal_doc,
    "restart_check_seal(path, /)\n--\n\n"
    "Whether the file ends with a checkpoint's seal. Raises where its bytes, or those of one of\n"
    "its shards, are not those that were sealed. HDF5 does not see the files.");

static PyObject *restart_check_seal(PyObject *module, PyObject *given) {
  PyObject *path = NULL;
  gpuf_error err;
  gpuf_status status = GPUF_OK;
  bool has_seal;
  if (!PyUnicode_FSConverter(given, &path)) {
    return NULL;
  }
  const char *const text = PyBytes_AsString(path);
  Py_BEGIN_ALLOW_THREADS
    has_seal = gpufi_checkpoint_has_seal(text);
    if (has_seal) {
      status = gpufi_checkpoint_check_files(text, &err);
    }
  Py_END_ALLOW_THREADS
  Py_DECREF(path);
  return status == GPUF_OK ? PyBool_FromLong(has_seal)
                           : gpufi_py_raise(gpufi_py_state_of_module(module), &err);
}

PyDoc_STRVAR(restart_check_shards_doc,
             "restart_check_shards(path, /)\n--\n\n"
             "Raise where a shard of a checkpoint's master is another file than was written with "
             "it.");

static PyObject *restart_check_shards(PyObject *module, PyObject *given) {
  PyObject *path = NULL;
  gpuf_error err;
  gpuf_status status;
  if (!PyUnicode_FSConverter(given, &path)) {
    return NULL;
  }
  const char *const text = PyBytes_AsString(path);
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_checkpoint_check_marks(text, &err);
  Py_END_ALLOW_THREADS
  Py_DECREF(path);
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

PyMethodDef gpufi_py_hdf5_methods[] = {
    {"h5_bind", h5_bind, METH_VARARGS, h5_bind_doc},
    {"publish_file", publish_file, METH_VARARGS, publish_file_doc},
    {"h5_write", GPUFI_PY_METHOD(h5_write), METH_VARARGS | METH_KEYWORDS, h5_write_doc},
    {"h5_write_region", h5_write_region, METH_VARARGS, h5_write_region_doc},
    {"h5_read", GPUFI_PY_METHOD(h5_read), METH_VARARGS | METH_KEYWORDS, h5_read_doc},
    {"h5_inspect", h5_inspect, METH_VARARGS, h5_inspect_doc},
    {"restart_check_seal", restart_check_seal, METH_O, restart_check_seal_doc},
    {"restart_check_shards", restart_check_shards, METH_O, restart_check_shards_doc},
    {0},
};
