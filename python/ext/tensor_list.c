#include "tensor_list.h"

#include <stdlib.h>

#include "arguments.h"

void gpufi_py_tensors_clear(gpufi_py_tensor_list *list) {
  for (Py_ssize_t i = 0; i < list->count; i++) {
    gpufi_py_import_clear(&list->imports[i]);
  }
  free(list->imports);
}

int gpufi_py_tensors_import(gpufi_py_state *state, PyObject *tuple, gpufi_py_tensor_list *list) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  *list = (gpufi_py_tensor_list){NULL, 0};
  if (count < 0) {
    return -1;
  }
  list->imports = calloc((size_t)count + 1, sizeof(*list->imports));
  if (!list->imports) {
    PyErr_NoMemory();
    return -1;
  }
  for (; list->count < count; list->count++) {
    PyObject *const x = PyTuple_GetItem(tuple, list->count);
    if (!x || gpufi_py_adapter_import(state, x, &list->imports[list->count]) < 0) {
      gpufi_py_tensors_clear(list);
      *list = (gpufi_py_tensor_list){NULL, 0};
      return -1;
    }
  }
  return 0;
}

int gpufi_py_tensors_names(PyObject *tuple, const gpufi_py_tensor_list *list, const char ***names) {
  if (PyTuple_Size(tuple) != list->count) {
    PyErr_SetString(PyExc_ValueError, "there must be a name for each tensor");
    return -1;
  }
  const char **const all = calloc((size_t)list->count + 1, sizeof(*all));
  *names = all;
  if (!all) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < list->count; i++) {
    PyObject *const name = PyTuple_GetItem(tuple, i);
    all[i] = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!all[i]) {
      return -1;
    }
  }
  return 0;
}

int gpufi_py_tensors_parts(PyObject *tuple, const gpufi_py_tensor_list *list,
                           gpufi_py_part_list *parts) {
  const size_t count = (size_t)list->count;
  parts->all = calloc(count + 1, sizeof(*parts->all));
  parts->are_parts = calloc(count + 1, sizeof(*parts->are_parts));
  if (!parts->all || !parts->are_parts) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < list->count; i++) {
    const int32_t ndim = list->imports[i].tensor.ndim;
    PyObject *const given = PyTuple_GetItem(tuple, i);
    parts->are_parts[i] = given && given != Py_None;
    if (!given || (parts->are_parts[i] && gpufi_py_part(given, ndim, &parts->all[i]) < 0)) {
      return -1;
    }
  }
  return 0;
}

void gpufi_py_parts_clear(gpufi_py_part_list *parts) {
  free(parts->all);
  free(parts->are_parts);
}
