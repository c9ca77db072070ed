/* Parsing of arguments, and tuples of ints in both directions. */
#ifndef GPUFI_PY_ARGUMENTS_H
#define GPUFI_PY_ARGUMENTS_H

#include <gpufetch/checkpoint.h>

#include "api.h"

/* Collect keyword arguments of a METH_FASTCALL | METH_KEYWORDS call. `names` ends with NULL;
 * *values[i] becomes a borrowed reference, and is left alone if names[i] was not given. TypeError
 * for an unknown keyword and for a number of positional arguments other than `positional_count`. */
int gpufi_py_keywords(const char *function, PyObject *const *args, Py_ssize_t nargs,
                      Py_ssize_t positional_count, PyObject *kwnames, PyObject *const *names,
                      PyObject ***values);

/* The place of the str `object` among `count` choices, of which NULL is none. Otherwise -1, with a
 * TypeError or ValueError that calls it `what` and lists the choices. */
int gpufi_py_choice(PyObject *object, const char *what, const char *const *choices, int count);

/* Fill `values` from a tuple of `count` ints that fit 64 bits, one for each axis. TypeError or
 * ValueError, which calls it `what`. */
int gpufi_py_axes(PyObject *tuple, const char *what, int32_t count, int64_t *values);
/* The same for a tuple of any length up to GPUF_NDIM_MAX, which goes to *count. */
int gpufi_py_axes_any(PyObject *tuple, const char *what, int32_t *count, int64_t *values);
/* Fill `part` from a tuple of where a box begins and of the global shape, each a tuple of `ndim`
 * ints; -1: of as many as the shape has. TypeError or ValueError. */
int gpufi_py_part(PyObject *pair, int32_t ndim, gpuf_part *part);
/* A tuple of `count` Python ints. */
PyObject *gpufi_py_tuple_of(const int64_t *values, int32_t count);

/* The two ints of a tuple (first, second). TypeError or ValueError, which calls it `what`. */
int gpufi_py_pair(PyObject *pair, const char *what, long *first, long *second);

/* A size in bytes: an int >= 0. TypeError or ValueError. */
int gpufi_py_nbytes(PyObject *object, size_t *nbytes);

#endif
