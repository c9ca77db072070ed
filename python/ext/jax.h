/* What is particular about JAX's arrays. */
#ifndef GPUFI_PY_JAX_H
#define GPUFI_PY_JAX_H

#include "api.h"

/* Is this one of JAX's types? */
bool gpufi_py_is_jax(PyObject *type);
/* An exception is set because `array` could not be exported, or has no __dlpack__. If it is of a
 * kind without elements on one device, replace the exception by a TypeError that says so and what
 * to do. */
void gpufi_py_jax_explain(PyObject *array);

#endif
