/* From any tensor object to a gpuf_tensor and what keeps its memory alive. */
#include "adapter.h"

#include "arrays.h"
#include "attachment.h"
#include "cai.h"
#include "device_array.h"
#include "errors.h"
#include "jax.h"
#include "producer.h"
#include "tensorflow.h"

static int import_array(const gpufi_py_state *state, PyObject *array, gpufi_py_import *import) {
  if (gpufi_py_tensor_from_array(state, array, &import->tensor) < 0) {
    return -1;
  }
  import->readonly = !PyArray_ISWRITEABLE((PyArrayObject *)array);
  import->keepalive = Py_NewRef(array);
  return 0;
}

static int import_device_array(const gpufi_py_state *state, PyObject *object,
                               gpufi_py_import *import) {
  const gpufi_py_device_array *array = (gpufi_py_device_array *)object;
  if (gpufi_py_attachment_check(state, array->keepalive) < 0) {
    return -1;
  }
  import->tensor = array->tensor;
  import->readonly = array->readonly;
  /* An attachment itself, so that what is made of the import is checked as the array is. */
  import->keepalive =
      Py_NewRef(gpufi_py_attachment_of(array->keepalive) ? array->keepalive : object);
  return 0;
}

/* 1 when `object` was imported, 0 if it is no tensor, -1 with an exception set. */
static int import_foreign(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  if (PyObject_HasAttr(object, state->names.__dlpack__)) {
    return gpufi_py_producer_import(state, object, import) < 0 ? -1 : 1;
  }
  const int found = gpufi_py_cai_import(state, object, import);
  if (found != 0 || !gpufi_py_is_tensorflow((PyObject *)Py_TYPE(object))) {
    return found;
  }
  PyObject *value = gpufi_py_tensorflow_value(object);
  import->copied = "a variable is read into a tensor: pass x.value(), which stays as it is";
  const int status = value ? gpufi_py_producer_import(state, value, import) : -1;
  Py_XDECREF(value);
  return status < 0 ? -1 : 1;
}

static void refuse(PyObject *object, bool is_jax) {
  PyErr_Format(PyExc_TypeError,
               "%S is no tensor: it has neither __dlpack__ nor __cuda_array_interface__; pass a "
               "GPU array of PyTorch, CuPy, Numba, JAX ..., a gpufetch.DeviceArray or a NumPy "
               "array",
               (PyObject *)Py_TYPE(object));
  if (is_jax) {
    gpufi_py_jax_explain(object);
  }
}

int gpufi_py_adapter_import(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  import->keepalive = NULL;
  import->copied = NULL;
  if (Py_TYPE(object) == state->device_array_type) {
    return import_device_array(state, object, import);
  }
  if (PyArray_Check(object)) {
    return import_array(state, object, import);
  }
  /* A class has the methods of its instances, but no elements. */
  const bool is_class = PyType_Check(object);
  const int found = is_class ? 0 : import_foreign(state, object, import);
  if (found == 0) {
    refuse(object, !is_class && gpufi_py_is_jax((PyObject *)Py_TYPE(object)));
  }
  return found > 0 ? 0 : -1;
}

/* The elements of a tensor in another process as an ndarray; NULL without an exception where
 * `object` is none. */
static PyObject *pulled(PyObject *object) {
  PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "_gpufetch_pull");
  if (!method) {
    PyErr_Clear();
    return NULL;
  }
  PyObject *array = PyObject_CallFunctionObjArgs(method, object, NULL);
  Py_DECREF(method);
  if (array == Py_None) {
    Py_CLEAR(array);
  }
  return array;
}

int gpufi_py_adapter_pull(gpufi_py_state *state, PyObject *object, gpufi_py_import *import) {
  if (gpufi_py_adapter_import(state, object, import) == 0) {
    return 0;
  }
  if (!PyErr_ExceptionMatches(PyExc_BufferError)) {
    return -1;
  }
  const gpufi_py_exception refusal = gpufi_py_exception_take();
  PyObject *array = pulled(object);
  if (!array && !PyErr_Occurred()) {
    gpufi_py_exception_restore(refusal);
    return -1;
  }
  gpufi_py_exception_drop(refusal);
  const int status = array ? gpufi_py_adapter_import(state, array, import) : -1;
  Py_XDECREF(array);
  return status;
}

int gpufi_py_adapter_refuse_copy(gpufi_py_import *import, const char *what) {
  if (!import->copied) {
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "%s needs the tensor's own memory, and this would be a copy: %s",
               what, import->copied);
  gpufi_py_import_clear(import);
  return -1;
}
