#include "core/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/system.h"
#include "core/runtime.h"

#define DEFAULT_MAX_NBYTES ((int64_t)64 << 20)
#define DEVICES_MAX 64 /* of a kind, that the bound tells apart; others share one */

/* Guards all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static gpufi_scratch *free_blocks;                              /* the longest free first */
static int64_t block_counts[GPUF_DEVICE_HOST + 1][DEVICES_MAX]; /* that exist, free or taken */

static int64_t *count_of(gpuf_device device) {
  return &block_counts[device.kind][(uint32_t)device.index % DEVICES_MAX];
}

static int64_t count_max(void) {
  const int64_t blocks = gpufi_env_int64("GPUFETCH_SCRATCH_MAX_NBYTES", DEFAULT_MAX_NBYTES) /
                         (int64_t)GPUFI_SCRATCH_NBYTES;
  return blocks > 0 ? blocks : 1;
}

/* Where the device's longest free block hangs, or with `done` the first whose work is done. NULL
 * if there is none. Called with the lock held. */
static gpufi_scratch **find(const gpufi_backend *backend, gpuf_device device, bool done) {
  for (gpufi_scratch **link = &free_blocks; *link; link = &(*link)->next) {
    const gpufi_scratch *block = *link;
    bool is_done = true;
    if (block->device.kind == device.kind && block->device.index == device.index &&
        (!done ||
         (backend->event_query(device.index, block->idle, &is_done, NULL) == GPUF_OK && is_done))) {
      return link;
    }
  }
  return NULL;
}

static gpufi_scratch *take_from(gpufi_scratch **link) {
  gpufi_scratch *block = *link;
  *link = block->next;
  return block;
}

static void block_destroy(const gpufi_backend *backend, gpufi_scratch *block) {
  if (block->idle) {
    backend->event_destroy(block->device.index, block->idle);
  }
  if (block->d_data) {
    backend->free(block->device.index, block->d_data, NULL);
  }
  free(block);
}

/* NULL with *status and `err` set on failure, here and below. */
static gpufi_scratch *block_create(const gpufi_backend *backend, gpuf_device device,
                                   gpuf_status *status, gpuf_error *err) {
  gpufi_scratch *block = calloc(1, sizeof(*block));
  if (!block) {
    *status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a scratch block's record");
    return NULL;
  }
  block->device = device;
  *status = backend->event_create(device.index, &block->idle, err);
  if (*status == GPUF_OK) {
    *status = backend->alloc(device.index, GPUFI_SCRATCH_NBYTES, &block->d_data, err);
  }
  if (*status != GPUF_OK) {
    block_destroy(backend, block);
    return NULL;
  }
  return block;
}

/* Called with the lock held, which is let go while memory is allocated. */
static gpufi_scratch *create_counted(const gpufi_backend *backend, gpuf_device device,
                                     gpuf_status *status, gpuf_error *err) {
  ++*count_of(device);
  pthread_mutex_unlock(&lock);
  gpufi_scratch *block = block_create(backend, device, status, err);
  pthread_mutex_lock(&lock);
  if (!block) {
    --*count_of(device);
    pthread_cond_broadcast(&given); /* those who wait at the bound may try themselves */
  }
  return block;
}

/* A block that nobody else holds. Called with the lock held. */
static gpufi_scratch *take_locked(const gpufi_backend *backend, gpuf_device device, bool wait,
                                  gpuf_status *status, gpuf_error *err) {
  for (;;) {
    gpufi_scratch *block = NULL;
    gpufi_scratch **link = find(backend, device, true);
    *status = GPUF_OK;
    if (!link && *count_of(device) < count_max()) {
      block = create_counted(backend, device, status, err);
    }
    if (block) {
      return block;
    }
    link = link ? link : find(backend, device, false);
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
  gpufi_scratch *block = take_locked(backend, device, wait, &status, err);
  pthread_mutex_unlock(&lock);
  if (!block) {
    return status;
  }
  status = backend->stream_wait_event(device.index, stream, block->idle, err);
  if (status != GPUF_OK) {
    gpufi_scratch_give(backend, block, GPUF_STREAM_NONE);
    return status;
  }
  *out = block;
  return GPUF_OK;
}

void gpufi_scratch_give(const gpufi_backend *backend, gpufi_scratch *block, gpuf_stream stream) {
  if (!block) {
    return;
  }
  const int32_t device = block->device.index;
  if (stream != GPUF_STREAM_NONE &&
      backend->event_record(device, block->idle, stream, NULL) != GPUF_OK) {
    backend->stream_synchronize(device, stream, NULL);
  }
  pthread_mutex_lock(&lock);
  gpufi_scratch **link = &free_blocks;
  while (*link) {
    link = &(*link)->next;
  }
  block->next = NULL;
  *link = block;
  pthread_cond_broadcast(&given);
  pthread_mutex_unlock(&lock);
}
