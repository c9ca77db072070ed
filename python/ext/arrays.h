/* NumPy arrays and tensors in CPU memory. */
#ifndef GPUFI_PY_ARRAYS_H
#define GPUFI_PY_ARRAYS_H

#include "state.h"

/* -1 with TypeError for a masked array. */
int gpufi_py_refuse_masked(PyObject *array);

/* Describe the memory of `array` (an ndarray): device cpu, stream none. The tensor is valid while
 * the array lives. TypeError for a masked array or a dtype without counterpart, ValueError for more
 * than GPUF_NDIM_MAX axes. */
int gpufi_py_tensor_from_array(const gpufi_py_state *state, PyObject *array, gpuf_tensor *tensor);

/* A fresh ndarray in C order in NumPy's own memory, not initialized. */
PyObject *gpufi_py_array_create(const gpufi_py_state *state, gpuf_dtype dtype, int32_t ndim,
                                const int64_t *shape);
/* A writable ndarray over the memory that `tensor` (on the CPU) describes. `owner` keeps the memory
 * alive; its reference is taken over, also on failure. */
PyObject *gpufi_py_array_over(const gpufi_py_state *state, const gpuf_tensor *tensor,
                              PyObject *owner);

#endif
