/* Whether tensors that are to be filled share memory. */
#include <stdlib.h>

#include "core/geometry.h"
#include "core/overlap.h"
#include "errors.h"
#include "methods.h"
#include "tensor_list.h"

/* A tensor, the addresses from its first byte to behind its last, and what it is filled with. */
typedef struct extent {
  uintptr_t low;
  uintptr_t high;
  const gpuf_tensor *tensor;
  PyObject *content;
  Py_ssize_t index;
} extent;

static int by_low(const void *a, const void *b) {
  const uintptr_t low = ((const extent *)a)->low;
  const uintptr_t other = ((const extent *)b)->low;
  return (low > other) - (low < other);
}

/* Whether one would be filled over the other: 1 or 0, and -1 for an error. */
static int clash(const extent *a, const extent *b) {
  if (!gpufi_tensors_overlap(a->tensor, b->tensor)) {
    return 0;
  }
  if (a->tensor->dtype != b->tensor->dtype || !gpufi_tensors_coincide(a->tensor, b->tensor)) {
    return 1;
  }
  return PyObject_RichCompareBool(a->content, b->content, Py_NE);
}

/* Whether two of the tensors clash, which are *a and *b, then: 1 or 0, and -1 for an error. */
static int find_clash(extent *all, Py_ssize_t count, Py_ssize_t *a, Py_ssize_t *b) {
  qsort(all, (size_t)count, sizeof(*all), by_low);
  for (Py_ssize_t i = 0; i < count; i++) {
    for (Py_ssize_t k = i + 1; k < count && all[k].low < all[i].high; k++) {
      const int found = clash(&all[i], &all[k]);
      if (found != 0) {
        *a = all[i].index < all[k].index ? all[i].index : all[k].index;
        *b = all[i].index + all[k].index - *a;
        return found;
      }
    }
  }
  return 0;
}

static PyObject *find_overlap(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_tensor_list list;
  gpuf_error err;
  Py_ssize_t a, b;
  PyObject *tuple, *contents;
  if (!PyArg_ParseTuple(args, "O!O!:find_overlap", &PyTuple_Type, &tuple, &PyTuple_Type,
                        &contents)) {
    return NULL;
  }
  if (PyTuple_Size(contents) != PyTuple_Size(tuple)) {
    PyErr_SetString(PyExc_ValueError, "there must be a content for each tensor");
    return NULL;
  }
  if (gpufi_py_tensors_import(state, tuple, &list) < 0) {
    return NULL;
  }
  PyObject *result = NULL;
  extent *const all = malloc(((size_t)list.count + 1) * sizeof(*all));
  if (!all) {
    PyErr_NoMemory();
    goto done;
  }
  for (Py_ssize_t i = 0; i < list.count; i++) {
    all[i] = (extent){
        .tensor = &list.imports[i].tensor, .content = PyTuple_GetItem(contents, i), .index = i};
    if (gpuf_tensor_check(all[i].tensor, &err) != GPUF_OK) {
      gpufi_py_raise(state, &err);
      goto done;
    }
    gpufi_tensor_extent(all[i].tensor, &all[i].low, &all[i].high);
  }
  const int found = find_clash(all, list.count, &a, &b);
  if (found >= 0) {
    result = found ? Py_BuildValue("(nn)", a, b) : Py_NewRef(Py_None);
  }
done:
  free(all);
  gpufi_py_tensors_clear(&list);
  return result;
}

PyDoc_STRVAR(find_overlap_doc,
             "find_overlap(tensors, contents, /)\n--\n\n"
             "The indices of two of a tuple of tensors, of any framework and on any device, that\n"
             "share memory; None if there are none. Those that are the same elements, as one\n"
             "tensor that is there twice, do not count where their contents are equal.");

PyMethodDef gpufi_py_overlap_methods[] = {
    {"find_overlap", find_overlap, METH_VARARGS, find_overlap_doc},
    {0},
};
