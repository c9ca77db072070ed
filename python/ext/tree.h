/* fetch of a tree: containers of tensors. */
#ifndef GPUFI_PY_TREE_H
#define GPUFI_PY_TREE_H

#include "request.h"

/* The same containers with an ndarray for each tensor. TypeError or ValueError names the place in
 * the tree of what could not be read. `wanted` holds for every tensor, and has no `out`. */
PyObject *gpufi_py_fetch_tree(gpufi_py_state *state, PyObject *object,
                              const gpufi_py_request *wanted);
/* Start the same on a thread of the library's: a gpufetch._core.Future of the containers. */
PyObject *gpufi_py_fetch_tree_async(gpufi_py_state *state, PyObject *object,
                                    const gpufi_py_request *wanted);

#endif
