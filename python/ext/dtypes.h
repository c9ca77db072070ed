/* Element types: gpuf_dtype and numpy.dtype in both directions. */
#ifndef GPUFI_PY_DTYPES_H
#define GPUFI_PY_DTYPES_H

#include "state.h"

/* Import ml_dtypes and fill state->descrs. */
int gpufi_py_dtypes_init(gpufi_py_state *state);
/* The gpuf_dtype of a NumPy dtype. TypeError, naming it and a remedy, where there is none. */
int gpufi_py_dtype_from_descr(const gpufi_py_state *state, PyObject *descr, gpuf_dtype *dtype);
/* The gpuf_dtype of what a caller passes as a dtype: anything that numpy.dtype takes, ml_dtypes'
 * own types, a name such as "bfloat16", and the dtypes of PyTorch, JAX and TensorFlow. TypeError as
 * above. */
int gpufi_py_dtype_parse(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype);

#endif
