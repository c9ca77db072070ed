/* Import of tensors from DLPack capsules. */
#ifndef GPUFI_PY_DLPACK_IN_H
#define GPUFI_PY_DLPACK_IN_H

#include "import.h"

/* Take the tensor out of a DLPack capsule of either kind; consumes it. import->keepalive is the
 * capsule, whose destructor now runs the producer's deleter. TypeError or ValueError for a tensor
 * that is not supported, BufferError for another major version. */
int gpufi_py_dlpack_take(PyObject *capsule, gpufi_py_import *import);

#endif
