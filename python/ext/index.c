/* Basic indexing of a descriptor: ints, slices, ... and None. */
#include "index.h"

#include "delegate.h"

#include <string.h>

static void remove_axis(gpuf_tensor *tensor, int32_t axis) {
  const size_t after = sizeof(int64_t) * (size_t)(tensor->ndim - axis - 1);
  memmove(&tensor->shape[axis], &tensor->shape[axis + 1], after);
  memmove(&tensor->strides_nbytes[axis], &tensor->strides_nbytes[axis + 1], after);
  tensor->ndim--;
}

static int insert_axis(gpuf_tensor *tensor, int32_t axis) {
  const size_t after = sizeof(int64_t) * (size_t)(tensor->ndim - axis);
  if (tensor->ndim == GPUF_NDIM_MAX) {
    PyErr_Format(PyExc_IndexError, "None would make more than %d dimensions", GPUF_NDIM_MAX);
    return -1;
  }
  memmove(&tensor->shape[axis + 1], &tensor->shape[axis], after);
  memmove(&tensor->strides_nbytes[axis + 1], &tensor->strides_nbytes[axis], after);
  tensor->shape[axis] = 1;
  tensor->strides_nbytes[axis] = 0;
  tensor->ndim++;
  return 0;
}

/* IndexError for an item that is no index in NumPy either, else TypeError with the remedy. */
static int refuse_item(PyObject *item) {
  PyErr_Clear();
  Py_XDECREF(gpufi_py_delegate("gpufetch._device_array", "refuse_index", item, NULL, NULL));
  return -1;
}

static int index_int(gpuf_tensor *tensor, int32_t axis, int32_t source_axis, PyObject *item) {
  const int64_t extent = tensor->shape[axis];
  PyObject *number = PyNumber_Index(item);
  if (!number) { /* an array that is no integer, though its type can be */
    return PyErr_ExceptionMatches(PyExc_TypeError) ? refuse_item(item) : -1;
  }
  const Py_ssize_t given = PyLong_AsSsize_t(number);
  if (given == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    PyErr_Format(PyExc_IndexError, "index %S is out of bounds for axis %d with size %lld", number,
                 (int)source_axis, (long long)extent);
    Py_DECREF(number);
    return -1;
  }
  Py_DECREF(number);
  const int64_t index = given < 0 ? given + extent : given;
  if (index < 0 || index >= extent) {
    PyErr_Format(PyExc_IndexError, "index %zd is out of bounds for axis %d with size %lld", given,
                 (int)source_axis, (long long)extent);
    return -1;
  }
  tensor->data = (char *)tensor->data + index * tensor->strides_nbytes[axis];
  remove_axis(tensor, axis);
  return 0;
}

static int index_slice(gpuf_tensor *tensor, int32_t axis, PyObject *slice) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) {
    return -1;
  }
  const Py_ssize_t count =
      PySlice_AdjustIndices((Py_ssize_t)tensor->shape[axis], &start, &stop, step);
  if (count > 0) {
    tensor->data = (char *)tensor->data + start * tensor->strides_nbytes[axis];
  }
  /* With one element or none the stride does not matter, and its product with step could overflow.
   */
  if (count > 1) {
    tensor->strides_nbytes[axis] *= step;
  }
  tensor->shape[axis] = count;
  return 0;
}

/* An integer array without axes stands for its integer, as in NumPy. */
static bool is_basic_int(PyObject *item) {
  if (PyArray_Check(item)) {
    PyArrayObject *array = (PyArrayObject *)item;
    return PyArray_NDIM(array) == 0 && PyArray_ISINTEGER(array);
  }
  return PyIndex_Check(item) && !PyBool_Check(item);
}

/* The number of axes that the items index, or -1: an error for an item of advanced indexing. */
static int32_t count_axes(PyObject *const *items, Py_ssize_t item_count) {
  int32_t used = 0, ellipsis_count = 0;
  for (Py_ssize_t i = 0; i < item_count; i++) {
    if (items[i] == Py_Ellipsis) {
      ellipsis_count++;
    } else if (PySlice_Check(items[i]) || is_basic_int(items[i])) {
      used++;
    } else if (items[i] != Py_None) {
      return refuse_item(items[i]);
    }
  }
  if (ellipsis_count > 1) {
    PyErr_SetString(PyExc_IndexError, "an index can have only one ellipsis ('...')");
    return -1;
  }
  return used;
}

static int index_items(gpuf_tensor *tensor, PyObject *const *items, Py_ssize_t item_count) {
  const int32_t ndim = tensor->ndim;
  const int32_t used = count_axes(items, item_count);
  int32_t axis = 0, source_axis = 0; /* next axis of the view so far, and of the array indexed */
  if (used < 0) {
    return -1;
  }
  if (used > ndim) {
    PyErr_Format(PyExc_IndexError, "too many indices: the array has %d dimension%s, %d were given",
                 (int)ndim, ndim == 1 ? "" : "s", (int)used);
    return -1;
  }
  for (Py_ssize_t i = 0; i < item_count; i++) {
    int status = 0;
    if (items[i] == Py_Ellipsis) {
      axis += ndim - used;
      source_axis += ndim - used;
    } else if (items[i] == Py_None) {
      status = insert_axis(tensor, axis++);
    } else if (PySlice_Check(items[i])) {
      status = index_slice(tensor, axis++, items[i]);
      source_axis++;
    } else {
      status = index_int(tensor, axis, source_axis++, items[i]);
    }
    if (status < 0) {
      return -1;
    }
  }
  return 0;
}

int gpufi_py_index(gpuf_tensor *tensor, PyObject *key) {
  PyObject *items[2 * GPUF_NDIM_MAX + 1];
  if (!PyTuple_Check(key)) {
    return index_items(tensor, &key, 1);
  }
  const Py_ssize_t item_count = PyTuple_Size(key);
  if (item_count > GPUFI_PY_COUNT(items)) {
    PyErr_Format(PyExc_IndexError, "too many indices: %zd", item_count);
    return -1;
  }
  for (Py_ssize_t i = 0; i < item_count; i++) {
    items[i] = PyTuple_GetItem(key, i);
  }
  return index_items(tensor, items, item_count);
}
