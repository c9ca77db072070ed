/* What is particular about TensorFlow's tensors. */
#ifndef GPUFI_PY_TENSORFLOW_H
#define GPUFI_PY_TENSORFLOW_H

#include "api.h"

/* Is this one of TensorFlow's types? */
bool gpufi_py_is_tensorflow(PyObject *type);
/* Refuse tensors without plain elements: TensorFlow ends the process if it is asked to export a
 * string tensor. */
int gpufi_py_tensorflow_check(PyObject *tensor);
/* The exception that is set is TensorFlow's own: make it a TypeError with a remedy. */
void gpufi_py_tensorflow_explain(PyObject *tensor);
/* The value of a Variable. For any other object of TensorFlow's that has no __dlpack__, NULL with a
 * TypeError that says what to call. */
PyObject *gpufi_py_tensorflow_value(PyObject *object);

#endif
