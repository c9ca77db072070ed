/* Parsing of arguments, and tuples of ints in both directions. */
#include "arguments.h"

#include "errors.h"

#include <stdio.h>

/* Index of `name` in `names`, or -1. Interned strings are compared by identity first. */
static Py_ssize_t keyword_index(PyObject *name, PyObject *const *names) {
  for (Py_ssize_t i = 0; names[i]; i++) {
    if (names[i] == name) {
      return i;
    }
  }
  for (Py_ssize_t i = 0; names[i]; i++) {
    if (PyUnicode_Compare(names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

int gpufi_py_keywords(const char *function, PyObject *const *args, Py_ssize_t nargs,
                      Py_ssize_t positional_count, PyObject *kwnames, PyObject *const *names,
                      PyObject ***values) {
  if (nargs != positional_count) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zd positional argument%s, %zd given", function,
                 positional_count, positional_count == 1 ? "" : "s", nargs);
    return -1;
  }
  const Py_ssize_t kwcount = kwnames ? PyTuple_Size(kwnames) : 0;
  for (Py_ssize_t i = 0; i < kwcount; i++) {
    PyObject *name = PyTuple_GetItem(kwnames, i);
    const Py_ssize_t index = keyword_index(name, names);
    if (index < 0) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s() has no keyword argument '%U'", function, name);
      }
      return -1;
    }
    *values[index] = args[nargs + i];
  }
  return 0;
}

/* Write the choices to `text` as "\"a\", \"b\" or \"c\"", cut off at its end. */
static void list_choices(const char *const *choices, int count, char *text, size_t text_nbytes) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < count && used < text_nbytes; i++) {
    if (choices[i]) {
      const char *separator = used == 0 ? "" : i == count - 1 ? " or " : ", ";
      const int length =
          snprintf(text + used, text_nbytes - used, "%s\"%s\"", separator, choices[i]);
      used += length > 0 ? (size_t)length : 0;
    }
  }
}

int gpufi_py_choice(PyObject *object, const char *what, const char *const *choices, int count) {
  char listed[160];
  const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  for (int i = 0; text && i < count; i++) {
    if (choices[i] && strcmp(text, choices[i]) == 0) {
      return i;
    }
  }
  list_choices(choices, count, listed, sizeof(listed));
  PyErr_Format(text ? PyExc_ValueError : PyExc_TypeError, "%s is %R; it must be %s", what, object,
               listed);
  return -1;
}

/* The length of a tuple, or -1 with a TypeError. */
static Py_ssize_t length_of(PyObject *tuple, const char *what) {
  if (!PyTuple_Check(tuple)) {
    PyErr_Format(PyExc_TypeError, "%s is %R, not a tuple of ints", what, tuple);
    return -1;
  }
  return PyTuple_Size(tuple);
}

static int fill_axes(PyObject *tuple, const char *what, int32_t count, int64_t *values) {
  for (int32_t i = 0; i < count; i++) {
    PyObject *item = PyNumber_Index(PyTuple_GetItem(tuple, i));
    if (!item) {
      return -1;
    }
    values[i] = PyLong_AsLongLong(item);
    Py_DECREF(item);
    if (values[i] == -1 && PyErr_Occurred()) {
      gpufi_py_raise_from(PyExc_ValueError, "%s[%d] does not fit 64 bits", what, (int)i);
      return -1;
    }
  }
  return 0;
}

int gpufi_py_axes_any(PyObject *tuple, const char *what, int32_t *count, int64_t *values) {
  const Py_ssize_t length = length_of(tuple, what);
  if (length < 0) {
    return -1;
  }
  if (length > GPUF_NDIM_MAX) {
    PyErr_Format(PyExc_ValueError, "%s has %zd values: the limit is %d axes", what, length,
                 GPUF_NDIM_MAX);
    return -1;
  }
  *count = (int32_t)length;
  return fill_axes(tuple, what, *count, values);
}

int gpufi_py_axes(PyObject *tuple, const char *what, int32_t count, int64_t *values) {
  const Py_ssize_t length = length_of(tuple, what);
  if (length < 0) {
    return -1;
  }
  if (length != count) {
    PyErr_Format(PyExc_ValueError, "%s has %zd value%s; it must have one for each of %d axes", what,
                 length, length == 1 ? "" : "s", (int)count);
    return -1;
  }
  return fill_axes(tuple, what, count, values);
}

int gpufi_py_part(PyObject *pair, int32_t ndim, gpuf_part *part) {
  static const char what[] = "global_shape";
  PyObject *start, *shape;
  *part = (gpuf_part)GPUF_PART_INIT;
  if (!PyArg_ParseTuple(pair, "O!O!:Part", &PyTuple_Type, &start, &PyTuple_Type, &shape)) {
    return -1;
  }
  const int code = ndim < 0 ? gpufi_py_axes_any(shape, what, &ndim, part->shape)
                            : gpufi_py_axes(shape, what, ndim, part->shape);
  return code < 0 ? -1 : gpufi_py_axes(start, "start", ndim, part->start);
}

PyObject *gpufi_py_tuple_of(const int64_t *values, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; i++) {
    PyObject *item = PyLong_FromLongLong(values[i]);
    if (!item) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SetItem(tuple, i, item);
  }
  return tuple;
}

int gpufi_py_pair(PyObject *pair, const char *what, long *first, long *second) {
  const bool is_pair = PyTuple_Check(pair) && PyTuple_Size(pair) == 2;
  if (is_pair) {
    *first = PyLong_AsLong(PyTuple_GetItem(pair, 0));
    *second = PyErr_Occurred() ? -1 : PyLong_AsLong(PyTuple_GetItem(pair, 1));
    if (!PyErr_Occurred()) {
      return 0;
    }
  }
  if (!is_pair || PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Format(PyExc_TypeError, "%s is %R, not a pair of integers", what, pair);
  } else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Format(PyExc_ValueError, "%s is %R, which does not fit 64 bits", what, pair);
  }
  return -1;
}

int gpufi_py_nbytes(PyObject *object, size_t *nbytes) {
  PyObject *index = PyNumber_Index(object);
  if (!index) {
    return -1;
  }
  *nbytes = PyLong_AsSize_t(index);
  Py_DECREF(index);
  if (*nbytes == (size_t)-1 && PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError, "%R is not a size in bytes: give an integer >= 0", object);
    return -1;
  }
  return 0;
}
