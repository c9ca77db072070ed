/* From gpuf_error to Python exceptions (the mapping is in errors.c), and exceptions put aside. */
#ifndef GPUFI_PY_ERRORS_H
#define GPUFI_PY_ERRORS_H

#include "state.h"

/* Create gpufetch.Error. */
PyObject *gpufi_py_error_type_create(void);

/* A str of a message or name of the library; what is not UTF-8 in it is replaced. */
PyObject *gpufi_py_text(const char *text);

/* Set the Python exception for `err`, unless one is set that Python code raised within the call, as
 * a file object does within HDF5: that one stands. Always returns NULL. */
PyObject *gpufi_py_raise(const gpufi_py_state *state, const gpuf_error *err);

/* The outcome of a call that returns nothing: None, or NULL with the exception for `err`, or with
 * the one that Python code raised within the call. */
PyObject *gpufi_py_outcome(const gpufi_py_state *state, gpuf_status status, const gpuf_error *err);

/* Replace the exception that is set by `type(format)`, with the old one as its cause. */
void gpufi_py_raise_from(PyObject *type, const char *format, ...);

/* An exception that was set, or none. Every one that is taken is restored or dropped. */
typedef struct gpufi_py_exception {
  PyObject *type, *value, *traceback; /* strong, or NULL */
} gpufi_py_exception;

/* Take the exception that is set, if any: afterwards none is. */
gpufi_py_exception gpufi_py_exception_take(void);
/* The exception that is set, which then is not, as an instance with its traceback (new reference).
 * Never NULL if one is set. Works without memory. */
PyObject *gpufi_py_exception_take_instance(void);
/* Set `exception` again, in place of any that is set by now. */
void gpufi_py_exception_restore(gpufi_py_exception exception);
/* Release `exception`. Leaves the one that is set, if any. */
void gpufi_py_exception_drop(gpufi_py_exception exception);
/* Make it the context of the exception that is set. Takes it over. */
void gpufi_py_exception_chain(gpufi_py_exception exception);

#endif
