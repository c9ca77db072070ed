/* to_device and asdevice: how a DeviceArray comes to be. */
#include "core.h"

static PyObject *refuse_device_source(const gpuf_tensor *tensor) {
  char text[32];
  PyErr_Format(PyExc_TypeError,
               "the array is on %s already: wrap it with asdevice(x), or pass fetch(x) to copy it",
               gpufi_py_device_text(tensor->device, text));
  return NULL;
}

/* Describe what to_device is given: a CPU tensor, or anything that numpy.asarray takes. */
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

/* The memory on `device` and the copy into it. `target` is filled. */
static gpuf_status alloc_and_copy(const gpuf_tensor *source, gpuf_device device, gpuf_dtype dtype,
                                  gpuf_tensor *target, void **d_data, gpuf_error *err) {
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .cast = true};
  gpuf_status status = gpuf_tensor_check(source, err);
  if (status == GPUF_OK) { /* with the right size, before there is memory */
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
  Py_BEGIN_ALLOW_THREADS status = alloc_and_copy(source, device, dtype, &target, &d_data, &err);
  if (status != GPUF_OK) {
    gpuf_free(device, d_data, NULL);
  }
  Py_END_ALLOW_THREADS if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  /* Others may be given the memory and write to it, by custom in order with the default stream. */
  target.stream = device.kind == GPUF_DEVICE_CUDA ? GPUF_STREAM_LEGACY : GPUF_STREAM_NONE;
  PyObject *array = gpufi_py_device_array_create(state, &target, false, NULL);
  if (!array) {
    Py_BEGIN_ALLOW_THREADS gpuf_free(device, d_data, NULL);
    Py_END_ALLOW_THREADS return NULL;
  }
  ((gpufi_py_device_array *)array)->d_owned = d_data;
  return array;
}

PyObject *gpufi_py_to_device(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
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

PyObject *gpufi_py_asdevice(PyObject *module, PyObject *object) {
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
