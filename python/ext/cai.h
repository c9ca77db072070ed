/* Import of tensors through __cuda_array_interface__, versions 0 to 3. */
#ifndef GPUFI_PY_CAI_H
#define GPUFI_PY_CAI_H

#include "import.h"
#include "state.h"

/* 1 when `object` was imported, 0 if it has no such attribute, -1 with an exception set. */
int gpufi_py_cai_import(const gpufi_py_state *state, PyObject *object, gpufi_py_import *import);

#endif
