/* A tensor that someone else owns, and what keeps its memory alive. */
#ifndef GPUFI_PY_IMPORT_H
#define GPUFI_PY_IMPORT_H

#include "api.h"

typedef struct gpufi_py_import {
  gpuf_tensor tensor; /* its stream is the one whose work a copy must wait for */
  bool readonly;
  const char
      *copied; /* why the memory is a copy of the object's and what to call; NULL if it is not */
  PyObject *keepalive; /* strong; NULL when empty */
} gpufi_py_import;

static inline void gpufi_py_import_clear(gpufi_py_import *import) {
  Py_CLEAR(import->keepalive);
}

#endif
