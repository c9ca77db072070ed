/* The state of the module gpufetch._core: its types, dtypes and the strings that it looks up. */
#ifndef GPUFI_PY_STATE_H
#define GPUFI_PY_STATE_H

#include "api.h"

/* Interned strings, by the Python name that they hold. */
#define GPUFI_PY_NAMES(X)                                                                          \
  X(__cuda_array_interface__)                                                                      \
  X(__dlpack__)                                                                                    \
  X(__dlpack_c_exchange_api__)                                                                     \
  X(__dlpack_device__)                                                                             \
  X(__enter__)                                                                                     \
  X(__exit__)                                                                                      \
  X(_is_zerotensor)                                                                                \
  X(copy)                                                                                          \
  X(cuda)                                                                                          \
  X(data)                                                                                          \
  X(detach)                                                                                        \
  X(device)                                                                                        \
  X(dl_device)                                                                                     \
  X(dtype)                                                                                         \
  X(is_conj)                                                                                       \
  X(is_cuda)                                                                                       \
  X(is_meta)                                                                                       \
  X(is_neg)                                                                                        \
  X(is_nested)                                                                                     \
  X(is_quantized)                                                                                  \
  X(layout)                                                                                        \
  X(mask)                                                                                          \
  X(max_version)                                                                                   \
  X(order)                                                                                         \
  X(out)                                                                                           \
  X(requires_grad)                                                                                 \
  X(resolve_conj)                                                                                  \
  X(resolve_neg)                                                                                   \
  X(shape)                                                                                         \
  X(stream)                                                                                        \
  X(strides)                                                                                       \
  X(timeout)                                                                                       \
  X(typestr)

typedef struct gpufi_py_names {
#define X(name) PyObject *name;
  GPUFI_PY_NAMES(X)
#undef X
} gpufi_py_names;

/* What a type of tensors offers. */
typedef struct gpufi_py_offer {
  bool is_torch;
  bool is_tensorflow;
  bool is_jax;
  const struct gpufi_dl_exchange *exchange; /* NULL = it has none */
} gpufi_py_offer;

typedef struct gpufi_py_state {
  PyTypeObject *device_array_type;
  PyTypeObject *future_type;
  PyObject *error_type; /* gpufetch.Error */
  PyObject *empty_tuple;
  /* Keyword arguments for a producer's __dlpack__, from the newest protocol to the oldest. */
  PyObject *dlpack_kwargs_cuda;        /* {stream: 1, max_version: (1, x)} */
  PyObject *dlpack_kwargs_cuda_legacy; /* {stream: 1} */
  PyObject *dlpack_kwargs_cpu;         /* {max_version: (1, x)} */
  PyObject *producer_type;             /* the type of the last object with __dlpack__ */
  gpufi_py_names names;
  PyObject *descrs[GPUF_DTYPE_MAX + 1]; /* NumPy dtype of each gpuf_dtype; [0] is NULL */
  gpufi_py_offer producer_offer;        /* of producer_type */
} gpufi_py_state;

/* The state's own references, beside names and descrs. */
#define GPUFI_PY_STATE_OBJECTS(X)                                                                  \
  X(device_array_type)                                                                             \
  X(future_type)                                                                                   \
  X(error_type)                                                                                    \
  X(empty_tuple)                                                                                   \
  X(dlpack_kwargs_cuda)                                                                            \
  X(dlpack_kwargs_cuda_legacy)                                                                     \
  X(dlpack_kwargs_cpu)                                                                             \
  X(producer_type)

/* The state of a module, and that of the module whose type `object` has: a DeviceArray or a Future,
 * which have no subtypes. Borrowed. */
static inline gpufi_py_state *gpufi_py_state_of_module(PyObject *module) {
  return (gpufi_py_state *)PyModule_GetState(module);
}
static inline gpufi_py_state *gpufi_py_state_of(PyObject *object) {
  return (gpufi_py_state *)PyType_GetModuleState(Py_TYPE(object));
}

#endif
