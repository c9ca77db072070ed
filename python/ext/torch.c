/* What is particular about PyTorch's tensors. */
#include "torch.h"

#include "errors.h"

#include <stdio.h>

bool gpufi_py_is_torch(const gpufi_py_state *state, PyObject *type) {
  return PyObject_HasAttr(type, state->names.resolve_conj) &&
         PyObject_HasAttr(type, state->names.requires_grad);
}

/* The truth of an attribute, or of the result of calling it if `call`; -1 with an exception set. */
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

/* flag_of with a failure counted as false. */
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

/* torch exports a tensor with the negative bit set as if it were not, so this cannot wait for an
 * error. */
int gpufi_py_torch_resolve(const gpufi_py_state *state, PyObject **tensor) {
  const gpufi_py_names *names = &state->names;
  return resolve(tensor, names->requires_grad, false, names->detach) < 0 ||
                 resolve(tensor, names->is_conj, true, names->resolve_conj) < 0 ||
                 resolve(tensor, names->is_neg, true, names->resolve_neg) < 0
             ? -1
             : 0;
}

/* Why `tensor` has no plain elements and what to call, or NULL if it has. Clears exceptions. */
static const char *find_reason(const gpufi_py_state *state, PyObject *tensor) {
  const gpufi_py_names *names = &state->names;
  if (quiet_flag_of(tensor, names->is_meta, false)) {
    return "it is on the meta device and has no data: make it real first, with "
           "x.to_empty(device=...) or by loading it";
  }
  if (quiet_flag_of(tensor, names->is_quantized, false)) {
    return "it is quantized: call x.dequantize() or x.int_repr() first";
  }
  if (quiet_flag_of(tensor, names->is_nested, false)) {
    return "it is nested: call torch.nested.to_padded_tensor(x, padding), or take its parts from "
           "x.unbind()";
  }
  PyObject *layout = PyObject_GetAttr(tensor, names->layout);
  PyObject *text = layout ? PyObject_Str(layout) : NULL;
  const bool strided = !text || PyUnicode_CompareWithASCIIString(text, "torch.strided") == 0;
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(layout);
  return strided ? NULL
                 : "its layout is not strided (sparse, mkldnn): call x.to_dense() first, or take "
                   "its parts apart";
}

void gpufi_py_torch_explain(const gpufi_py_state *state, PyObject *tensor) {
  const gpufi_py_exception raised = gpufi_py_exception_take();
  const char *reason = find_reason(state, tensor);
  gpufi_py_exception_restore(raised);
  if (reason) {
    gpufi_py_raise_from(PyExc_TypeError, "this torch tensor has no plain elements: %s", reason);
  }
}

/* These are int1 to int7 and uint1 to uint7, which torch's own operations do not take either. */
int gpufi_py_torch_check_dtype(const gpufi_py_state *state, PyObject *tensor,
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

int gpufi_py_torch_is_on_cuda(const gpufi_py_state *state, PyObject *tensor) {
  return flag_of(tensor, state->names.is_cuda, false);
}

/* torch.cuda.device(tensor.device), a context manager. */
static PyObject *device_guard(const gpufi_py_state *state, PyObject *tensor) {
  PyObject *torch = PyImport_ImportModule("torch"); /* loaded already, as there is a tensor */
  PyObject *cuda = torch ? PyObject_GetAttr(torch, state->names.cuda) : NULL;
  PyObject *device = cuda ? PyObject_GetAttr(tensor, state->names.device) : NULL;
  PyObject *guard =
      device ? PyObject_CallMethodObjArgs(cuda, state->names.device, device, NULL) : NULL;
  Py_XDECREF(device);
  Py_XDECREF(cuda);
  Py_XDECREF(torch);
  return guard;
}

/* call(state, tensor) within `guard`. A failure to leave it is a failure of the call. */
static PyObject *call_guarded(const gpufi_py_state *state, PyObject *guard, PyObject *tensor,
                              PyObject *(*call)(const gpufi_py_state *, PyObject *)) {
  PyObject *entered = PyObject_CallMethodObjArgs(guard, state->names.__enter__, NULL);
  if (!entered) {
    return NULL;
  }
  PyObject *result = call(state, tensor);
  const gpufi_py_exception raised = gpufi_py_exception_take();
  PyObject *left =
      PyObject_CallMethodObjArgs(guard, state->names.__exit__, Py_None, Py_None, Py_None, NULL);
  if (!left) {
    Py_CLEAR(result);
  }
  gpufi_py_exception_restore(raised);
  Py_XDECREF(left);
  Py_DECREF(entered);
  return result;
}

PyObject *gpufi_py_torch_on_device(const gpufi_py_state *state, PyObject *tensor,
                                   PyObject *(*call)(const gpufi_py_state *, PyObject *)) {
  const gpufi_py_exception first = gpufi_py_exception_take();
  PyObject *guard = device_guard(state, tensor);
  PyObject *result = guard ? call_guarded(state, guard, tensor, call) : NULL;
  Py_XDECREF(guard);
  if (result) {
    gpufi_py_exception_drop(first);
  } else {
    gpufi_py_exception_restore(first);
  }
  return result;
}
