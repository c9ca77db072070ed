/* Host memory that ndarrays own: blocks of the pinned pool, or pageable memory over its cap. */
#include "core.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Pageable memory from this size on is mapped, so that huge pages can back it. */
#define MAPPED_NBYTES_MIN ((size_t)4 << 20)

void gpufi_py_block_free(const gpufi_py_block *memory) {
  switch (memory->kind) {
  case BLOCK_POOL:
    gpuf_pool_release(memory->ptr);
    break;
  case BLOCK_MAPPED:
    munmap(memory->ptr, memory->nbytes);
    break;
  case BLOCK_HEAP:
    free(memory->ptr);
    break;
  }
}

static gpuf_status no_memory(size_t nbytes, gpuf_error *err) {
  err->status = GPUF_ERR_NO_MEMORY;
  err->native_code = 0;
  PyOS_snprintf(err->message, sizeof(err->message),
                "no host memory for an array of %zu bytes: fetch it in slices", nbytes);
  return err->status;
}

static gpuf_status alloc_pageable(size_t nbytes, gpufi_py_block *memory, gpuf_error *err) {
  memory->nbytes = nbytes;
  if (nbytes >= MAPPED_NBYTES_MIN) {
    memory->kind = BLOCK_MAPPED;
    memory->ptr = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory->ptr == MAP_FAILED) {
      return no_memory(nbytes, err);
    }
    madvise(memory->ptr, nbytes, MADV_HUGEPAGE);
    return GPUF_OK;
  }
  memory->kind = BLOCK_HEAP;
  if (posix_memalign(&memory->ptr, 64, nbytes > 0 ? nbytes : 1) != 0) {
    return no_memory(nbytes, err);
  }
  return GPUF_OK;
}

gpuf_status gpufi_py_block_alloc(gpuf_device device, size_t nbytes, gpufi_py_block *memory,
                                 gpuf_error *err) {
  if (device.kind != GPUF_DEVICE_CPU && nbytes > 0) {
    const gpuf_status status = gpuf_pool_acquire_result(device, nbytes, &memory->ptr, err);
    if (status != GPUF_ERR_NO_MEMORY) {
      memory->nbytes = nbytes;
      memory->kind = BLOCK_POOL;
      return status;
    }
  }
  return alloc_pageable(nbytes, memory, err);
}

static const char *const block_names[] = {
    [BLOCK_POOL] = "gpufetch.pool",
    [BLOCK_MAPPED] = "gpufetch.mapped",
    [BLOCK_HEAP] = "gpufetch.heap",
};

static void block_capsule_destroy(PyObject *capsule) {
  const char *name = PyCapsule_GetName(capsule);
  gpufi_py_block memory = {PyCapsule_GetPointer(capsule, name),
                           (size_t)PyCapsule_GetContext(capsule), BLOCK_POOL};
  for (int kind = BLOCK_POOL; kind <= BLOCK_HEAP; kind++) {
    if (name == block_names[kind]) {
      memory.kind = (gpufi_py_block_kind)kind;
    }
  }
  if (memory.kind == BLOCK_MAPPED) { /* returning many pages takes milliseconds */
    Py_BEGIN_ALLOW_THREADS gpufi_py_block_free(&memory);
    Py_END_ALLOW_THREADS
  } else {
    gpufi_py_block_free(&memory);
  }
}

/* A capsule that owns `memory`. Takes it over, also on failure. */
static PyObject *block_capsule(const gpufi_py_block *memory) {
  PyObject *capsule = PyCapsule_New(memory->ptr, block_names[memory->kind], block_capsule_destroy);
  if (!capsule) {
    gpufi_py_block_free(memory);
    return NULL;
  }
  PyCapsule_SetContext(capsule, (void *)memory->nbytes);
  return capsule;
}

PyObject *gpufi_py_block_create(const gpufi_py_state *state, gpuf_device device, size_t nbytes,
                                void **data) {
  gpuf_error err;
  gpufi_py_block memory;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS status = gpufi_py_block_alloc(device, nbytes, &memory, &err);
  Py_END_ALLOW_THREADS if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  *data = memory.ptr;
  return block_capsule(&memory);
}

PyObject *gpufi_py_array_over_block(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                    const gpufi_py_block *memory) {
  npy_intp shape[GPUF_NDIM_MAX], strides[GPUF_NDIM_MAX];
  const bool in_c_order = gpuf_tensor_is_contiguous(tensor);
  PyObject *descr = state->descrs[tensor->dtype];
  PyObject *capsule = block_capsule(memory);
  if (!capsule) {
    return NULL;
  }
  for (int32_t i = 0; i < tensor->ndim; i++) {
    shape[i] = (npy_intp)tensor->shape[i];
    strides[i] = (npy_intp)tensor->strides_nbytes[i];
  }
  Py_INCREF(descr); /* stolen */
  PyObject *array =
      PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)descr, tensor->ndim, shape,
                           in_c_order ? NULL : strides, memory->ptr, NPY_ARRAY_DEFAULT, NULL);
  if (!array) {
    Py_DECREF(capsule);
    return NULL;
  }
  if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) < 0) { /* steals capsule */
    Py_DECREF(array);
    return NULL;
  }
  return array;
}
