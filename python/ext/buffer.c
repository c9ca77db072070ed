/* Host memory that ndarrays own: pinned, from the pool, or pageable. */
#include "buffer.h"

#include "arrays.h"
#include "errors.h"

#include "base/error.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Pageable memory from this size on is mapped, so that huge pages can back it. */
#define MAPPED_NBYTES_MIN ((size_t)4 << 20)

void gpufi_py_buffer_free(const gpufi_py_buffer *buffer) {
  switch (buffer->kind) {
  case BUFFER_POOL:
    gpuf_pool_release(buffer->ptr, NULL);
    break;
  case BUFFER_MAPPED:
    munmap(buffer->ptr, buffer->nbytes);
    break;
  case BUFFER_HEAP:
    free(buffer->ptr);
    break;
  }
}

static gpuf_status no_memory(size_t nbytes, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                    "no host memory for an array of %zu bytes: fetch it in slices", nbytes);
}

static gpuf_status alloc_pageable(size_t nbytes, gpufi_py_buffer *buffer, gpuf_error *err) {
  buffer->nbytes = nbytes;
  if (nbytes >= MAPPED_NBYTES_MIN) {
    buffer->kind = BUFFER_MAPPED;
    buffer->ptr = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->ptr == MAP_FAILED) {
      return no_memory(nbytes, err);
    }
    madvise(buffer->ptr, nbytes, MADV_HUGEPAGE);
    return GPUF_OK;
  }
  buffer->kind = BUFFER_HEAP;
  if (posix_memalign(&buffer->ptr, 64, nbytes > 0 ? nbytes : 1) != 0) {
    return no_memory(nbytes, err);
  }
  return GPUF_OK;
}

gpuf_status gpufi_py_buffer_alloc(gpuf_device device, size_t nbytes, gpufi_py_buffer *buffer,
                                  gpuf_error *err) {
  if (device.kind != GPUF_DEVICE_CPU && nbytes > 0) {
    const gpuf_status status = gpuf_pool_acquire_result(device, nbytes, &buffer->ptr, err);
    if (status != GPUF_ERR_NO_MEMORY) {
      buffer->nbytes = nbytes;
      buffer->kind = BUFFER_POOL;
      return status;
    }
  }
  return alloc_pageable(nbytes, buffer, err);
}

static const char *const buffer_names[] = {
    [BUFFER_POOL] = "gpufetch.pool",
    [BUFFER_MAPPED] = "gpufetch.mapped",
    [BUFFER_HEAP] = "gpufetch.heap",
};

static void buffer_capsule_destroy(PyObject *capsule) {
  const char *name = PyCapsule_GetName(capsule);
  gpufi_py_buffer buffer = {PyCapsule_GetPointer(capsule, name),
                            (size_t)PyCapsule_GetContext(capsule), BUFFER_POOL};
  for (int kind = BUFFER_POOL; kind <= BUFFER_HEAP; kind++) {
    if (name == buffer_names[kind]) {
      buffer.kind = (gpufi_py_buffer_kind)kind;
    }
  }
  if (buffer.kind == BUFFER_MAPPED) { /* returning many pages takes milliseconds */
    Py_BEGIN_ALLOW_THREADS
      gpufi_py_buffer_free(&buffer);
    Py_END_ALLOW_THREADS
  } else {
    gpufi_py_buffer_free(&buffer);
  }
}

/* A capsule that owns `buffer`. Takes it over, also on failure. */
static PyObject *buffer_capsule(const gpufi_py_buffer *buffer) {
  PyObject *capsule =
      PyCapsule_New(buffer->ptr, buffer_names[buffer->kind], buffer_capsule_destroy);
  if (!capsule) {
    gpufi_py_buffer_free(buffer);
    return NULL;
  }
  PyCapsule_SetContext(capsule, (void *)buffer->nbytes);
  return capsule;
}

PyObject *gpufi_py_buffer_create(const gpufi_py_state *state, gpuf_device device, size_t nbytes,
                                 void **data) {
  gpuf_error err;
  gpufi_py_buffer buffer;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_py_buffer_alloc(device, nbytes, &buffer, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  *data = buffer.ptr;
  return buffer_capsule(&buffer);
}

PyObject *gpufi_py_buffer_array(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                const gpufi_py_buffer *buffer) {
  PyObject *capsule = buffer_capsule(buffer);
  return capsule ? gpufi_py_array_over(state, tensor, capsule) : NULL;
}
