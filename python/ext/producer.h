/* Tensors of other libraries, through DLPack as each of these offers it. */
#ifndef GPUFI_PY_PRODUCER_H
#define GPUFI_PY_PRODUCER_H

#include "import.h"
#include "state.h"

/* Import an object that has __dlpack__, through the C exchange API where its type has one; through
 * __cuda_array_interface__ if the producer refuses and has that too. */
int gpufi_py_producer_import(gpufi_py_state *state, PyObject *object, gpufi_py_import *import);

#endif
