/* Basic indexing of a descriptor. */
#ifndef GPUFI_PY_INDEX_H
#define GPUFI_PY_INDEX_H

#include "api.h"

/* Narrow `tensor` by a subscript of ints, slices, ... and None. IndexError or TypeError, after
 * which the tensor's contents are unspecified. */
int gpufi_py_index(gpuf_tensor *tensor, PyObject *key);

#endif
