/* fetch, for the module's other files. */
#ifndef GPUFI_PY_FETCH_H
#define GPUFI_PY_FETCH_H

#include "state.h"

/* Copy `tensor` into a fresh ndarray in an order of 'C', 'F', 'A' and 'K', with the GIL released
 * meanwhile. The caller keeps the tensor's memory alive. */
PyObject *gpufi_py_fetch_tensor(gpufi_py_state *state, const gpuf_tensor *tensor, char order);

#endif
