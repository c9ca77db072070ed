/* to_device, asdevice, _restride and _components, which return a DeviceArray, and _copy_into, which
 * fills one.
 */
#include "adapter.h"
#include "arguments.h"
#include "arrays.h"
#include "device_array.h"
#include "devices.h"
#include "dtypes.h"
#include "errors.h"
#include "methods.h"

#include "core/geometry.h"

static PyObject *refuse_device_source(const gpuf_tensor *tensor) {
  char text[32];
  PyErr_Format(PyExc_TypeError,
               "the array is on %s already: wrap it with asdevice(x), or pass fetch(x) to copy it",
               gpufi_py_device_text(tensor->device, text));
  return NULL;
}

/* Import the argument of to_device: a CPU tensor, or anything that numpy.asarray takes. */
static int import_source(gpufi_py_state *state, PyObject *object, gpufi_py_import *source) {
  if (PyArray_Check(object) || PyObject_HasAttr(object, state->names.__dlpack__) ||
      PyObject_HasAttr(object, state->names.__cuda_array_interface__)) {
    return gpufi_py_adapter_import(state, object, source);
  }
  PyObject *array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
  if (!array) {
    return -1;
  }
  const int status = gpufi_py_adapter_import(state, array, source);
  Py_DECREF(array);
  return status;
}

/* Allocate memory on `device` and copy to it. `target` describes the result. *d_data must be freed
 * even when this fails. */
static gpuf_status alloc_and_copy(const gpuf_tensor *source, gpuf_device device, gpuf_dtype dtype,
                                  gpuf_tensor *target, void **d_data, gpuf_error *err) {
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .cast = true};
  gpuf_status status = gpuf_tensor_check(source, err);
  if (status == GPUF_OK) { /* for its size; the address follows */
    status = gpuf_tensor_init(target, (void *)1, device, dtype, source->ndim, source->shape, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_alloc(device, gpuf_tensor_nbytes(target), d_data, err);
  }
  if (status == GPUF_OK) {
    target->data = *d_data;
    status = gpuf_copy(target, source, &options, err);
  }
  return status;
}

static PyObject *upload(const gpufi_py_state *state, const gpuf_tensor *source, gpuf_device device,
                        gpuf_dtype dtype) {
  gpuf_error err;
  gpuf_tensor target;
  void *d_data = NULL;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = alloc_and_copy(source, device, dtype, &target, &d_data, &err);
    if (status != GPUF_OK) {
      gpuf_free(device, d_data, NULL);
    }
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  target.stream = gpufi_py_device_stream(device); /* others may write to the memory */
  return gpufi_py_device_array_own(state, &target);
}

static PyObject *to_device(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_device device;
  gpuf_dtype dtype = 0;
  PyObject *device_name = Py_None, *dtype_name = Py_None;
  PyObject *const names[] = {state->names.device, state->names.dtype, NULL};
  PyObject **values[] = {&device_name, &dtype_name};
  if (gpufi_py_keywords("to_device", args, nargs, 1, kwnames, names, values) < 0 ||
      gpufi_py_device_parse(state, device_name, &device) < 0 ||
      (dtype_name != Py_None && gpufi_py_dtype_parse(state, dtype_name, &dtype) < 0)) {
    return NULL;
  }
  if (device.kind == GPUF_DEVICE_CPU) {
    PyErr_SetString(PyExc_ValueError, "device \"cpu\" is no device: use \"cuda:0\" or \"host:0\"");
    return NULL;
  }
  if (gpufi_py_device_check(state, device) < 0 || import_source(state, args[0], &source) < 0) {
    return NULL;
  }
  PyObject *array = source.tensor.device.kind == GPUF_DEVICE_CPU
                        ? upload(state, &source.tensor, device, dtype ? dtype : source.tensor.dtype)
                        : refuse_device_source(&source.tensor);
  gpufi_py_import_clear(&source);
  return array;
}

static PyObject *asdevice(PyObject *module, PyObject *object) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_error err;
  if (Py_TYPE(object) == state->device_array_type) {
    Py_INCREF(object);
    return object;
  }
  if (gpufi_py_adapter_import(state, object, &source) < 0) {
    return NULL;
  }
  PyObject *array = NULL;
  if (gpuf_tensor_check(&source.tensor, &err) != GPUF_OK) {
    gpufi_py_raise(state, &err);
  } else if (gpufi_py_device_check(state, source.tensor.device) == 0) {
    array = gpufi_py_device_array_create(state, &source.tensor, source.readonly, source.keepalive);
  }
  gpufi_py_import_clear(&source);
  return array;
}

/* Import the two arguments of _copy_into. On failure nothing is left to clear. */
static int import_pair(gpufi_py_state *state, PyObject *const *args, gpufi_py_import *out,
                       gpufi_py_import *source) {
  if (gpufi_py_adapter_import(state, args[0], out) < 0) {
    return -1;
  }
  if (gpufi_py_adapter_refuse_copy(out, "out") == 0) {
    if (out->readonly) {
      PyErr_SetString(PyExc_ValueError, "out is read-only: give a writable array");
    } else if (gpufi_py_adapter_import(state, args[1], source) == 0) {
      return 0;
    }
  }
  gpufi_py_import_clear(out);
  return -1;
}

static PyObject *copy_into(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import out, source;
  gpuf_status status;
  gpuf_error err;
  if (nargs != 2) {
    PyErr_Format(PyExc_TypeError, "_copy_into takes 2 arguments, not %zd", nargs);
    return NULL;
  }
  if (import_pair(state, args, &out, &source) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_copy(&out.tensor, &source.tensor, NULL, &err);
  Py_END_ALLOW_THREADS
  gpufi_py_import_clear(&source);
  gpufi_py_import_clear(&out);
  return status == GPUF_OK ? Py_NewRef(args[0]) : gpufi_py_raise(state, &err);
}

/* True if the elements of `tensor` lie within the extent of `array`. Both tensors were checked. */
static bool lies_within(const gpuf_tensor *tensor, const gpuf_tensor *array) {
  uintptr_t low, high, array_low, array_high;
  gpufi_tensor_extent(tensor, &low, &high);
  gpufi_tensor_extent(array, &array_low, &array_high);
  return low == high || (low >= array_low && high <= array_high);
}

static PyObject *restride(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *shape, *strides;
  gpufi_py_device_array *array;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "O!OO:_restride", state->device_array_type, &array, &shape,
                        &strides)) {
    return NULL;
  }
  gpuf_tensor tensor = array->tensor;
  if (gpufi_py_axes_any(shape, "shape", &tensor.ndim, tensor.shape) < 0 ||
      gpufi_py_axes(strides, "strides", tensor.ndim, tensor.strides_nbytes) < 0) {
    return NULL;
  }
  if (gpuf_tensor_check(&tensor, &err) != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  if (!lies_within(&tensor, &array->tensor)) {
    PyErr_Format(PyExc_ValueError, "shape %S with strides %S reaches outside the array", shape,
                 strides);
    return NULL;
  }
  return gpufi_py_device_array_view(array, &tensor);
}

static PyObject *components(PyObject *module, PyObject *object) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  if (Py_TYPE(object) != state->device_array_type) {
    PyErr_SetString(PyExc_TypeError, "_components takes a DeviceArray");
    return NULL;
  }
  gpufi_py_device_array *array = (gpufi_py_device_array *)object;
  gpuf_tensor tensor = array->tensor;
  if (tensor.dtype != GPUF_DTYPE_COMPLEX64 && tensor.dtype != GPUF_DTYPE_COMPLEX128) {
    PyErr_SetString(PyExc_TypeError, "_components takes a complex array");
    return NULL;
  }
  if (tensor.ndim == GPUF_NDIM_MAX) {
    return PyErr_Format(PyExc_ValueError,
                        "the components of %d axes take one more than there may be: index one",
                        (int)tensor.ndim);
  }
  const bool is_wide = tensor.dtype == GPUF_DTYPE_COMPLEX128;
  tensor.dtype = is_wide ? GPUF_DTYPE_FLOAT64 : GPUF_DTYPE_FLOAT32;
  tensor.shape[tensor.ndim] = 2;
  tensor.strides_nbytes[tensor.ndim] = is_wide ? 8 : 4;
  tensor.ndim++;
  return gpufi_py_device_array_view(array, &tensor);
}

PyDoc_STRVAR(to_device_doc,
             "to_device(array, *, device=None, dtype=None)\n--\n\n"
             "Copy an array on the CPU, of any layout, to a new DeviceArray in C order.\n\n"
             "array: anything that numpy.asarray takes. device: \"cuda:0\", \"host:0\" or None,\n"
             "the default device. dtype: convert on the device, as fetch does.\n\n"
             "Raises TypeError for a tensor on a device, ValueError for a device that does not\n"
             "exist, MemoryError if the device is full, and gpufetch.Error if it fails. Releases\n"
             "the GIL; may be called from any thread.");

PyDoc_STRVAR(asdevice_doc,
             "asdevice(x, /)\n--\n\n"
             "Wrap any tensor that fetch takes as a DeviceArray, without a copy; keeps x alive.\n\n"
             "A torch tensor with its conjugate or negative bit set is resolved into new memory.\n"
             "A later fetch waits for the work that is pending on x now, and for later work on\n"
             "the device's default stream. After later work on another stream, wrap x again or\n"
             "synchronize. Raises TypeError for an object that is no tensor. May be called from\n"
             "any thread.");

PyDoc_STRVAR(copy_into_doc,
             "_copy_into(out, array, /)\n--\n\n"
             "Copy an array on the CPU to a writable tensor of its shape and dtype, of any layout\n"
             "and on any device; returns `out`. ValueError or gpufetch.Error if it does not fit.");

PyDoc_STRVAR(restride_doc,
             "_restride(array, shape, strides, /)\n--\n\n"
             "A view of a DeviceArray with the same first element and the given shape and\n"
             "strides in bytes (tuples). ValueError if it would reach outside the array's extent.");

PyDoc_STRVAR(components_doc,
             "_components(array, /)\n--\n\n"
             "A view of a complex DeviceArray as floats: real and imaginary parts along a further\n"
             "last axis. TypeError for another dtype, ValueError if there are too many axes.");

PyMethodDef gpufi_py_device_methods[] = {
    {"to_device", GPUFI_PY_METHOD(to_device), METH_FASTCALL | METH_KEYWORDS, to_device_doc},
    {"asdevice", asdevice, METH_O, asdevice_doc},
    {"_copy_into", GPUFI_PY_METHOD(copy_into), METH_FASTCALL, copy_into_doc},
    {"_restride", restride, METH_VARARGS, restride_doc},
    {"_components", components, METH_O, components_doc},
    {0},
};
