/* From any tensor object to a gpuf_tensor and what keeps its memory alive. Every function of the
 * module that takes a tensor calls this. */
#ifndef GPUFI_PY_ADAPTER_H
#define GPUFI_PY_ADAPTER_H

#include "import.h"
#include "state.h"

/* Describe any supported tensor without a copy: DeviceArray, ndarray, DLPack (versioned, then
 * legacy), __cuda_array_interface__. tensor.stream is set so that gpuf_copy waits for the
 * producer's pending work. End it with gpufi_py_import_clear; a failure leaves nothing to clear.
 * TypeError, naming what to call instead, for anything else. */
int gpufi_py_adapter_import(gpufi_py_state *state, PyObject *object, gpufi_py_import *import);
/* As gpufi_py_adapter_import, for what only reads the elements: those of another process's tensor,
 * which a LazyArray may stand for, are pulled into an ndarray first. */
int gpufi_py_adapter_pull(gpufi_py_state *state, PyObject *object, gpufi_py_import *import);
/* For what reads the tensor later or writes to it: refuse an import whose memory is a copy, with a
 * TypeError that says why, and clear it. `what` begins the message. */
int gpufi_py_adapter_refuse_copy(gpufi_py_import *import, const char *what);

#endif
