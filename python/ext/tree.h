/* fetch of a tree: containers of tensors. */
#ifndef GPUFI_PY_TREE_H
#define GPUFI_PY_TREE_H

#include "state.h"

/* The same containers with an ndarray for each tensor. TypeError or ValueError names the place in
 * the tree of what could not be read. */
PyObject *gpufi_py_fetch_tree(gpufi_py_state *state, PyObject *object);

#endif
