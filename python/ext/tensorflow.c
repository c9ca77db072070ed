/* What is particular about TensorFlow's tensors. */
#include "tensorflow.h"

#include "errors.h"
#include "package.h"

bool gpufi_py_is_tensorflow(PyObject *type) {
  return gpufi_py_is_of_package(type, "tensorflow");
}

/* tensor.dtype.name; NULL without an exception if there is none. */
static PyObject *dtype_name(PyObject *tensor) {
  PyObject *dtype = PyObject_GetAttrString(tensor, "dtype");
  PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
  Py_XDECREF(dtype);
  PyErr_Clear();
  return name;
}

int gpufi_py_tensorflow_check(PyObject *tensor) {
  static const char *const refused[] = {"string", "resource", "variant"};
  PyObject *name = dtype_name(tensor);
  int status = 0;
  for (int i = 0; name && i < GPUFI_PY_COUNT(refused); i++) {
    if (PyUnicode_CompareWithASCIIString(name, refused[i]) == 0) {
      PyErr_Format(PyExc_TypeError,
                   "a TensorFlow tensor of dtype %U has no plain elements: call x.numpy(), or take "
                   "the tensors that it stands for",
                   name);
      status = -1;
    }
  }
  Py_XDECREF(name);
  return status;
}

void gpufi_py_tensorflow_explain(PyObject *tensor) {
  if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
    return;
  }
  const gpufi_py_exception raised = gpufi_py_exception_take();
  PyObject *name = dtype_name(tensor);
  gpufi_py_exception_restore(raised);
  if (name) {
    gpufi_py_raise_from(PyExc_TypeError,
                        "TensorFlow does not export this tensor of dtype %U: cast float8 to "
                        "tf.bfloat16, which is exact, call tf.quantization.dequantize for a "
                        "quantized one, and take a tensor out of its tf.function first",
                        name);
    Py_DECREF(name);
  }
}

PyObject *gpufi_py_tensorflow_value(PyObject *object) {
  if (PyObject_HasAttrString(object, "read_value") && PyObject_HasAttrString(object, "value")) {
    PyObject *value = PyObject_CallMethod(object, "value", NULL);
    if (!value || PyObject_HasAttrString(value, "__dlpack__")) {
      return value;
    }
    Py_DECREF(value);
  }
  PyErr_Format(PyExc_TypeError,
               "%S is no tensor with plain elements: call tf.sparse.to_dense(x) for a sparse one, "
               "x.to_tensor() for a ragged one",
               (PyObject *)Py_TYPE(object));
  return NULL;
}
