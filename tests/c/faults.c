#include "faults.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "backend/host/memory.h"
#include "backend/host/stream.h"
#include "base/error.h"

const char *const fault_kind_names[FAULT_KIND_COUNT] = {"malloc", "mmap", "pthread_create",
                                                        "device call"};

/* Of each kind: how many calls there are until the one that fails, which is number 1; 0 or less =
 * it has been; and whether those after it fail too. INT64_MAX = none does. */
static atomic_int_least64_t calls_left[FAULT_KIND_COUNT] = {INT64_MAX, INT64_MAX, INT64_MAX,
                                                            INT64_MAX};
static atomic_bool later_too[FAULT_KIND_COUNT], was_hit[FAULT_KIND_COUNT];

void faults_arm(fault_kind kind, int64_t nth, bool and_later) {
  atomic_store(&was_hit[kind], false);
  atomic_store(&later_too[kind], and_later);
  atomic_store(&calls_left[kind], nth);
}

void faults_disarm(void) {
  for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
    atomic_store(&later_too[kind], false);
    atomic_store(&calls_left[kind], INT64_MAX);
  }
}

bool faults_hit(fault_kind kind) {
  return atomic_load(&was_hit[kind]);
}

static bool fails(fault_kind kind) {
  const int64_t left = atomic_fetch_sub(&calls_left[kind], 1);
  const bool hit = left == 1 || (left < 1 && atomic_load(&later_too[kind]));
  if (hit) {
    atomic_store(&was_hit[kind], true);
  }
  return hit;
}

/* `call` unless it is to fail, which gives `failure`. */
#define WRAP(kind, type, name, parameters, arguments, failure)                                     \
  type __real_##name parameters;                                                                   \
  type __wrap_##name parameters;                                                                   \
  type __wrap_##name parameters {                                                                  \
    return fails(kind) ? (failure) : __real_##name arguments;                                      \
  }

WRAP(FAULT_MALLOC, void *, malloc, (size_t nbytes), (nbytes), (errno = ENOMEM, NULL))
WRAP(FAULT_MALLOC, void *, calloc, (size_t count, size_t nbytes), (count, nbytes),
     (errno = ENOMEM, NULL))
WRAP(FAULT_MALLOC, void *, realloc, (void *old, size_t nbytes), (old, nbytes),
     (errno = ENOMEM, NULL))
WRAP(FAULT_MALLOC, void *, aligned_alloc, (size_t alignment, size_t nbytes), (alignment, nbytes),
     (errno = ENOMEM, NULL))
WRAP(FAULT_MMAP, void *, mmap,
     (void *at, size_t nbytes, int protection, int flags, int fd, off_t offset),
     (at, nbytes, protection, flags, fd, offset), (errno = ENOMEM, MAP_FAILED))
WRAP(FAULT_THREAD, int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     (thread, attributes, run, arg), EAGAIN)

#define DEVICE_FAILURE gpufi_fail(err, GPUF_ERR_DEVICE, 700, "injected: this device call fails")

WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_alloc,
     (int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err), (device, nbytes, d_ptr, err),
     gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, 2, "injected: no device memory"))
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_stream_create,
     (int32_t device, gpuf_stream *stream, gpuf_error *err), (device, stream, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_stream_synchronize,
     (int32_t device, gpuf_stream stream, gpuf_error *err), (device, stream, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_create,
     (int32_t device, gpufi_event **event, gpuf_error *err), (device, event, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_record,
     (int32_t device, gpufi_event *event, gpuf_stream stream, gpuf_error *err),
     (device, event, stream, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_wait,
     (int32_t device, gpufi_event *event, gpuf_error *err), (device, event, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_query,
     (int32_t device, gpufi_event *event, bool *done, gpuf_error *err), (device, event, done, err),
     DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_stream_wait_event,
     (int32_t device, gpuf_stream stream, gpufi_event *event, gpuf_error *err),
     (device, stream, event, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_enqueue,
     (int32_t device, gpuf_stream stream, gpufi_host_work work, const void *args,
      size_t args_nbytes, gpuf_error *err),
     (device, stream, work, args, args_nbytes, err), DEVICE_FAILURE)
