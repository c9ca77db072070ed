/* Export of tensors as DLPack capsules. */
#include "dlpack_out.h"

#include "dlpack_abi.h"
#include "dlpack_capsule.h"
#include "interpreter.h"

#include <stdlib.h>

void gpufi_py_dlpack_device(gpuf_device device, int32_t *type, int32_t *id) {
  *type = device.kind == GPUF_DEVICE_CUDA   ? GPUFI_DL_CUDA
          : device.kind == GPUF_DEVICE_HOST ? GPUFI_DL_EXT_DEV
                                            : GPUFI_DL_CPU;
  *id = device.kind == GPUF_DEVICE_CPU ? 0 : device.index;
}

/* One allocation holds the managed tensor, its owner, its shape and its strides. */
typedef struct exported {
  union {
    gpufi_dl_managed legacy;
    gpufi_dl_managed_versioned versioned;
  } managed;
  PyObject *owner;
  int64_t shape[GPUF_NDIM_MAX];
  int64_t strides[GPUF_NDIM_MAX];
} exported;

/* A consumer may call this from any thread, with or without the GIL, and after the interpreter has
 * ended, when the owner is left alone. */
static void exported_free(exported *made) {
  gpufi_py_release_owner(made->owner);
  free(made);
}

static void legacy_deleter(gpufi_dl_managed *self) {
  exported_free(self->manager_ctx);
}

static void versioned_deleter(gpufi_dl_managed_versioned *self) {
  exported_free(self->manager_ctx);
}

static void made_destroy(PyObject *capsule) {
  gpufi_py_dlpack_run_deleter(capsule, GPUFI_DL_NAME, GPUFI_DL_NAME_VERSIONED);
}

static gpufi_dl_dtype dtype_to_dlpack(gpuf_dtype dtype) {
  gpufi_dl_dtype result = {GPUFI_DL_FLOAT, (uint8_t)(8 * gpuf_dtype_nbytes(dtype)), 1};
  if (dtype == GPUF_DTYPE_BOOL) {
    result.code = GPUFI_DL_BOOL;
  } else if (dtype <= GPUF_DTYPE_INT64) {
    result.code = GPUFI_DL_INT;
  } else if (dtype <= GPUF_DTYPE_UINT64) {
    result.code = GPUFI_DL_UINT;
  } else if (dtype == GPUF_DTYPE_BFLOAT16) {
    result.code = GPUFI_DL_BFLOAT;
  } else if (dtype == GPUF_DTYPE_COMPLEX64 || dtype == GPUF_DTYPE_COMPLEX128) {
    result.code = GPUFI_DL_COMPLEX;
  } else if (dtype >= GPUF_DTYPE_FLOAT8_E3M4) {
    result.code = (uint8_t)(GPUFI_DL_FLOAT8_E3M4 + (dtype - GPUF_DTYPE_FLOAT8_E3M4));
  }
  return result;
}

/* DLPack counts strides in elements. */
static int strides_to_dlpack(const gpuf_tensor *tensor, int64_t *strides) {
  const int64_t element_nbytes = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  const bool is_empty = gpuf_tensor_count(tensor) == 0;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    const bool is_whole = tensor->strides_nbytes[i] % element_nbytes == 0;
    const bool means_nothing = is_empty || tensor->shape[i] == 1;
    if (!is_whole && !means_nothing) {
      PyErr_Format(PyExc_BufferError,
                   "stride %lld of axis %d is not a multiple of the element size %lld, which "
                   "DLPack cannot say: fetch the array and pass it on from there",
                   (long long)tensor->strides_nbytes[i], (int)i, (long long)element_nbytes);
      return -1;
    }
    strides[i] = is_whole ? tensor->strides_nbytes[i] / element_nbytes : 1;
  }
  return 0;
}

PyObject *gpufi_py_dlpack_make(const gpuf_tensor *tensor, PyObject *owner, bool versioned,
                               uint64_t flags) {
  exported *made = calloc(1, sizeof(*made));
  if (!made) {
    return PyErr_NoMemory();
  }
  if (strides_to_dlpack(tensor, made->strides) < 0) {
    free(made);
    return NULL;
  }
  gpufi_dl_tensor *out = &made->managed.legacy.tensor;
  if (versioned) {
    made->managed.versioned.major = GPUFI_DLPACK_MAJOR;
    made->managed.versioned.minor = GPUFI_DLPACK_MINOR;
    made->managed.versioned.manager_ctx = made;
    made->managed.versioned.deleter = versioned_deleter;
    made->managed.versioned.flags = flags;
    out = &made->managed.versioned.tensor;
  } else {
    made->managed.legacy.manager_ctx = made;
    made->managed.legacy.deleter = legacy_deleter;
  }
  memcpy(made->shape, tensor->shape, sizeof(int64_t) * (size_t)tensor->ndim);
  out->data = tensor->data;
  gpufi_py_dlpack_device(tensor->device, &out->device.type, &out->device.id);
  out->ndim = tensor->ndim;
  out->dtype = dtype_to_dlpack(tensor->dtype);
  out->shape = made->shape;
  out->strides = made->strides;
  PyObject *capsule = PyCapsule_New(
      &made->managed, versioned ? GPUFI_DL_NAME_VERSIONED : GPUFI_DL_NAME, made_destroy);
  if (!capsule) {
    free(made);
    return NULL;
  }
  Py_INCREF(owner);
  made->owner = owner;
  return capsule;
}
