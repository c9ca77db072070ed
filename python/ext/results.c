#include "results.h"

#include "adapter.h"
#include "arrays.h"
#include "device_array.h"
#include "errors.h"

/* A fresh ndarray of the shape and dtype of `tensor`, which then describes it. */
static PyObject *create_array(const gpufi_py_state *state, gpuf_tensor *tensor) {
  PyObject *array = gpufi_py_array_create(state, tensor->dtype, tensor->ndim, tensor->shape);
  if (array && gpufi_py_tensor_from_array(state, array, tensor) < 0) {
    Py_CLEAR(array);
  }
  return array;
}

/* A fresh DeviceArray of the shape and dtype of `tensor`, which then describes it. */
static PyObject *create_device_array(const gpufi_py_state *state, gpuf_device device,
                                     gpuf_tensor *tensor) {
  const gpuf_tensor wanted = *tensor;
  void *d_data = NULL;
  gpuf_error err;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_alloc(device, gpuf_tensor_nbytes(&wanted), &d_data, &err);
    if (status == GPUF_OK) {
      status =
          gpuf_tensor_init(tensor, d_data, device, wanted.dtype, wanted.ndim, wanted.shape, &err);
      if (status != GPUF_OK) {
        gpuf_free(device, d_data, NULL);
      }
    }
  Py_END_ALLOW_THREADS
  return status == GPUF_OK ? gpufi_py_device_array_own(state, tensor) : gpufi_py_raise(state, &err);
}

PyObject *gpufi_py_result_create(const gpufi_py_state *state, gpuf_device device,
                                 gpuf_tensor *tensor) {
  return device.kind == GPUF_DEVICE_CPU ? create_array(state, tensor)
                                        : create_device_array(state, device, tensor);
}

PyObject *gpufi_py_result_use(gpufi_py_state *state, PyObject *out, gpufi_py_import *import) {
  if (gpufi_py_adapter_import(state, out, import) < 0 ||
      gpufi_py_adapter_refuse_copy(import, "out") < 0) {
    return NULL;
  }
  if (import->readonly) {
    PyErr_SetString(PyExc_ValueError, "out is read-only: give a writable array");
    return NULL;
  }
  return Py_NewRef(out);
}
