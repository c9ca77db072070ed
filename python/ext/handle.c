#include "handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"

struct gpufi_py_handle {
  const char *kind;
  void (*destroy)(void *object);
  int64_t process_id;
  pthread_mutex_t turn; /* held by those who use the object alone */
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t idle;
  void *object; /* NULL: taken */
  int use_count;
};

static void free_handle(gpufi_py_handle *handle) {
  pthread_cond_destroy(&handle->idle);
  pthread_mutex_destroy(&handle->lock);
  pthread_mutex_destroy(&handle->turn);
  free(handle);
}

static void destroy_capsule(PyObject *capsule) {
  gpufi_py_handle *const handle = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
  if (handle->process_id != getpid()) {
    return; /* of the parent, whose other threads may have held the mutexes */
  }
  Py_BEGIN_ALLOW_THREADS
    void *const object = gpufi_py_handle_take(handle);
    if (object) {
      handle->destroy(object);
    }
    free_handle(handle);
  Py_END_ALLOW_THREADS
}

PyObject *gpufi_py_handle_create(const char *kind, void *object, void (*destroy)(void *object)) {
  PyObject *capsule = NULL;
  gpufi_py_handle *const handle = calloc(1, sizeof(*handle));
  if (handle) {
    handle->kind = kind;
    handle->destroy = destroy;
    handle->process_id = getpid();
    handle->object = object;
    pthread_mutex_init(&handle->turn, NULL);
    pthread_mutex_init(&handle->lock, NULL);
    pthread_cond_init(&handle->idle, NULL);
    capsule = PyCapsule_New(handle, kind, destroy_capsule);
  } else {
    PyErr_NoMemory();
  }
  if (!capsule) {
    Py_BEGIN_ALLOW_THREADS
      destroy(object);
    Py_END_ALLOW_THREADS
    if (handle) {
      free_handle(handle);
    }
  }
  return capsule;
}

gpufi_py_handle *gpufi_py_handle_of(PyObject *capsule, const char *kind) {
  if (!PyCapsule_IsValid(capsule, kind)) {
    PyErr_Format(PyExc_TypeError, "%R is no %s", capsule, kind);
    return NULL;
  }
  return PyCapsule_GetPointer(capsule, kind);
}

static void *fail(const gpufi_py_handle *handle, const char *text, gpuf_error *err) {
  gpufi_fail(err, GPUF_ERR_STATE, 0, "the %s %s", strrchr(handle->kind, '.') + 1, text);
  return NULL;
}

void *gpufi_py_handle_begin(gpufi_py_handle *handle, bool alone, gpuf_error *err) {
  if (handle->process_id != getpid()) {
    return fail(handle,
                "is the parent's and cannot be used in a process that was forked: start workers "
                "with spawn or forkserver",
                err);
  }
  pthread_mutex_lock(&handle->lock);
  void *const object = handle->object;
  handle->use_count += object != NULL;
  pthread_mutex_unlock(&handle->lock);
  if (object && alone) {
    pthread_mutex_lock(&handle->turn);
  }
  return object ? object : fail(handle, "is closed", err);
}

void gpufi_py_handle_end(gpufi_py_handle *handle, bool alone) {
  if (alone) {
    pthread_mutex_unlock(&handle->turn);
  }
  pthread_mutex_lock(&handle->lock);
  handle->use_count--;
  pthread_cond_broadcast(&handle->idle);
  pthread_mutex_unlock(&handle->lock);
}

void *gpufi_py_handle_take(gpufi_py_handle *handle) {
  if (handle->process_id != getpid()) {
    return NULL;
  }
  pthread_mutex_lock(&handle->lock);
  void *const object = handle->object;
  handle->object = NULL;
  while (handle->use_count > 0) {
    pthread_cond_wait(&handle->idle, &handle->lock);
  }
  pthread_mutex_unlock(&handle->lock);
  return object;
}
