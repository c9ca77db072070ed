/* Many copies in flight: a future whose one thread does what gpuf_copy_many does. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/copy.h"
#include "core/many.h"
#include "core/runtime.h"

/* The channel whose stream stands for one of the tensors' (gpufi_channel_keep_stream). */
typedef struct keeper {
  gpufi_channel *channel;
  gpuf_stream kept;
} keeper;

typedef struct many_future {
  gpuf_future future; /* the first member, because gpuf_future_destroy frees it */
  gpuf_copy_options options;
  size_t count;
  gpuf_tensor *dsts, *srcs;
  keeper *keepers;
  size_t keeper_count; /* one for each stream of a device */
} many_future;

static void free_lists(many_future *m, bool failed) {
  for (size_t i = 0; i < m->keeper_count; i++) {
    gpufi_channel_release(m->keepers[i].channel, failed);
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

static keeper *find_keeper(const many_future *m, const gpuf_tensor *tensor) {
  for (size_t i = 0; i < m->keeper_count; i++) {
    keeper *const k = &m->keepers[i];
    if (k->kept == tensor->stream && gpufi_is_same_device(k->channel->device, tensor->device)) {
      return k;
    }
  }
  return NULL;
}

/* NULL, with *status and `err` set, after a failure. */
static keeper *add_keeper(many_future *m, const gpuf_tensor *tensor, gpuf_status *status,
                          gpuf_error *err) {
  const gpufi_backend *backend;
  keeper *const grown = realloc(m->keepers, (m->keeper_count + 1) * sizeof(*grown));
  if (!grown) {
    *status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for many copies");
    return NULL;
  }
  m->keepers = grown;
  keeper *const added = &grown[m->keeper_count];
  gpuf_stream replaced = tensor->stream;
  *added = (keeper){NULL, tensor->stream};
  *status = gpufi_backend_for(tensor->device, &backend, err);
  if (*status == GPUF_OK) {
    *status = gpufi_channel_keep_stream(backend, tensor->device, &replaced, &added->channel, err);
  }
  if (!added->channel) {
    return NULL;
  }
  m->keeper_count++;
  return added;
}

/* Let the copies come behind the work that is on the tensor's stream now, and no later one. */
static gpuf_status keep_stream(many_future *m, gpuf_tensor *tensor, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (tensor->device.kind == GPUF_DEVICE_CPU || tensor->stream == GPUF_STREAM_NONE) {
    return GPUF_OK;
  }
  const keeper *k = find_keeper(m, tensor);
  if (!k) {
    k = add_keeper(m, tensor, &status, err);
  }
  if (k) {
    tensor->stream = k->channel->stream;
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
    status = keep_stream(m, &m->dsts[i], err);
    if (status == GPUF_OK) {
      status = keep_stream(m, &m->srcs[i], err);
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
