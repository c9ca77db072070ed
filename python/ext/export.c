/* How a DeviceArray is handed to other libraries. */
#include "export.h"

#include "arguments.h"
#include "arrays.h"
#include "attachment.h"
#include "delegate.h"
#include "devices.h"
#include "dlpack_abi.h"
#include "dlpack_out.h"
#include "errors.h"
#include "fetch.h"
#include "request.h"

#include "core/geometry.h"

/* Make None, True or False of an argument `copy`; they outlive the call. */
static int check_copy(PyObject **copy) {
  if (*copy != Py_None && !PyBool_Check(*copy)) {
    *copy = gpufi_py_delegate("gpufetch._checks", "check_copy", *copy, NULL, NULL);
    Py_XDECREF(*copy);
  }
  return *copy ? 0 : -1;
}

/* --- NumPy and the CUDA Array Interface ---------------------------------- */

/* The layout by which NumPy's orders A and K give the elements in the order that they have in the
 * tensor's memory, as of an ndarray. Of one with gaps, which A takes in C order, the copy has none:
 * so K does, too, if the copy would otherwise be in F order. */
static char order_of_array(const gpuf_tensor *tensor) {
  const gpufi_py_request kept = {.order = 'K'};
  gpuf_tensor copy;
  if (gpuf_tensor_is_contiguous(tensor)) {
    return 'C';
  }
  if (gpufi_tensor_is_f_contiguous(tensor)) {
    return 'F';
  }
  gpufi_py_request_describe(&kept, tensor, &copy);
  return gpufi_tensor_is_f_contiguous(&copy) ? 'C' : 'K';
}

PyObject *gpufi_py_export_array(gpufi_py_device_array *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames) {
  gpufi_py_state *state = gpufi_py_state_of((PyObject *)self);
  PyObject *dtype = nargs == 1 ? args[0] : Py_None, *copy = Py_None;
  PyObject *const names[] = {state->names.dtype, state->names.copy, NULL};
  PyObject **values[] = {&dtype, &copy};
  if (gpufi_py_keywords("__array__", args, nargs, nargs == 1 ? 1 : 0, kwnames, names, values) < 0 ||
      check_copy(&copy) < 0) {
    return NULL;
  }
  if (copy == Py_False) {
    PyErr_SetString(PyExc_ValueError,
                    "a DeviceArray cannot become an ndarray without a copy: leave copy=False out");
    return NULL;
  }
  if (gpufi_py_attachment_check(state, self->keepalive) < 0) {
    return NULL;
  }
  PyObject *array = gpufi_py_fetch_tensor(state, &self->tensor, order_of_array(&self->tensor));
  if (!array || dtype == Py_None) {
    return array;
  }
  PyArray_Descr *descr = NULL;
  PyObject *cast = NULL;
  if (PyArray_DescrConverter(dtype, &descr) == NPY_SUCCEED) {
    /* NumPy makes the other conversions itself, or refuses them, as the call does of an ndarray. */
    if (!PyArray_CanCastTypeTo(PyArray_DESCR((PyArrayObject *)array), descr, NPY_SAFE_CASTING)) {
      Py_DECREF(descr);
      return array;
    }
    cast = PyArray_FromArray((PyArrayObject *)array, descr, NPY_ARRAY_FORCECAST); /* steals descr */
  }
  Py_DECREF(array);
  return cast;
}

PyObject *gpufi_py_export_cuda_array_interface(gpufi_py_device_array *self, void *closure) {
  PyObject *dtype = gpufi_py_state_of((PyObject *)self)->descrs[self->tensor.dtype];
  char text[GPUFI_PY_DEVICE_TEXT_NBYTES];
  if (self->tensor.device.kind != GPUF_DEVICE_CUDA) {
    PyErr_Format(PyExc_AttributeError,
                 "a DeviceArray on %s has no __cuda_array_interface__: only CUDA memory has",
                 gpufi_py_device_text(self->tensor.device, text));
    return NULL;
  }
  if (PyTypeNum_ISUSERDEF(((PyArray_Descr *)dtype)->type_num)) {
    PyErr_Format(PyExc_AttributeError,
                 "__cuda_array_interface__ cannot say dtype %S: use __dlpack__", dtype);
    return NULL;
  }
  PyObject *typestr = PyObject_GetAttrString(dtype, "str");
  PyObject *shape = gpufi_py_tuple_of(self->tensor.shape, self->tensor.ndim);
  PyObject *strides = gpufi_py_tuple_of(self->tensor.strides_nbytes, self->tensor.ndim);
  PyObject *pointer = PyLong_FromVoidPtr(self->tensor.data);
  PyObject *stream = self->tensor.stream == GPUF_STREAM_NONE
                         ? Py_NewRef(Py_None)
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

/* --- DLPack -------------------------------------------------------------- */

PyObject *gpufi_py_export_dlpack_device(gpufi_py_device_array *self, PyObject *unused) {
  int32_t type, id;
  gpufi_py_dlpack_device(self->tensor.device, &type, &id);
  return Py_BuildValue("(ii)", (int)type, (int)id);
}

typedef struct dlpack_request {
  PyObject *stream, *max_version, *dl_device, *copy; /* Py_None or as given; borrowed */
  bool versioned;
  bool to_cpu; /* a copy on the CPU is asked for */
} dlpack_request;

static int check_request(const gpufi_py_device_array *self, dlpack_request *request) {
  int32_t type, id;
  long major = 0, minor, asked_type, asked_id;
  gpufi_py_dlpack_device(self->tensor.device, &type, &id);
  if (request->max_version != Py_None &&
      gpufi_py_pair(request->max_version, "max_version", &major, &minor) < 0) {
    return -1;
  }
  request->versioned = major >= GPUFI_DLPACK_MAJOR;
  request->to_cpu = false;
  if (request->dl_device != Py_None) {
    if (gpufi_py_pair(request->dl_device, "dl_device", &asked_type, &asked_id) < 0) {
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

/* Let the consumer's work on `stream` come after the work that is pending on the memory. The legacy
 * default stream is ordered after it already; for any other the host waits. */
static int order_stream(gpufi_py_device_array *self, PyObject *stream) {
  const gpuf_tensor *tensor = &self->tensor;
  long long value = 1;
  if (stream != Py_None) {
    value = PyLong_AsLongLong(stream);
    if (value == -1 && PyErr_Occurred()) {
      if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Format(PyExc_ValueError, "stream is %R, which does not fit 64 bits", stream);
      }
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
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_stream_synchronize(tensor->device, tensor->stream, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
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
  PyObject *array = gpufi_py_fetch_tensor(state, &self->tensor, 'C');
  if (array && gpufi_py_tensor_from_array(state, array, &tensor) == 0) {
    capsule = gpufi_py_dlpack_make(&tensor, array, versioned, GPUFI_DL_FLAG_IS_COPIED);
  }
  Py_XDECREF(array);
  return capsule;
}

PyObject *gpufi_py_export_dlpack(gpufi_py_device_array *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames) {
  const gpufi_py_names *names = &gpufi_py_state_of((PyObject *)self)->names;
  dlpack_request request = {Py_None, Py_None, Py_None, Py_None, false, false};
  PyObject *const known[] = {names->stream, names->max_version, names->dl_device, names->copy,
                             NULL};
  PyObject **values[] = {&request.stream, &request.max_version, &request.dl_device, &request.copy};
  if (gpufi_py_keywords("__dlpack__", args, nargs, 0, kwnames, known, values) < 0 ||
      check_copy(&request.copy) < 0 || check_request(self, &request) < 0) {
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
