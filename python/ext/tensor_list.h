/* The tensors of a tree, with their names and the boxes that they are. */
#ifndef GPUFI_PY_TENSOR_LIST_H
#define GPUFI_PY_TENSOR_LIST_H

#include <gpufetch/checkpoint.h>

#include "adapter.h"

/* Zeroed: none. */
typedef struct gpufi_py_tensor_list {
  gpufi_py_import *imports;
  Py_ssize_t count;
} gpufi_py_tensor_list;

/* Import each tensor of a tuple; nothing is left to clear after a failure. */
int gpufi_py_tensors_import(gpufi_py_state *state, PyObject *tuple, gpufi_py_tensor_list *list);
void gpufi_py_tensors_clear(gpufi_py_tensor_list *list);

/* The texts of the str in a tuple as long as the list, which own them. The caller frees the array,
 * also after a failure. */
int gpufi_py_tensors_names(PyObject *tuple, const gpufi_py_tensor_list *list, const char ***names);

/* Zeroed: none. */
typedef struct gpufi_py_part_list {
  gpuf_part *all;
  bool *are_parts; /* the others are whole */
} gpufi_py_part_list;

/* From a tuple that has for each tensor None, or what gpufi_py_part takes. Clear it also after a
 * failure. */
int gpufi_py_tensors_parts(PyObject *tuple, const gpufi_py_tensor_list *list,
                           gpufi_py_part_list *parts);
void gpufi_py_parts_clear(gpufi_py_part_list *parts);

#endif
