/* What the files of the extension module gpufetch._core share.
 *
 * Every function here needs the GIL unless it says otherwise. A function that returns PyObject *
 * gives a new reference, or NULL with an exception set; one that returns int gives 0, or -1 with
 * an exception set. */
#ifndef GPUFI_PY_CORE_H
#define GPUFI_PY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL gpufi_py_array_api
#ifndef GPUFI_PY_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <gpufetch/gpufetch.h>

#include <string.h> /* Python.h includes it outside the limited API only */

/* --- Module state ---------------------------------------------------------- */

/* Interned strings, by the Python name that they hold. */
#define GPUFI_PY_NAMES(X)                                                                          \
  X(__array__)                                                                                     \
  X(__cuda_array_interface__)                                                                      \
  X(__dlpack__)                                                                                    \
  X(__dlpack_c_exchange_api__)                                                                     \
  X(__dlpack_device__)                                                                             \
  X(__enter__)                                                                                     \
  X(__exit__)                                                                                      \
  X(_mask)                                                                                         \
  X(copy)                                                                                          \
  X(cuda)                                                                                          \
  X(data)                                                                                          \
  X(descr)                                                                                         \
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
  X(str)                                                                                           \
  X(stream)                                                                                        \
  X(strides)                                                                                       \
  X(timeout)                                                                                       \
  X(typestr)                                                                                       \
  X(version)                                                                                       \
  X(via)

typedef struct gpufi_py_names {
#define X(name) PyObject *name;
  GPUFI_PY_NAMES(X)
#undef X
} gpufi_py_names;

typedef struct gpufi_py_state {
  PyTypeObject *device_array_type;
  PyTypeObject *future_type;
  PyObject *error_type;                 /* gpufetch.Error */
  PyObject *descrs[GPUF_DTYPE_MAX + 1]; /* NumPy dtype of each gpuf_dtype; [0] is NULL */
  gpufi_py_names names;
  PyObject *empty_tuple;
  /* Keyword arguments for a producer's __dlpack__, from the newest protocol to the oldest. */
  PyObject *dlpack_kwargs_cuda;        /* {stream: 1, max_version: (1, x)} */
  PyObject *dlpack_kwargs_cuda_legacy; /* {stream: 1} */
  PyObject *dlpack_kwargs_cpu;         /* {max_version: (1, x)} */
  /* What was found out about the producers' type that was seen last. */
  PyObject *producer_type;
  bool producer_is_torch;
  bool producer_is_tensorflow;
  const struct gpufi_dl_exchange *producer_exchange; /* NULL = it has none */
} gpufi_py_state;

/* State of the module, or of the module that a gpufetch type (they have no subtypes) is from. */
static inline gpufi_py_state *gpufi_py_state_of_module(PyObject *module) {
  return (gpufi_py_state *)PyModule_GetState(module);
}
static inline gpufi_py_state *gpufi_py_state_of(PyObject *object) {
  return (gpufi_py_state *)PyType_GetModuleState(Py_TYPE(object));
}

/* --- errors.c -------------------------------------------------------------- */

/* Set the Python exception for `err`; always NULL. The mapping is in errors.c. */
PyObject *gpufi_py_raise(const gpufi_py_state *state, const gpuf_error *err);

/* Replace the exception that is set by `type(format)`, with the old one as its cause. */
void gpufi_py_raise_from(PyObject *type, const char *format, ...);

/* Create gpufetch.Error. */
PyObject *gpufi_py_error_type_create(void);

/* Collect keyword arguments of a METH_FASTCALL | METH_KEYWORDS call. `names` ends with NULL;
 * values[i] is a borrowed reference, left alone if names[i] was not given. Raises TypeError for
 * an unknown keyword and for a number of positional arguments other than `positional_count`. */
int gpufi_py_keywords(const char *function, PyObject *const *args, Py_ssize_t nargs,
                      Py_ssize_t positional_count, PyObject *kwnames, PyObject *const *names,
                      PyObject ***values);

/* --- dtypes.c -------------------------------------------------------------- */

/* Import ml_dtypes and fill state->descrs. */
int gpufi_py_dtypes_init(gpufi_py_state *state);
/* The gpuf_dtype of a NumPy dtype. TypeError, naming it and a remedy, where there is none. */
int gpufi_py_dtype_from_descr(const gpufi_py_state *state, PyObject *descr, gpuf_dtype *dtype);
/* The same of anything that numpy.dtype takes. */
int gpufi_py_dtype_parse(const gpufi_py_state *state, PyObject *object, gpuf_dtype *dtype);
/* Describe the memory of `array` (an ndarray): device cpu, stream none. */
int gpufi_py_tensor_from_array(const gpufi_py_state *state, PyObject *array, gpuf_tensor *tensor);
/* "cuda:1"; `text` holds at least 32 bytes. */
const char *gpufi_py_device_text(gpuf_device device, char *text);
/* From "cuda:1", "host:0", "cuda" (index 0), "cpu", or None (the default device). ValueError. */
int gpufi_py_device_parse(const gpufi_py_state *state, PyObject *object, gpuf_device *device);
/* Check that the device exists; GPUF_DEVICE_CPU always does. */
int gpufi_py_device_check(const gpufi_py_state *state, gpuf_device device);
/* Tuple of `count` Python ints. */
PyObject *gpufi_py_tuple_of(const int64_t *values, int32_t count);

/* --- adapter.c, cai.c, dlpack.c -------------------------------------------- */

/* A tensor that someone else owns, and what keeps its memory alive. */
typedef struct gpufi_py_import {
  gpuf_tensor tensor;
  bool readonly;
  PyObject *keepalive; /* strong; NULL when empty */
} gpufi_py_import;

/* Describe any supported tensor without a copy: DeviceArray, DLPack (versioned, then legacy),
 * __cuda_array_interface__, ndarray. tensor.stream is set so that gpuf_copy waits for the
 * producer's pending work. TypeError, naming what to call instead, for anything else. */
int gpufi_py_adapter_import(gpufi_py_state *state, PyObject *object, gpufi_py_import *import);
void gpufi_py_import_clear(gpufi_py_import *import);

/* tensorflow.c: is this one of TensorFlow's types? */
bool gpufi_py_is_tensorflow(PyObject *type);
/* Refuse tensors without plain elements: TensorFlow ends the process if it is asked to export a
 * string tensor. */
int gpufi_py_tensorflow_check(PyObject *tensor);
/* The exception that is set is TensorFlow's own: make it a TypeError with a remedy. */
void gpufi_py_tensorflow_explain(PyObject *tensor);
/* The value of a Variable, or NULL with a TypeError that says what to call for any other object of
 * TensorFlow's that has no __dlpack__. */
PyObject *gpufi_py_tensorflow_value(PyObject *object);

/* Through __cuda_array_interface__: 1 when done, 0 if `object` has none, or -1. */
int gpufi_py_cai_import(const gpufi_py_state *state, PyObject *object, gpufi_py_import *import);

/* Take the tensor out of a DLPack capsule of either kind; consumes it. import->keepalive is the
 * capsule, and its destructor now runs the producer's deleter. */
int gpufi_py_dlpack_take(gpufi_py_state *state, PyObject *capsule, gpufi_py_import *import);
/* Wrap `tensor` into a new capsule that holds `owner`. */
PyObject *gpufi_py_dlpack_make(const gpuf_tensor *tensor, PyObject *owner, bool versioned,
                               uint64_t flags);
/* DLPack's device for ours. */
void gpufi_py_dlpack_device(gpuf_device device, int32_t *type, int32_t *id);

/* --- fetch.c --------------------------------------------------------------- */

PyObject *gpufi_py_fetch(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
PyObject *gpufi_py_fetch_async(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames);
/* Copy `tensor` into a fresh ndarray, with the GIL released meanwhile. The caller keeps the
 * tensor's memory alive. */
PyObject *gpufi_py_fetch_tensor(gpufi_py_state *state, const gpuf_tensor *tensor);

/* --- block.c --------------------------------------------------------------- */

typedef enum gpufi_py_block_kind { BLOCK_POOL, BLOCK_MAPPED, BLOCK_HEAP } gpufi_py_block_kind;

/* Host memory that an ndarray will own. */
typedef struct gpufi_py_block {
  void *ptr;
  size_t nbytes;
  gpufi_py_block_kind kind;
} gpufi_py_block;

/* A block of the pinned pool for what comes from a device, else, or when the pool is at its cap,
 * pageable memory. These two need no GIL. */
gpuf_status gpufi_py_block_alloc(gpuf_device device, size_t nbytes, gpufi_py_block *memory,
                                 gpuf_error *err);
void gpufi_py_block_free(const gpufi_py_block *memory);
/* A capsule that owns a fresh block. Releases the GIL meanwhile. */
PyObject *gpufi_py_block_create(const gpufi_py_state *state, gpuf_device device, size_t nbytes,
                                void **data);
/* An ndarray as `tensor` describes it, that owns `memory`. Takes `memory` over, also on failure. */
PyObject *gpufi_py_array_over_block(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                    const gpufi_py_block *memory);

/* --- tree.c ---------------------------------------------------------------- */

/* 1 if `object` is a container that fetch looks into, 0 if not, -1 with an exception set. */
int gpufi_py_is_tree(gpufi_py_state *state, PyObject *object);
/* The same containers with an ndarray for each tensor. */
PyObject *gpufi_py_fetch_tree(gpufi_py_state *state, PyObject *object);

/* --- future.c -------------------------------------------------------------- */

extern PyType_Spec gpufi_py_future_spec;
/* Takes over `future`; `array` is the destination and `source` what keeps the source alive. */
PyObject *gpufi_py_future_create(gpufi_py_state *state, gpuf_future *future, PyObject *array,
                                 PyObject *source);

/* --- device_array.c, index.c ------------------------------------------------ */

typedef struct gpufi_py_device_array {
  PyObject_HEAD gpuf_tensor tensor;
  void *d_owned;       /* memory from gpuf_alloc that goes with this object, or NULL */
  PyObject *keepalive; /* what owns the memory instead: the viewed array, a capsule, a producer */
  PyObject *weakrefs;
  bool readonly;
} gpufi_py_device_array;

extern PyType_Spec gpufi_py_device_array_spec;
/* Wrap `tensor`; takes a new reference to `keepalive` (may be NULL). */
PyObject *gpufi_py_device_array_create(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                       bool readonly, PyObject *keepalive);
PyObject *gpufi_py_to_device(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);
PyObject *gpufi_py_asdevice(PyObject *module, PyObject *object);
/* Narrow `tensor` by a subscript of basic indexing. */
int gpufi_py_index(gpuf_tensor *tensor, PyObject *key);

/* --- restride.c ------------------------------------------------------------ */

PyObject *gpufi_py_restride(PyObject *module, PyObject *args);

/* --- share.c --------------------------------------------------------------- */

/* share_export, share_attach and their kin; ends with an empty entry. */
extern PyMethodDef gpufi_py_share_methods[];
/* If `keepalive` (may be NULL) is an attachment to another process's memory: check that the
 * process still lives. gpufetch.Error. */
int gpufi_py_share_check(const gpufi_py_state *state, PyObject *keepalive);

/* The last user of a tensor's memory is gone: give back the reference to its owner. Runs on any
 * thread, without the GIL; does nothing once the interpreter ends. */
void gpufi_py_release_owner(void *owner);
/* True once the interpreter ends: nothing of Python's may be touched from other threads. */
bool gpufi_py_is_stopped(void);

/* --- serve.c --------------------------------------------------------------- */

/* serve_start, serve_publish and their kin; ends with an empty entry. */
extern PyMethodDef gpufi_py_serve_methods[];

/* --- info.c ---------------------------------------------------------------- */

extern PyMethodDef gpufi_py_info_methods[];

/* --- reduce.c -------------------------------------------------------------- */

extern PyMethodDef gpufi_py_reduce_methods[];
/* Methods of DeviceArray, by way of gpufetch._reduce. */
PyObject *gpufi_py_array_overview(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *gpufi_py_array_stats(PyObject *self, PyObject *args);
PyObject *gpufi_py_array_histogram(PyObject *self, PyObject *args, PyObject *kwargs);

/* --- codec.c -------------------------------------------------------------- */

/* The codec on a device, for benchmarks; ends with an empty entry. */
extern PyMethodDef gpufi_py_codec_methods[];

/* --- comm.c ---------------------------------------------------------------- */

/* comm_create, comm_message and their kin; ends with an empty entry. */
extern PyMethodDef gpufi_py_comm_methods[];

/* --- hdf5.c ---------------------------------------------------------------- */

/* h5_bind, h5_write, h5_read and their kin; ends with an empty entry. */
extern PyMethodDef gpufi_py_hdf5_methods[];

#endif
