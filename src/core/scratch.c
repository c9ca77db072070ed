#include "core/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/system.h"
#include "core/runtime.h"

#define DEFAULT_MAX_NBYTES ((int64_t)64 << 20)
#define DEVICES_MAX 64 /* of a kind, that are bounded each; the devices beyond share with them */

/* Guards all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static gpufi_scratch *unused;                             /* the longest unused first */
static int64_t counts[GPUF_DEVICE_HOST + 1][DEVICES_MAX]; /* that exist, unused or taken */

static int64_t *count_of(gpuf_device device) {
  return &counts[device.kind][(uint32_t)device.index % DEVICES_MAX];
}

static int64_t count_max(void) {
  const int64_t most = gpufi_env_int64("GPUFETCH_SCRATCH_MAX_NBYTES", DEFAULT_MAX_NBYTES) /
                       (int64_t)GPUFI_SCRATCH_NBYTES;
  return most > 0 ? most : 1;
}

/* The link to the device's longest unused scratch, or with `done` to the first whose work is done.
 * NULL if there is none. Called with the lock held. */
static gpufi_scratch **find(const gpufi_backend *backend, gpuf_device device, bool done) {
  for (gpufi_scratch **link = &unused; *link; link = &(*link)->next) {
    const gpufi_scratch *scratch = *link;
    bool is_done = true;
    if (gpufi_is_same_device(scratch->device, device) &&
        (!done || (backend->event_query(device.index, scratch->idle, &is_done, NULL) == GPUF_OK &&
                   is_done))) {
      return link;
    }
  }
  return NULL;
}

static gpufi_scratch *take_from(gpufi_scratch **link) {
  gpufi_scratch *scratch = *link;
  *link = scratch->next;
  return scratch;
}

static void scratch_destroy(const gpufi_backend *backend, gpufi_scratch *scratch) {
  if (scratch->idle) {
    backend->event_destroy(scratch->device.index, scratch->idle);
  }
  if (scratch->d_data) {
    backend->free(scratch->device.index, scratch->d_data, NULL);
  }
  free(scratch);
}

/* NULL, with *status and `err` set, after a failure, here and below. */
static gpufi_scratch *scratch_create(const gpufi_backend *backend, gpuf_device device,
                                     gpuf_status *status, gpuf_error *err) {
  gpufi_scratch *scratch = calloc(1, sizeof(*scratch));
  if (!scratch) {
    *status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for the record of scratch");
    return NULL;
  }
  scratch->device = device;
  *status = backend->event_create(device.index, &scratch->idle, err);
  if (*status == GPUF_OK) {
    *status = backend->alloc(device.index, GPUFI_SCRATCH_NBYTES, &scratch->d_data, err);
  }
  if (*status != GPUF_OK) {
    scratch_destroy(backend, scratch);
    return NULL;
  }
  return scratch;
}

/* Called with the lock held, which is released while memory is allocated. */
static gpufi_scratch *create_counted(const gpufi_backend *backend, gpuf_device device,
                                     gpuf_status *status, gpuf_error *err) {
  ++*count_of(device);
  pthread_mutex_unlock(&lock);
  gpufi_scratch *scratch = scratch_create(backend, device, status, err);
  pthread_mutex_lock(&lock);
  if (!scratch) {
    --*count_of(device);
    pthread_cond_broadcast(&given); /* those who wait may try to allocate now */
  }
  return scratch;
}

/* Take scratch that nobody else holds. Called with the lock held. */
static gpufi_scratch *take_locked(const gpufi_backend *backend, gpuf_device device, bool wait,
                                  gpuf_status *status, gpuf_error *err) {
  for (;;) {
    gpufi_scratch *scratch = NULL;
    gpufi_scratch **link = find(backend, device, true);
    *status = GPUF_OK;
    if (!link && *count_of(device) < count_max()) {
      scratch = create_counted(backend, device, status, err);
    }
    if (scratch) {
      return scratch;
    }
    link = link || !wait ? link : find(backend, device, false);
    if (link) {
      *status = GPUF_OK;
      return take_from(link);
    }
    if (*status == GPUF_OK && !wait) {
      *status =
          gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, 0,
                     "all scratch of the device is in use; raise GPUFETCH_SCRATCH_MAX_NBYTES");
    }
    if (*status != GPUF_OK) {
      return NULL;
    }
    pthread_cond_wait(&given, &lock);
  }
}

gpuf_status gpufi_scratch_take(const gpufi_backend *backend, gpuf_device device, gpuf_stream stream,
                               bool wait, gpufi_scratch **out, gpuf_error *err) {
  gpuf_status status;
  pthread_mutex_lock(&lock);
  gpufi_scratch *scratch = take_locked(backend, device, wait, &status, err);
  pthread_mutex_unlock(&lock);
  if (!scratch) {
    return status;
  }
  status = backend->stream_wait_event(device.index, stream, scratch->idle, false, err);
  if (status != GPUF_OK) {
    gpufi_scratch_give(backend, scratch, GPUF_STREAM_NONE);
    return status;
  }
  *out = scratch;
  return GPUF_OK;
}

void gpufi_scratch_give(const gpufi_backend *backend, gpufi_scratch *scratch, gpuf_stream stream) {
  if (!scratch) {
    return;
  }
  const int32_t device = scratch->device.index;
  if (stream != GPUF_STREAM_NONE &&
      backend->event_record(device, scratch->idle, stream, NULL) != GPUF_OK) {
    backend->stream_drain(device, stream);
  }
  pthread_mutex_lock(&lock);
  gpufi_scratch **link = &unused;
  while (*link) {
    link = &(*link)->next;
  }
  scratch->next = NULL;
  *link = scratch;
  pthread_cond_broadcast(&given);
  pthread_mutex_unlock(&lock);
}
