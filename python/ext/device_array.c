/* gpufetch.DeviceArray: a tensor in device memory, its own or someone else's. */
#include "core.h"
#include "dlpack_abi.h"

#include <structmember.h>

PyObject *gpufi_py_device_array_create(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                       bool readonly, PyObject *keepalive) {
  gpufi_py_device_array *self =
      (gpufi_py_device_array *)PyType_GenericAlloc(state->device_array_type, 0);
  if (self) {
    self->tensor = *tensor;
    self->readonly = readonly;
    Py_XINCREF(keepalive);
    self->keepalive = keepalive;
  }
  return (PyObject *)self;
}

static int array_traverse(gpufi_py_device_array *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->keepalive);
  return 0;
}

static int array_clear(gpufi_py_device_array *self) {
  Py_CLEAR(self->keepalive);
  return 0;
}

/* gpuf_free waits for the device. Its failure has nobody to go to: after fork, or when the device
 * is lost, the memory is gone with the process. */
static void array_dealloc(gpufi_py_device_array *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  if (self->weakrefs) {
    PyObject_ClearWeakRefs((PyObject *)self);
  }
  if (self->d_owned) {
    Py_BEGIN_ALLOW_THREADS gpuf_free(self->tensor.device, self->d_owned, NULL);
    Py_END_ALLOW_THREADS
  }
  array_clear(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

/* A view of `self` that `tensor` describes; keeps the object that owns the memory alive, not the
 * chain of views. */
static PyObject *view_of(gpufi_py_device_array *self, const gpuf_tensor *tensor) {
  const gpufi_py_state *state = gpufi_py_state_of((PyObject *)self);
  PyObject *owner = self->keepalive ? self->keepalive : (PyObject *)self;
  return gpufi_py_device_array_create(state, tensor, self->readonly, owner);
}

/* --- Attributes ------------------------------------------------------------ */

static PyObject *get_shape(gpufi_py_device_array *self, void *closure) {
  return gpufi_py_tuple_of(self->tensor.shape, self->tensor.ndim);
}

static PyObject *get_strides(gpufi_py_device_array *self, void *closure) {
  return gpufi_py_tuple_of(self->tensor.strides_nbytes, self->tensor.ndim);
}

static PyObject *get_dtype(gpufi_py_device_array *self, void *closure) {
  PyObject *descr = gpufi_py_state_of((PyObject *)self)->descrs[self->tensor.dtype];
  Py_INCREF(descr);
  return descr;
}

static PyObject *get_ndim(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromLong(self->tensor.ndim);
}

static PyObject *get_size(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromLongLong(gpuf_tensor_count(&self->tensor));
}

static PyObject *get_nbytes(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromSize_t(gpuf_tensor_nbytes(&self->tensor));
}

static PyObject *get_device(gpufi_py_device_array *self, void *closure) {
  char text[32];
  return PyUnicode_FromString(gpufi_py_device_text(self->tensor.device, text));
}

static PyObject *get_data_ptr(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromVoidPtr(self->tensor.data);
}

static PyObject *get_readonly(gpufi_py_device_array *self, void *closure) {
  return PyBool_FromLong(self->readonly);
}

static PyObject *get_transposed(gpufi_py_device_array *self, void *closure) {
  gpuf_tensor tensor = self->tensor;
  for (int32_t i = 0; i < tensor.ndim; i++) {
    tensor.shape[i] = self->tensor.shape[tensor.ndim - 1 - i];
    tensor.strides_nbytes[i] = self->tensor.strides_nbytes[tensor.ndim - 1 - i];
  }
  return view_of(self, &tensor);
}

static PyObject *get_cuda_array_interface(gpufi_py_device_array *self, void *closure) {
  PyObject *dtype = gpufi_py_state_of((PyObject *)self)->descrs[self->tensor.dtype];
  char device[32];
  if (self->tensor.device.kind != GPUF_DEVICE_CUDA) {
    PyErr_Format(PyExc_AttributeError,
                 "a DeviceArray on %s has no __cuda_array_interface__: only CUDA memory has",
                 gpufi_py_device_text(self->tensor.device, device));
    return NULL;
  }
  if (PyTypeNum_ISUSERDEF(((PyArray_Descr *)dtype)->type_num)) {
    PyErr_Format(PyExc_AttributeError,
                 "__cuda_array_interface__ cannot say dtype %S: use __dlpack__", dtype);
    return NULL;
  }
  PyObject *typestr = PyObject_GetAttrString(dtype, "str");
  PyObject *shape = get_shape(self, NULL);
  PyObject *strides = get_strides(self, NULL);
  PyObject *pointer = get_data_ptr(self, NULL);
  PyObject *stream = self->tensor.stream == GPUF_STREAM_NONE
                         ? (Py_INCREF(Py_None), Py_None)
                         : PyLong_FromSize_t((size_t)self->tensor.stream);
  PyObject *dict = NULL;
  if (typestr && shape && strides && pointer && stream) {
    dict = Py_BuildValue("{s:i,s:O,s:O,s:O,s:(OO),s:O}", "version", 3, "shape", shape, "typestr",
                         typestr, "strides", strides, "data", pointer,
                         self->readonly ? Py_True : Py_False, "stream", stream);
  }
  Py_XDECREF(typestr);
  Py_XDECREF(shape);
  Py_XDECREF(strides);
  Py_XDECREF(pointer);
  Py_XDECREF(stream);
  return dict;
}

/* --- Python's protocols ---------------------------------------------------- */

static PyObject *array_repr(gpufi_py_device_array *self) {
  char device[32];
  PyObject *shape = get_shape(self, NULL);
  if (!shape) {
    return NULL;
  }
  PyObject *text =
      PyUnicode_FromFormat("DeviceArray(shape=%S, dtype=%S, device='%s', nbytes=%zu%s)", shape,
                           gpufi_py_state_of((PyObject *)self)->descrs[self->tensor.dtype],
                           gpufi_py_device_text(self->tensor.device, device),
                           gpuf_tensor_nbytes(&self->tensor), self->readonly ? ", readonly" : "");
  Py_DECREF(shape);
  return text;
}

static Py_ssize_t array_length(gpufi_py_device_array *self) {
  if (self->tensor.ndim == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a DeviceArray without dimensions");
    return -1;
  }
  return (Py_ssize_t)self->tensor.shape[0];
}

static int array_bool(gpufi_py_device_array *self) {
  PyErr_SetString(PyExc_TypeError,
                  "a DeviceArray has no truth value: fetch it first, or test its size");
  return -1;
}

static PyObject *array_subscript(gpufi_py_device_array *self, PyObject *key) {
  gpuf_tensor tensor = self->tensor;
  return gpufi_py_index(&tensor, key) < 0 ? NULL : view_of(self, &tensor);
}

PyDoc_STRVAR(array_doc_array,
             "__array__($self, dtype=None, copy=None)\n--\n\n"
             "fetch(self), then astype(dtype) on the host. copy=False raises ValueError.");

static PyObject *array_array(gpufi_py_device_array *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  gpufi_py_state *state = gpufi_py_state_of((PyObject *)self);
  PyObject *dtype = nargs == 1 ? args[0] : Py_None, *copy = Py_None;
  PyObject *const names[] = {state->names.dtype, state->names.copy, NULL};
  PyObject **values[] = {&dtype, &copy};
  if (gpufi_py_keywords("__array__", args, nargs, nargs == 1 ? 1 : 0, kwnames, names, values) < 0) {
    return NULL;
  }
  if (copy == Py_False) {
    PyErr_SetString(PyExc_ValueError,
                    "a DeviceArray cannot become an ndarray without a copy: leave copy=False out");
    return NULL;
  }
  if (gpufi_py_share_check(state, self->keepalive) < 0) {
    return NULL;
  }
  PyObject *array = gpufi_py_fetch_tensor(state, &self->tensor);
  if (!array || dtype == Py_None) {
    return array;
  }
  PyArray_Descr *descr = NULL;
  PyObject *cast = NULL;
  if (PyArray_DescrConverter(dtype, &descr) == NPY_SUCCEED) {
    cast = PyArray_FromArray((PyArrayObject *)array, descr, NPY_ARRAY_FORCECAST); /* steals descr */
  }
  Py_DECREF(array);
  return cast;
}

/* --- DLPack ---------------------------------------------------------------- */

static PyObject *array_dlpack_device(gpufi_py_device_array *self, PyObject *unused) {
  int32_t type, id;
  gpufi_py_dlpack_device(self->tensor.device, &type, &id);
  return Py_BuildValue("(ii)", (int)type, (int)id);
}

typedef struct dlpack_request {
  PyObject *stream, *max_version, *dl_device, *copy; /* Py_None or as given; borrowed */
  bool versioned;
  bool to_cpu; /* a copy on the CPU is asked for */
} dlpack_request;

/* A (major, minor) or (type, id) pair. */
static int parse_pair(PyObject *pair, const char *what, long *first, long *second) {
  if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
    PyErr_Format(PyExc_TypeError, "%s is %R, not a pair of integers", what, pair);
    return -1;
  }
  *first = PyLong_AsLong(PyTuple_GetItem(pair, 0));
  *second = PyErr_Occurred() ? -1 : PyLong_AsLong(PyTuple_GetItem(pair, 1));
  return PyErr_Occurred() ? -1 : 0;
}

static int check_request(const gpufi_py_device_array *self, dlpack_request *request) {
  int32_t type, id;
  long major = 0, minor, asked_type, asked_id;
  gpufi_py_dlpack_device(self->tensor.device, &type, &id);
  if (request->max_version != Py_None &&
      parse_pair(request->max_version, "max_version", &major, &minor) < 0) {
    return -1;
  }
  request->versioned = major >= GPUFI_DLPACK_MAJOR;
  request->to_cpu = false;
  if (request->dl_device != Py_None) {
    if (parse_pair(request->dl_device, "dl_device", &asked_type, &asked_id) < 0) {
      return -1;
    }
    if (asked_type != type || asked_id != id) {
      request->to_cpu = asked_type == GPUFI_DL_CPU;
      if (!request->to_cpu || request->copy == Py_False) {
        PyErr_Format(PyExc_BufferError,
                     "a DeviceArray on DLPack device (%d, %d) cannot be exported to device "
                     "(%ld, %ld)%s: fetch it, and move it from there",
                     (int)type, (int)id, asked_type, asked_id,
                     request->to_cpu ? " without a copy" : "");
        return -1;
      }
    }
  }
  if (!request->to_cpu && request->copy == Py_True) {
    PyErr_SetString(PyExc_BufferError,
                    "copy=True on the device is not offered: use "
                    "gpufetch.to_device(gpufetch.fetch(x)), or copy in the importing framework");
    return -1;
  }
  if (!request->to_cpu && self->readonly && !request->versioned) {
    PyErr_SetString(PyExc_BufferError,
                    "read-only memory cannot be exported by DLPack before 1.0: ask with "
                    "max_version=(1, 0), or export a copy");
    return -1;
  }
  return 0;
}

/* Make the consumer's stream wait for the work that is pending on the memory. The legacy default
 * stream is in order with it already; for any other the host waits. */
static int order_stream(gpufi_py_device_array *self, PyObject *stream) {
  const gpuf_tensor *tensor = &self->tensor;
  long long value = 1;
  if (stream != Py_None) {
    value = PyLong_AsLongLong(stream);
    if (value == -1 && PyErr_Occurred()) {
      return -1;
    }
    if (tensor->device.kind == GPUF_DEVICE_CUDA && (value == 0 || value < -1)) {
      PyErr_Format(PyExc_ValueError,
                   "stream %lld is not allowed for CUDA: use 1 (legacy default), 2 (per thread), "
                   "a stream handle, -1 (no synchronisation) or None",
                   value);
      return -1;
    }
  }
  if (value == -1 || tensor->stream == GPUF_STREAM_NONE ||
      (tensor->stream == GPUF_STREAM_LEGACY && value == 1)) {
    return 0;
  }
  gpuf_error err;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS status = gpuf_stream_synchronize(tensor->device, tensor->stream, &err);
  Py_END_ALLOW_THREADS if (status != GPUF_OK) {
    gpufi_py_raise(gpufi_py_state_of((PyObject *)self), &err);
    return -1;
  }
  return 0;
}

/* A capsule over a fresh copy on the CPU. */
static PyObject *dlpack_cpu_copy(gpufi_py_device_array *self, bool versioned) {
  gpufi_py_state *state = gpufi_py_state_of((PyObject *)self);
  gpuf_tensor tensor;
  PyObject *capsule = NULL;
  PyObject *array = gpufi_py_fetch_tensor(state, &self->tensor);
  if (array && gpufi_py_tensor_from_array(state, array, &tensor) == 0) {
    capsule = gpufi_py_dlpack_make(&tensor, array, versioned, GPUFI_DL_FLAG_IS_COPIED);
  }
  Py_XDECREF(array);
  return capsule;
}

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n"
             "--\n\n"
             "A DLPack capsule that shares the memory: versioned if max_version >= (1, 0), else\n"
             "legacy. dl_device=(1, 0) gives a copy on the CPU. BufferError for a request that\n"
             "cannot be met.");

static PyObject *array_dlpack(gpufi_py_device_array *self, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames) {
  const gpufi_py_names *names = &gpufi_py_state_of((PyObject *)self)->names;
  dlpack_request request = {Py_None, Py_None, Py_None, Py_None, false, false};
  PyObject *const known[] = {names->stream, names->max_version, names->dl_device, names->copy,
                             NULL};
  PyObject **values[] = {&request.stream, &request.max_version, &request.dl_device, &request.copy};
  if (gpufi_py_keywords("__dlpack__", args, nargs, 0, kwnames, known, values) < 0 ||
      check_request(self, &request) < 0) {
    return NULL;
  }
  if (request.to_cpu) {
    return dlpack_cpu_copy(self, request.versioned);
  }
  if (order_stream(self, request.stream) < 0) {
    return NULL;
  }
  return gpufi_py_dlpack_make(&self->tensor, self->keepalive ? self->keepalive : (PyObject *)self,
                              request.versioned, self->readonly ? GPUFI_DL_FLAG_READ_ONLY : 0);
}

/* --- The type -------------------------------------------------------------- */

static PyGetSetDef array_getset[] = {
    {"shape", (getter)get_shape, NULL, "Extents, a tuple of int.", NULL},
    {"strides", (getter)get_strides, NULL, "Signed strides in bytes, a tuple of int.", NULL},
    {"dtype", (getter)get_dtype, NULL, "numpy.dtype; ml_dtypes' for bfloat16 and float8.", NULL},
    {"ndim", (getter)get_ndim, NULL, "Number of dimensions.", NULL},
    {"size", (getter)get_size, NULL, "Number of elements.", NULL},
    {"nbytes", (getter)get_nbytes, NULL, "size * dtype.itemsize: bytes of a packed copy.", NULL},
    {"device", (getter)get_device, NULL, "\"cuda:0\", \"host:0\" or \"cpu\".", NULL},
    {"data_ptr", (getter)get_data_ptr, NULL, "Address of element [0, ..., 0], an int.", NULL},
    {"readonly", (getter)get_readonly, NULL, "True if the producer said so.", NULL},
    {"T", (getter)get_transposed, NULL, "View with the axes reversed.", NULL},
    {"__cuda_array_interface__", (getter)get_cuda_array_interface, NULL,
     "CUDA Array Interface, version 3; only on CUDA devices.", NULL},
    {0},
};

static PyMethodDef array_methods[] = {
    {"__array__", (PyCFunction)(void (*)(void))array_array, METH_FASTCALL | METH_KEYWORDS,
     array_doc_array},
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_FASTCALL | METH_KEYWORDS,
     dlpack_doc},
    {"__dlpack_device__", (PyCFunction)array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nDLPack (device type, device id); the host backend is 12, "
     "kDLExtDev."},
    {"overview", (PyCFunction)(void (*)(void))gpufi_py_array_overview, METH_VARARGS | METH_KEYWORDS,
     "overview($self, shape, how='mean')\n--\n\nAs gpufetch.overview."},
    {"stats", gpufi_py_array_stats, METH_VARARGS, "stats($self)\n--\n\nAs gpufetch.stats."},
    {"histogram", (PyCFunction)(void (*)(void))gpufi_py_array_histogram,
     METH_VARARGS | METH_KEYWORDS,
     "histogram($self, bins=64, range=None)\n--\n\nAs gpufetch.histogram."},
    {0},
};

static PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gpufi_py_device_array, weakrefs), READONLY, NULL},
    {0},
};

PyDoc_STRVAR(array_doc,
             "An array in device memory, from to_device or asdevice.\n\n"
             "x[...] takes ints, slices with any step, ... and None and gives a view without a\n"
             "copy. fetch(x) or numpy.asarray(x) copies to the host. Immutable; may be used from\n"
             "any thread. Owned memory is freed with the last array and view that uses it.");

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)array_doc},   {Py_tp_dealloc, array_dealloc},
    {Py_tp_traverse, array_traverse}, {Py_tp_clear, array_clear},
    {Py_tp_repr, array_repr},         {Py_tp_getset, array_getset},
    {Py_tp_methods, array_methods},   {Py_tp_members, array_members},
    {Py_mp_length, array_length},     {Py_mp_subscript, array_subscript},
    {Py_nb_bool, array_bool},         {0, NULL},
};

PyType_Spec gpufi_py_device_array_spec = {
    .name = "gpufetch.DeviceArray",
    .basicsize = sizeof(gpufi_py_device_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = array_slots,
};
