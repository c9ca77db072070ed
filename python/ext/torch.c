/* What is particular about PyTorch's tensors. */
#include "torch.h"

#include "errors.h"
#include "package.h"

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

/* Replace *tensor (a strong reference) by what its method `remedy` returns, if `name` is set: 1
 * then, 0 if it is not set, -1 with an exception set. */
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
  return 1;
}

/* torch exports a tensor with the negative bit set as if it were not, so this cannot wait for an
 * error. */
int gpufi_py_torch_resolve(const gpufi_py_state *state, PyObject **tensor, const char **copied) {
  const gpufi_py_names *names = &state->names;
  const int detached = resolve(tensor, names->requires_grad, false, names->detach);
  const int conj = detached < 0 ? -1 : resolve(tensor, names->is_conj, true, names->resolve_conj);
  const int neg = conj < 0 ? -1 : resolve(tensor, names->is_neg, true, names->resolve_neg);
  if (conj > 0 || neg > 0) {
    *copied = conj > 0 ? "its conjugate bit is set: call x.resolve_conj() first"
                       : "its negative bit is set: call x.resolve_neg() first";
  }
  return neg < 0 ? -1 : 0;
}

/* The truth of module.name(tensor); false where there is no such function. */
static bool torch_says(const char *module_name, const char *name, PyObject *tensor) {
  PyObject *module = PyImport_ImportModule(module_name);
  PyObject *answer = module ? PyObject_CallMethod(module, name, "O", tensor) : NULL;
  const bool result = answer && PyObject_IsTrue(answer) > 0;
  Py_XDECREF(answer);
  Py_XDECREF(module);
  PyErr_Clear();
  return result;
}

/* vmap, grad and jvp of torch.func, functionalization, FakeTensor, torch.export and make_fx. */
static bool is_traced(PyObject *tensor) {
  return torch_says("torch._C._functorch", "is_functorch_wrapped_tensor", tensor) ||
         torch_says("torch", "_is_functional_tensor", tensor) ||
         gpufi_py_is_of_package((PyObject *)Py_TYPE(tensor), "torch._subclasses");
}

/* Whether str(tensor.<name>) begins with `start`; `otherwise` where there is no such attribute. */
static bool attribute_begins(PyObject *tensor, PyObject *name, const char *start, bool otherwise) {
  PyObject *value = PyObject_GetAttr(tensor, name);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  const bool result = bytes ? strncmp(bytes, start, strlen(start)) == 0 : otherwise;
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(value);
  return result;
}

/* The number that a method of `object` gives, or -1 if it gives none. */
static long long number_of(PyObject *object, const char *method) {
  PyObject *value = PyObject_CallMethod(object, method, NULL);
  const long long number = value && PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
  Py_XDECREF(value);
  PyErr_Clear();
  return number;
}

/* Why `tensor`, which has elements, has no memory, or NULL if it has. */
static const char *find_memory_reason(PyObject *tensor) {
  if (number_of(tensor, "data_ptr") != 0 || number_of(tensor, "numel") == 0) {
    return NULL;
  }
  PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
  const bool freed = storage && number_of(storage, "nbytes") == 0;
  Py_XDECREF(storage);
  PyErr_Clear();
  return freed
             ? "its storage was freed (FSDP does so between uses): gather it first, with "
               "FSDP.summon_full_params(model) or module.unshard()"
             : "its type wraps other tensors and has no memory of its own: take these, or a plain "
               "tensor (x.full_tensor() or x.to_local() of a DTensor, x.to_tensor(value) of a "
               "MaskedTensor)";
}

/* Why `tensor` has no plain elements and what to call, or NULL if it has. Clears exceptions. */
static const char *find_reason(const gpufi_py_state *state, PyObject *tensor) {
  const gpufi_py_names *names = &state->names;
  if (is_traced(tensor)) {
    return "it is traced (by torch.func's vmap, grad or jvp, by FakeTensorMode, torch.export or "
           "make_fx) and has no elements: call gpufetch outside of the traced function";
  }
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
  if (!attribute_begins(tensor, names->layout, "torch.strided", true)) {
    return "its layout is not strided (sparse, mkldnn): call x.to_dense() first, or take "
           "its parts apart";
  }
  if (quiet_flag_of(tensor, names->_is_zerotensor, true)) {
    return "it stands for zeros that torch keeps nowhere: call x.clone() first";
  }
  if (attribute_begins(tensor, names->dtype, "torch.bits", false)) {
    return "its dtype is bits without a meaning: x.view(torch.uint8) gives the bytes";
  }
  return find_memory_reason(tensor);
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
