/* Fresh arrays for what is read from files. */
#ifndef GPUFI_PY_RESULTS_H
#define GPUFI_PY_RESULTS_H

#include "import.h"
#include "state.h"

/* An ndarray for the CPU, or a DeviceArray, of the shape and dtype of `tensor`, which then
 * describes its memory. */
PyObject *gpufi_py_result_create(const gpufi_py_state *state, gpuf_device device,
                                 gpuf_tensor *tensor);
/* `out`, any writable tensor, as a result (new reference), which *import describes. It is empty
 * before, and to be cleared also after a failure. */
PyObject *gpufi_py_result_use(gpufi_py_state *state, PyObject *out, gpufi_py_import *import);

#endif
