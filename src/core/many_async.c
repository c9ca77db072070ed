/* Many copies in flight: a future whose one thread does what gpuf_copy_many does. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/copy.h"
#include "core/many.h"

typedef struct many_future {
  gpuf_future future; /* the first member, because gpuf_future_destroy frees it */
  gpuf_copy_options options;
  size_t count;
  gpuf_tensor *dsts, *srcs;
  gpufi_channel **keepers; /* of the calling thread's stream (gpufi_channel_name_stream) */
  size_t keeper_count;     /* one a device at most */
} many_future;

static void free_lists(many_future *m, bool failed) {
  for (size_t i = 0; i < m->keeper_count; i++) {
    gpufi_channel_release(m->keepers[i], failed);
  }
  free(m->keepers);
  free(m->dsts);
  free(m->srcs);
}

/* The last thread has left. */
static void release(gpuf_future *future) {
  const bool failed = gpufi_future_failure(future, NULL) != GPUF_OK;
  free_lists((many_future *)future, failed);
}

static void run(gpuf_future *future) {
  many_future *const m = (many_future *)future;
  gpuf_error error;
  const gpuf_status status =
      gpufi_copy_pairs(m->dsts, m->srcs, m->count, &m->options, future, &error);
  pthread_mutex_lock(&future->lock);
  future->arrived_nbytes = status == GPUF_OK ? future->copy.nbytes : 0;
  gpufi_future_fail(future, status, &error);
  pthread_mutex_unlock(&future->lock);
  gpufi_future_leave(future, 1);
}

/* The keeper of a device, or NULL. */
static gpufi_channel *keeper_of(const many_future *m, gpuf_device device) {
  for (size_t i = 0; i < m->keeper_count; i++) {
    const gpuf_device kept = m->keepers[i]->device;
    if (kept.kind == device.kind && kept.index == device.index) {
      return m->keepers[i];
    }
  }
  return NULL;
}

/* Let another thread be able to name the tensor's stream. */
static gpuf_status name_stream(many_future *m, gpuf_tensor *tensor, gpuf_error *err) {
  if (tensor->device.kind == GPUF_DEVICE_CPU || tensor->stream != GPUF_STREAM_PER_THREAD) {
    return GPUF_OK;
  }
  gpufi_channel *keeper = keeper_of(m, tensor->device);
  if (keeper) {
    tensor->stream = keeper->stream;
    return GPUF_OK;
  }
  gpufi_channel **const grown =
      realloc(m->keepers, (m->keeper_count + 1) * sizeof(gpufi_channel *));
  if (!grown) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for many copies");
  }
  m->keepers = grown;
  const gpuf_status status = gpufi_channel_name_stream_of(tensor, &keeper, err);
  if (status == GPUF_OK) {
    m->keepers[m->keeper_count++] = keeper;
  }
  return status;
}

/* Copy the pairs, because the caller's arrays may go. */
static gpuf_status take_pairs(many_future *m, const gpuf_tensor *dsts, const gpuf_tensor *srcs,
                              size_t count, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  m->dsts = calloc(count > 0 ? count : 1, sizeof(*m->dsts));
  m->srcs = calloc(count > 0 ? count : 1, sizeof(*m->srcs));
  if (!m->dsts || !m->srcs) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for %zu copies", count);
  }
  m->count = count;
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    m->dsts[i] = dsts[i];
    m->srcs[i] = srcs[i];
    status = name_stream(m, &m->dsts[i], err);
    if (status == GPUF_OK) {
      status = name_stream(m, &m->srcs[i], err);
    }
  }
  return status;
}

gpuf_status gpufi_copy_many_async(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                                  const gpuf_copy_options *options, gpuf_future **future,
                                  gpuf_error *err) {
  *future = NULL;
  many_future *const m = calloc(1, sizeof(*m));
  if (!m) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a future");
  }
  gpuf_status status = gpufi_copy_options_read(&m->options, options, err);
  if (status == GPUF_OK) {
    status = take_pairs(m, dsts, srcs, count, err);
  }
  if (status != GPUF_OK) {
    free_lists(m, true);
    free(m);
    return status;
  }
  gpufi_future_init(&m->future);
  for (size_t i = 0; i < count; i++) {
    m->future.copy.nbytes += gpuf_tensor_nbytes(&srcs[i]);
  }
  m->future.copy.thread_count = 1;
  m->future.run = run;
  m->future.release = release;
  gpufi_future_start_threads(&m->future, 0);
  *future = &m->future;
  return GPUF_OK;
}
