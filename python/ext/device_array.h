/* gpufetch.DeviceArray: a tensor in device memory, its own or someone else's. */
#ifndef GPUFI_PY_DEVICE_ARRAY_H
#define GPUFI_PY_DEVICE_ARRAY_H

#include "state.h"

typedef struct gpufi_py_device_array {
  PyObject_HEAD
  gpuf_tensor tensor;
  void *d_owned;       /* memory from gpuf_alloc that goes with this object, or NULL */
  PyObject *keepalive; /* what owns the memory instead: the viewed array, a capsule, a producer */
  PyObject *weakrefs;
  bool readonly;
} gpufi_py_device_array;

extern PyType_Spec gpufi_py_device_array_spec;

/* Wrap memory that `keepalive` owns (a new reference is taken; NULL if nobody has to). */
PyObject *gpufi_py_device_array_create(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                       bool readonly, PyObject *keepalive);
/* Wrap memory from gpuf_alloc at tensor->data, writable, and take it over, also on failure. */
PyObject *gpufi_py_device_array_own(const gpufi_py_state *state, const gpuf_tensor *tensor);
/* A view of `array` that `tensor` describes. It keeps the object that owns the memory alive, not
 * the chain of views. */
PyObject *gpufi_py_device_array_view(gpufi_py_device_array *array, const gpuf_tensor *tensor);

#endif
