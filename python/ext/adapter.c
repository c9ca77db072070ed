/* The one way in: from any tensor object to a gpuf_tensor and what keeps it alive. */
#include "core.h"
#include "dlpack_abi.h"

#include <stdio.h>

void gpufi_py_import_clear(gpufi_py_import *import) {
  Py_CLEAR(import->keepalive);
}

/* --- The producer's type ---------------------------------------------------- */

/* The C exchange API of a type, in a version that is known here, or NULL. */
static const gpufi_dl_exchange *exchange_of(const gpufi_py_state *state, PyObject *type) {
  const gpufi_dl_exchange *exchange = NULL;
  PyObject *capsule = PyObject_GetAttr(type, state->names.__dlpack_c_exchange_api__);
  if (capsule && PyCapsule_IsValid(capsule, GPUFI_DL_NAME_EXCHANGE)) {
    exchange = PyCapsule_GetPointer(capsule, GPUFI_DL_NAME_EXCHANGE);
  }
  while (exchange && exchange->major != GPUFI_DLPACK_MAJOR) {
    exchange = exchange->previous;
  }
  PyErr_Clear();
  Py_XDECREF(capsule); /* what it points to lives as long as the process */
  return exchange && exchange->managed_from_object && exchange->current_work_stream ? exchange
                                                                                    : NULL;
}

/* Look at the type of `object`, once for a run of objects of one type. */
static void probe_producer(gpufi_py_state *state, PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object);
  if (state->producer_type != type) {
    PyObject *old = state->producer_type;
    const bool is_torch = PyObject_HasAttr(type, state->names.resolve_conj) &&
                          PyObject_HasAttr(type, state->names.requires_grad);
    const bool is_tensorflow = gpufi_py_is_tensorflow(type);
    const gpufi_dl_exchange *exchange = exchange_of(state, type);
    Py_INCREF(type);
    state->producer_type = type;
    state->producer_is_torch = is_torch;
    state->producer_is_tensorflow = is_tensorflow;
    state->producer_exchange = exchange;
    Py_XDECREF(old);
  }
}

/* --- torch ----------------------------------------------------------------- */

/* Truth of an attribute, or of what it returns when `call`; -1 with an exception set. */
static int flag_of(PyObject *object, PyObject *name, bool call) {
  PyObject *value = PyObject_GetAttr(object, name);
  if (value && call) {
    PyObject *method = value;
    value = PyObject_CallFunctionObjArgs(method, NULL);
    Py_DECREF(method);
  }
  if (!value) {
    return -1;
  }
  const int result = PyObject_IsTrue(value);
  Py_DECREF(value);
  return result;
}

/* As flag_of, but a failure is false. */
static bool quiet_flag_of(PyObject *object, PyObject *name, bool call) {
  const int result = flag_of(object, name, call);
  if (result < 0) {
    PyErr_Clear();
  }
  return result > 0;
}

/* Replace *tensor (a strong reference) by what its method `remedy` returns, if `name` is set. */
static int resolve(PyObject **tensor, PyObject *name, bool call, PyObject *remedy) {
  const int set = flag_of(*tensor, name, call);
  if (set <= 0) {
    return set;
  }
  PyObject *resolved = PyObject_CallMethodObjArgs(*tensor, remedy, NULL);
  if (!resolved) {
    return -1;
  }
  Py_DECREF(*tensor);
  *tensor = resolved;
  return 0;
}

/* What torch leaves to the caller before a tensor can be exported. torch exports a tensor with
 * the negative bit set as if it were not, so this cannot wait for an error. */
static int torch_resolve(const gpufi_py_state *state, PyObject **tensor) {
  const gpufi_py_names *names = &state->names;
  return resolve(tensor, names->requires_grad, false, names->detach) < 0 ||
                 resolve(tensor, names->is_conj, true, names->resolve_conj) < 0 ||
                 resolve(tensor, names->is_neg, true, names->resolve_neg) < 0
             ? -1
             : 0;
}

/* An exception is set because `tensor` could not be exported. If it is of a kind that has no plain
 * elements, say so and what to call; else leave the exception as it is. */
static void torch_explain(const gpufi_py_state *state, PyObject *tensor) {
  const gpufi_py_names *names = &state->names;
  PyObject *type, *value, *traceback;
  const char *reason = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  if (quiet_flag_of(tensor, names->is_meta, false)) {
    reason = "it is on the meta device and has no data: make it real first, with "
             "x.to_empty(device=...) or by loading it";
  } else if (quiet_flag_of(tensor, names->is_quantized, false)) {
    reason = "it is quantized: call x.dequantize() or x.int_repr() first";
  } else if (quiet_flag_of(tensor, names->is_nested, false)) {
    reason = "it is nested: call torch.nested.to_padded_tensor(x, padding), or take its parts from "
             "x.unbind()";
  } else {
    PyObject *layout = PyObject_GetAttr(tensor, names->layout);
    PyObject *text = layout ? PyObject_Str(layout) : NULL;
    if (text && PyUnicode_CompareWithASCIIString(text, "torch.strided") != 0) {
      reason = "its layout is not strided (sparse, mkldnn): call x.to_dense() first, or take its "
               "parts apart";
    }
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(layout);
  }
  PyErr_Restore(type, value, traceback);
  if (reason) {
    gpufi_py_raise_from(PyExc_TypeError, "this torch tensor has no plain elements: %s", reason);
  }
}

/* torch exports int1 to int7 and uint1 to uint7, which its own operations do not know, as integers
 * of 8 bits. Refuse them, and clear the import. */
static int torch_check_dtype(const gpufi_py_state *state, PyObject *tensor,
                             gpufi_py_import *import) {
  const gpuf_dtype imported = import->tensor.dtype;
  if (imported != GPUF_DTYPE_INT8 && imported != GPUF_DTYPE_UINT8) {
    return 0;
  }
  PyObject *dtype = PyObject_GetAttr(tensor, state->names.dtype);
  PyObject *text = dtype ? PyObject_Str(dtype) : NULL;
  const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  char digit = '8', end;
  const bool narrow = name &&
                      (sscanf(name, "torch.int%c%c", &digit, &end) == 1 ||
                       sscanf(name, "torch.uint%c%c", &digit, &end) == 1) &&
                      digit < '8';
  PyErr_Clear();
  if (narrow) {
    PyErr_Format(PyExc_TypeError,
                 "%S has no NumPy counterpart: x.view(torch.uint8) gives the bytes that hold its "
                 "elements",
                 text);
    gpufi_py_import_clear(import);
  }
  Py_XDECREF(text);
  Py_XDECREF(dtype);
  return narrow ? -1 : 0;
}

/* --- DLPack ---------------------------------------------------------------- */

/* __dlpack__ from the newest form of call to the oldest: a producer that does not know a keyword
 * raises TypeError. */
static PyObject *call_dlpack(const gpufi_py_state *state, PyObject *object, bool cuda) {
  PyObject *const forms[] = {cuda ? state->dlpack_kwargs_cuda : state->dlpack_kwargs_cpu,
                             cuda ? state->dlpack_kwargs_cuda_legacy : NULL, NULL};
  const int form_count = cuda ? 3 : 2;
  PyObject *capsule = NULL;
  PyObject *method = PyObject_GetAttr(object, state->names.__dlpack__);
  if (!method) {
    return NULL;
  }
  for (int i = 0; i < form_count && !capsule; i++) {
    if (i > 0) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        break;
      }
      PyErr_Clear();
    }
    capsule = PyObject_Call(method, state->empty_tuple, forms[i]);
  }
  Py_DECREF(method);
  return capsule;
}

/* torch exports only from its current device: call again with the tensor's device current. */
static PyObject *call_dlpack_on_torch_device(const gpufi_py_state *state, PyObject *tensor) {
  PyObject *capsule = NULL, *cuda = NULL, *device = NULL, *guard = NULL, *entered = NULL,
           *left = NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *torch = PyImport_ImportModule("torch"); /* loaded already, as there is a tensor */
  cuda = torch ? PyObject_GetAttr(torch, state->names.cuda) : NULL;
  guard = cuda && (device = PyObject_GetAttr(tensor, state->names.device))
              ? PyObject_CallMethodObjArgs(cuda, state->names.device, device, NULL)
              : NULL;
  entered = guard ? PyObject_CallMethodObjArgs(guard, state->names.__enter__, NULL) : NULL;
  if (entered) {
    capsule = call_dlpack(state, tensor, true);
    PyObject *call_type, *call_value, *call_traceback;
    PyErr_Fetch(&call_type, &call_value, &call_traceback);
    left =
        PyObject_CallMethodObjArgs(guard, state->names.__exit__, Py_None, Py_None, Py_None, NULL);
    if (!left) {
      Py_CLEAR(capsule);
    }
    PyErr_Clear();
    PyErr_Restore(call_type, call_value, call_traceback);
  }
  Py_XDECREF(left);
  Py_XDECREF(entered);
  Py_XDECREF(guard);
  Py_XDECREF(device);
  Py_XDECREF(cuda);
  Py_XDECREF(torch);
  if (capsule) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback); /* what torch said first is the better message */
  }
  return capsule;
}

static int dlpack_device_of(const gpufi_py_state *state, PyObject *object,
                            gpufi_dl_device *device) {
  PyObject *pair = PyObject_CallMethodObjArgs(object, state->names.__dlpack_device__, NULL);
  if (!pair) {
    return -1;
  }
  int status = -1;
  if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
    PyErr_Format(PyExc_TypeError, "__dlpack_device__() gave %R, not (device type, device id)",
                 pair);
  } else {
    const long type = PyLong_AsLong(PyTuple_GetItem(pair, 0));
    const long id = PyErr_Occurred() ? -1 : PyLong_AsLong(PyTuple_GetItem(pair, 1));
    *device = (gpufi_dl_device){(int32_t)type, (int32_t)id};
    status = PyErr_Occurred() ? -1 : 0;
  }
  Py_DECREF(pair);
  return status;
}

/* 1 if the tensor is in CUDA memory, 0 if not, -1 with an exception set. */
static int is_on_cuda(const gpufi_py_state *state, PyObject *tensor, bool is_torch) {
  gpufi_dl_device device;
  if (is_torch) { /* an attribute; its __dlpack_device__ takes longer than a small copy */
    const int result = flag_of(tensor, state->names.is_cuda, false);
    if (result >= 0) {
      return result;
    }
    PyErr_Clear();
  }
  if (dlpack_device_of(state, tensor, &device) < 0) {
    return -1;
  }
  return device.type == GPUFI_DL_CUDA || device.type == GPUFI_DL_CUDA_MANAGED;
}

/* A capsule from a producer that has __dlpack__, or NULL with the producer's exception. */
static PyObject *request_capsule(gpufi_py_state *state, PyObject *object, bool is_torch) {
  PyObject *tensor = object, *capsule = NULL;
  int on_cuda;
  Py_INCREF(tensor);
  if ((is_torch && torch_resolve(state, &tensor) < 0) ||
      (on_cuda = is_on_cuda(state, tensor, is_torch)) < 0) {
    goto done;
  }
  capsule = call_dlpack(state, tensor, on_cuda);
  if (!capsule && is_torch && on_cuda && PyErr_ExceptionMatches(PyExc_BufferError)) {
    capsule = call_dlpack_on_torch_device(state, tensor);
  }
done:
  if (!capsule && is_torch) {
    torch_explain(state, object);
  }
  Py_DECREF(tensor);
  return capsule;
}

/* Through the C exchange API, several times quicker than a call of __dlpack__. Nothing waits for
 * the producer here: the copy waits for the stream that the producer works on. */
static int import_exchange(gpufi_py_state *state, const gpufi_dl_exchange *exchange,
                           PyObject *object, bool is_torch, gpufi_py_import *import) {
  gpufi_dl_managed_versioned *managed = NULL;
  PyObject *tensor = object;
  int status = -1;
  Py_INCREF(tensor);
  if ((!is_torch || torch_resolve(state, &tensor) == 0) &&
      exchange->managed_from_object(tensor, &managed) == 0 && managed) {
    PyObject *capsule = PyCapsule_New(managed, GPUFI_DL_NAME_VERSIONED, NULL);
    if (capsule) {
      status = gpufi_py_dlpack_take(state, capsule, import);
      Py_DECREF(capsule);
    } else if (managed->deleter) {
      managed->deleter(managed);
    }
  }
  Py_DECREF(tensor);
  if (status == 0 && import->tensor.device.kind == GPUF_DEVICE_CUDA) {
    void *stream = NULL;
    status = exchange->current_work_stream(GPUFI_DL_CUDA, import->tensor.device.index, &stream);
    import->tensor.stream = stream ? (gpuf_stream)stream : GPUF_STREAM_LEGACY;
    if (status < 0) {
      gpufi_py_import_clear(import);
    }
  }
  return status;
}

static int import_dlpack(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  probe_producer(state, object);
  const bool is_torch = state->producer_is_torch;
  const gpufi_dl_exchange *exchange = state->producer_exchange;
  if (exchange) {
    if (import_exchange(state, exchange, object, is_torch, import) == 0) {
      return 0;
    }
    PyErr_Clear(); /* __dlpack__ gives the better message */
  }
  const bool is_tensorflow = state->producer_is_tensorflow;
  if (is_tensorflow && gpufi_py_tensorflow_check(object) < 0) {
    return -1;
  }
  /* TensorFlow takes no stream: it waits for its work itself. */
  PyObject *capsule = is_tensorflow
                          ? PyObject_CallMethodObjArgs(object, state->names.__dlpack__, NULL)
                          : request_capsule(state, object, is_torch);
  if (!capsule && is_tensorflow) {
    gpufi_py_tensorflow_explain(object);
    return -1;
  }
  if (capsule) {
    const int status = gpufi_py_dlpack_take(state, capsule, import);
    Py_DECREF(capsule);
    return status;
  }
  /* torch's other interface carries no stream, so that nothing would wait for its work. */
  if (is_torch ||
      (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError))) {
    return -1;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const int found = gpufi_py_cai_import(state, object, import);
  if (found == 0) {
    PyErr_Restore(type, value, traceback);
    return -1;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return found < 0 ? -1 : 0;
}

/* --- Any tensor ------------------------------------------------------------ */

static int import_array(const gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  if (gpufi_py_tensor_from_array(state, object, &import->tensor) < 0) {
    return -1;
  }
  import->readonly = !PyArray_ISWRITEABLE((PyArrayObject *)object);
  Py_INCREF(object);
  import->keepalive = object;
  return 0;
}

int gpufi_py_adapter_import(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  import->keepalive = NULL;
  if (Py_TYPE(object) == state->device_array_type) {
    const gpufi_py_device_array *array = (gpufi_py_device_array *)object;
    if (gpufi_py_share_check(state, array->keepalive) < 0) {
      return -1;
    }
    import->tensor = array->tensor;
    import->readonly = array->readonly;
    Py_INCREF(object);
    import->keepalive = object;
    return 0;
  }
  if (PyArray_Check(object)) {
    return import_array(state, object, import);
  }
  /* A class has the methods of its instances, but no elements. */
  if (!PyType_Check(object)) {
    if (PyObject_HasAttr(object, state->names.__dlpack__)) {
      const int status = import_dlpack(state, object, import);
      return status == 0 && state->producer_is_torch ? torch_check_dtype(state, object, import)
                                                     : status;
    }
    const int found = gpufi_py_cai_import(state, object, import);
    if (found != 0) {
      return found < 0 ? -1 : 0;
    }
    if (gpufi_py_is_tensorflow((PyObject *)Py_TYPE(object))) {
      PyObject *value = gpufi_py_tensorflow_value(object);
      const int status = value ? import_dlpack(state, value, import) : -1;
      Py_XDECREF(value);
      return status;
    }
  }
  PyErr_Format(PyExc_TypeError,
               "%S is no tensor: it has neither __dlpack__ nor __cuda_array_interface__; pass a "
               "GPU array of PyTorch, CuPy, Numba, JAX ..., a gpufetch.DeviceArray or a NumPy "
               "array",
               (PyObject *)Py_TYPE(object));
  return -1;
}
