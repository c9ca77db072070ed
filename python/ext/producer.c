/* Tensors of other libraries, through DLPack as each of these offers it. */
#include "producer.h"

#include "arguments.h"
#include "cai.h"
#include "dlpack_abi.h"
#include "dlpack_in.h"
#include "errors.h"
#include "jax.h"
#include "tensorflow.h"
#include "torch.h"

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

/* What the type of `object` offers; that of the type that was looked at last is remembered. Looking
 * runs Python code, in which other tensors may be imported, by this thread or another: the state is
 * changed afterwards, at once, and its fields are not read again. */
static gpufi_py_offer offer_of(gpufi_py_state *state, PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object);
  if (state->producer_type == type) {
    return state->producer_offer;
  }
  Py_INCREF(type);
  const gpufi_py_offer offer = {gpufi_py_is_torch(state, type), gpufi_py_is_tensorflow(type),
                                gpufi_py_is_jax(type), exchange_of(state, type)};
  PyObject *old = state->producer_type;
  state->producer_type = type;
  state->producer_offer = offer;
  Py_XDECREF(old);
  return offer;
}

/* Call __dlpack__ with the keywords of the newest protocol, then of older ones: a producer that
 * does not know a keyword raises TypeError. */
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

static PyObject *call_dlpack_cuda(const gpufi_py_state *state, PyObject *object) {
  return call_dlpack(state, object, true);
}

/* The device type that __dlpack_device__() gives (0 for a negative one, which is none), or -1 with
 * an exception set. */
static long dlpack_device_type(const gpufi_py_state *state, PyObject *object) {
  long type = -1, id = -1;
  PyObject *pair = PyObject_CallMethodObjArgs(object, state->names.__dlpack_device__, NULL);
  if (!pair) {
    return -1;
  }
  const int status = gpufi_py_pair(pair, "__dlpack_device__()", &type, &id);
  Py_DECREF(pair);
  return status < 0 ? -1 : type < 0 ? 0 : type;
}

/* 1 if the tensor is in CUDA memory, 0 if not, -1 with an exception set. */
static int is_on_cuda(const gpufi_py_state *state, PyObject *tensor, bool is_torch) {
  if (is_torch) { /* an attribute; its __dlpack_device__ takes longer than a small copy */
    const int result = gpufi_py_torch_is_on_cuda(state, tensor);
    if (result >= 0) {
      return result;
    }
    PyErr_Clear();
  }
  const long type = dlpack_device_type(state, tensor);
  return type < 0 ? -1 : type == GPUFI_DL_CUDA || type == GPUFI_DL_CUDA_MANAGED;
}

/* A capsule from a producer that has __dlpack__, or NULL with the producer's exception. */
static PyObject *request_capsule(gpufi_py_state *state, PyObject *object, bool is_torch,
                                 gpufi_py_import *import) {
  PyObject *tensor = object, *capsule = NULL;
  int on_cuda;
  Py_INCREF(tensor);
  if ((is_torch && gpufi_py_torch_resolve(state, &tensor, &import->copied) < 0) ||
      (on_cuda = is_on_cuda(state, tensor, is_torch)) < 0) {
    goto done;
  }
  capsule = call_dlpack(state, tensor, on_cuda);
  if (!capsule && is_torch && on_cuda && PyErr_ExceptionMatches(PyExc_BufferError)) {
    capsule = gpufi_py_torch_on_device(state, tensor, call_dlpack_cuda);
  }
done:
  Py_DECREF(tensor);
  return capsule;
}

/* Import through the C exchange API, which is several times faster than a call of __dlpack__. The
 * producer does not order its work here: the copy waits for the stream that it works on. */
static int import_exchange(gpufi_py_state *state, const gpufi_dl_exchange *exchange,
                           PyObject *object, bool is_torch, gpufi_py_import *import) {
  gpufi_dl_managed_versioned *managed = NULL;
  PyObject *tensor = object;
  int status = -1;
  Py_INCREF(tensor);
  if ((!is_torch || gpufi_py_torch_resolve(state, &tensor, &import->copied) == 0) &&
      exchange->managed_from_object(tensor, &managed) == 0 && managed) {
    PyObject *capsule = PyCapsule_New(managed, GPUFI_DL_NAME_VERSIONED, NULL);
    if (capsule) {
      status = gpufi_py_dlpack_take(capsule, import);
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

/* The producer has refused, and its exception is set: import through __cuda_array_interface__, or
 * leave that exception. */
static int import_cai_instead(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError)) {
    return -1;
  }
  const gpufi_py_exception refusal = gpufi_py_exception_take();
  const int found = gpufi_py_cai_import(state, object, import);
  if (found == 0) {
    gpufi_py_exception_restore(refusal);
    return -1;
  }
  gpufi_py_exception_drop(refusal);
  return found < 0 ? -1 : 0;
}

static int take_capsule(PyObject *capsule, gpufi_py_import *import) {
  const int status = gpufi_py_dlpack_take(capsule, import);
  Py_DECREF(capsule);
  return status;
}

/* TensorFlow's __dlpack__ takes no stream: it waits for its work itself. */
static int import_tensorflow(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  if (gpufi_py_tensorflow_check(object) < 0) {
    return -1;
  }
  PyObject *capsule = PyObject_CallMethodObjArgs(object, state->names.__dlpack__, NULL);
  if (!capsule) {
    gpufi_py_tensorflow_explain(object);
    return -1;
  }
  return take_capsule(capsule, import);
}

/* Import an object of one of the libraries that need no more than the protocol. */
static int import_dlpack(gpufi_py_state *state, PyObject *object, bool is_torch,
                         gpufi_py_import *import) {
  PyObject *capsule = request_capsule(state, object, is_torch, import);
  if (capsule) {
    return take_capsule(capsule, import);
  }
  /* torch's other interface carries no stream: nothing would wait */
  return is_torch ? -1 : import_cai_instead(state, object, import);
}

/* torch exports some tensors that have no memory as if they had: -1 for these. */
static int check_memory(gpufi_py_import *import) {
  if (import->tensor.data || gpuf_tensor_count(&import->tensor) == 0) {
    return 0;
  }
  gpufi_py_import_clear(import);
  PyErr_SetString(PyExc_ValueError, "the tensor has elements, but no memory");
  return -1;
}

static int import_torch(gpufi_py_state *state, const gpufi_dl_exchange *exchange, PyObject *object,
                        gpufi_py_import *import) {
  int status = exchange ? import_exchange(state, exchange, object, true, import) : -1;
  if (status < 0) {
    PyErr_Clear(); /* __dlpack__ gives the better message */
    status = import_dlpack(state, object, true, import);
  }
  if (status < 0 || check_memory(import) < 0) {
    gpufi_py_torch_explain(state, object);
    return -1;
  }
  return gpufi_py_torch_check_dtype(state, object, import);
}

int gpufi_py_producer_import(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  const gpufi_py_offer offer = offer_of(state, object);
  if (offer.is_torch) {
    return import_torch(state, offer.exchange, object, import);
  }
  if (offer.exchange) {
    if (import_exchange(state, offer.exchange, object, false, import) == 0) {
      return 0;
    }
    PyErr_Clear(); /* __dlpack__ gives the better message */
  }
  if (offer.is_tensorflow) {
    return import_tensorflow(state, object, import);
  }
  const int status = import_dlpack(state, object, false, import);
  if (status < 0 && offer.is_jax) {
    gpufi_py_jax_explain(object);
  }
  return status;
}
