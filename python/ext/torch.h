/* What is particular about PyTorch's tensors. */
#ifndef GPUFI_PY_TORCH_H
#define GPUFI_PY_TORCH_H

#include "import.h"
#include "state.h"

/* Is this torch's type of tensors, or a subtype? */
bool gpufi_py_is_torch(const gpufi_py_state *state, PyObject *type);
/* 1 if the tensor is in CUDA memory, 0 if not, -1 with an exception set. */
int gpufi_py_torch_is_on_cuda(const gpufi_py_state *state, PyObject *tensor);
/* Replace *tensor (a strong reference) by one without the states that torch leaves to the caller
 * before an export: a gradient, and the conjugate and negative bits. Without these bits it is a
 * copy, and *copied then says why. */
int gpufi_py_torch_resolve(const gpufi_py_state *state, PyObject **tensor, const char **copied);
/* Refuse torch's integers of fewer than 8 bits, which it exports as 8-bit ones, and clear the
 * import. */
int gpufi_py_torch_check_dtype(const gpufi_py_state *state, PyObject *tensor,
                               gpufi_py_import *import);
/* An exception is set because `tensor` could not be exported. If the tensor is of a kind without
 * plain elements, replace it by a TypeError that says so and what to call. */
void gpufi_py_torch_explain(const gpufi_py_state *state, PyObject *tensor);
/* An exception is set because torch exports only from its current device. Return call(state,
 * tensor), with the tensor's device current meanwhile; where that fails too, NULL with the first
 * exception, whose message is the better one. */
PyObject *gpufi_py_torch_on_device(const gpufi_py_state *state, PyObject *tensor,
                                   PyObject *(*call)(const gpufi_py_state *, PyObject *));

#endif
