/* A capsule of an object of the library that may be closed while other threads use it: closing
 * waits for them. No Python code runs while one of the handle's mutexes is held, and none of the
 * functions that are called without the GIL runs any. In a forked child every handle is closed, and
 * what it holds is the parent's. */
#ifndef GPUFI_PY_HANDLE_H
#define GPUFI_PY_HANDLE_H

#include "api.h"

typedef struct gpufi_py_handle gpufi_py_handle;

/* A new capsule by the name `kind` (static), which ends `object` by `destroy`, without the GIL,
 * where nobody has taken it before. Takes `object` over, also on failure. */
PyObject *gpufi_py_handle_create(const char *kind, void *object, void (*destroy)(void *object));
/* The handle of a capsule of that kind; NULL with a TypeError for anything else. Valid while the
 * capsule lives. */
gpufi_py_handle *gpufi_py_handle_of(PyObject *capsule, const char *kind);

/* Without the GIL: use the object, alone with `alone`. NULL, and `err` filled, where it is closed.
 * End with gpufi_py_handle_end. */
void *gpufi_py_handle_begin(gpufi_py_handle *handle, bool alone, gpuf_error *err);
void gpufi_py_handle_end(gpufi_py_handle *handle, bool alone);
/* Without the GIL: take the object out, once nobody uses it. NULL where it was taken before. */
void *gpufi_py_handle_take(gpufi_py_handle *handle);

#endif
