/* fetch of a tree: containers of tensors. */
#ifndef GPUFI_PY_TREE_H
#define GPUFI_PY_TREE_H

#include "state.h"

/* 1 if `object` is a container that fetch looks into, 0 if not, -1 with an exception set. */
int gpufi_py_is_tree(gpufi_py_state *state, PyObject *object);
/* The same containers with an ndarray for each tensor. TypeError or ValueError names the place in
 * the tree of what could not be read. */
PyObject *gpufi_py_fetch_tree(gpufi_py_state *state, PyObject *object);

#endif
