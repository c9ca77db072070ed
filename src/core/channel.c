#include "core/channel.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "core/pool.h"
#include "core/runtime.h"

static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static gpufi_channel *unused_channels;

static void workspace_free(gpufi_channel *channel) {
  if (channel->d_workspace) {
    channel->backend->free(channel->device.index, channel->d_workspace, NULL);
  }
  channel->d_workspace = NULL;
  channel->workspace_nbytes = 0;
}

static void channel_destroy(gpufi_channel *channel) {
  const gpufi_backend *backend = channel->backend;
  const int32_t device = channel->device.index;
  if (channel->stream != GPUF_STREAM_NONE) {
    backend->stream_destroy(device, channel->stream, NULL);
  }
  for (int i = 0; i < GPUFI_CHANNEL_BUFFER_COUNT; i++) {
    if (channel->buffers[i].copied) {
      backend->event_destroy(device, channel->buffers[i].copied);
    }
    gpuf_pool_release(channel->buffers[i].data, NULL);
  }
  if (channel->joined) {
    backend->event_destroy(device, channel->joined);
  }
  if (channel->finished) {
    backend->event_destroy(device, channel->finished);
  }
  workspace_free(channel);
  free(channel);
}

static gpuf_status channel_create(const gpufi_backend *backend, gpuf_device device,
                                  gpufi_channel **out, gpuf_error *err) {
  gpufi_channel *channel = calloc(1, sizeof(*channel));
  if (!channel) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a transfer's channel");
  }
  channel->backend = backend;
  channel->device = device;
  /* Its kernels are short: behind those of a program that keeps the device full, each would wait
   * for its turn. */
  gpuf_status status = backend->stream_create(device.index, true, &channel->stream, err);
  if (status == GPUF_OK) {
    status = backend->event_create(device.index, &channel->joined, err);
  }
  if (status == GPUF_OK) {
    status = backend->event_create(device.index, &channel->finished, err);
  }
  for (int i = 0; i < GPUFI_CHANNEL_BUFFER_COUNT && status == GPUF_OK; i++) {
    status = backend->event_create(device.index, &channel->buffers[i].copied, err);
  }
  if (status != GPUF_OK) {
    channel_destroy(channel);
    return status;
  }
  *out = channel;
  return GPUF_OK;
}

gpuf_status gpufi_channel_acquire(const gpufi_backend *backend, gpuf_device device,
                                  gpufi_channel **out, gpuf_error *err) {
  pthread_mutex_lock(&channels_lock);
  gpufi_channel **link = &unused_channels;
  while (*link && !gpufi_is_same_device((*link)->device, device)) {
    link = &(*link)->next;
  }
  gpufi_channel *channel = *link;
  if (channel) {
    *link = channel->next;
  }
  pthread_mutex_unlock(&channels_lock);
  if (!channel) {
    return channel_create(backend, device, out, err);
  }
  *out = channel;
  return GPUF_OK;
}

gpuf_status gpufi_channel_need_staging(gpufi_channel *channel, gpuf_error *err) {
  for (int i = 0; i < GPUFI_CHANNEL_BUFFER_COUNT; i++) {
    if (!channel->buffers[i].data) {
      const gpuf_status status = gpufi_pool_acquire_staging(
          channel->device, GPUFI_CHANNEL_BUFFER_NBYTES, &channel->buffers[i].data, err);
      if (status != GPUF_OK) {
        return status;
      }
    }
  }
  return GPUF_OK;
}

static gpuf_status take_scratch(gpufi_channel *channel, bool wait, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!channel->scratch) {
    status = gpufi_scratch_take(channel->backend, channel->device, channel->stream, wait,
                                &channel->scratch, err);
  }
  if (status == GPUF_OK) {
    channel->d_scratch = channel->scratch->d_data;
  }
  return status;
}

gpuf_status gpufi_channel_need_scratch(gpufi_channel *channel, gpuf_error *err) {
  return take_scratch(channel, true, err);
}

gpuf_status gpufi_channel_try_scratch(gpufi_channel *channel, gpuf_error *err) {
  return take_scratch(channel, false, err);
}

void gpufi_channel_give_scratch(gpufi_channel *channel) {
  gpufi_scratch_give(channel->backend, channel->scratch, channel->stream);
  channel->scratch = NULL;
  channel->d_scratch = NULL;
}

gpuf_status gpufi_channel_need_workspace(gpufi_channel *channel, size_t nbytes, gpuf_error *err) {
  if (nbytes <= channel->workspace_nbytes) {
    return GPUF_OK;
  }
  workspace_free(channel);
  const gpuf_status status =
      channel->backend->alloc(channel->device.index, nbytes, &channel->d_workspace, err);
  channel->workspace_nbytes = status == GPUF_OK ? nbytes : 0;
  return status;
}

gpuf_status gpufi_channel_order(gpufi_channel *channel, gpuf_stream producer, gpuf_stream consumer,
                                bool inherits, gpuf_error *err) {
  if (producer == GPUF_STREAM_NONE || producer == consumer) {
    return GPUF_OK;
  }
  const int32_t device = channel->device.index;
  const gpuf_status status = channel->backend->event_record(device, channel->joined, producer, err);
  return status == GPUF_OK
             ? channel->backend->stream_wait_event(device, consumer, channel->joined, inherits, err)
             : status;
}

gpuf_status gpufi_channel_join(gpufi_channel *channel, gpuf_stream producer, gpuf_error *err) {
  return gpufi_channel_order(channel, producer, channel->stream, true, err);
}

gpuf_status gpufi_channel_keep_stream(const gpufi_backend *backend, gpuf_device device,
                                      gpuf_stream *stream, gpufi_channel **keeper,
                                      gpuf_error *err) {
  gpufi_channel *channel = NULL;
  *keeper = NULL;
  if (*stream == GPUF_STREAM_NONE) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_channel_acquire(backend, device, &channel, err);
  if (!channel) {
    return status;
  }
  status = gpufi_channel_join(channel, *stream, err);
  if (status != GPUF_OK) {
    gpufi_channel_release(channel, true);
    return status;
  }
  *stream = channel->stream;
  *keeper = channel;
  return GPUF_OK;
}

gpuf_status gpufi_channel_name_stream(const gpufi_backend *backend, gpuf_device device,
                                      gpuf_stream *stream, gpufi_channel **keeper,
                                      gpuf_error *err) {
  *keeper = NULL;
  return *stream == GPUF_STREAM_PER_THREAD
             ? gpufi_channel_keep_stream(backend, device, stream, keeper, err)
             : GPUF_OK;
}

gpuf_status gpufi_channel_name_stream_of(gpuf_tensor *tensor, gpufi_channel **keeper,
                                         gpuf_error *err) {
  const gpufi_backend *backend;
  *keeper = NULL;
  if (tensor->device.kind == GPUF_DEVICE_CPU) {
    return GPUF_OK;
  }
  const gpuf_status status = gpufi_backend_for(tensor->device, &backend, err);
  return status == GPUF_OK
             ? gpufi_channel_name_stream(backend, tensor->device, &tensor->stream, keeper, err)
             : status;
}

/* Take one that has a workspace; NULL if there is none. */
static gpufi_channel *take_with_workspace(void) {
  pthread_mutex_lock(&channels_lock);
  gpufi_channel **link = &unused_channels;
  while (*link && (*link)->workspace_nbytes == 0) {
    link = &(*link)->next;
  }
  gpufi_channel *const channel = *link;
  if (channel) {
    *link = channel->next;
  }
  pthread_mutex_unlock(&channels_lock);
  return channel;
}

static void put_unused(gpufi_channel *channel) {
  pthread_mutex_lock(&channels_lock);
  channel->next = unused_channels;
  unused_channels = channel;
  pthread_mutex_unlock(&channels_lock);
}

/* One at a time: whoever finds no channel meanwhile makes one more. */
void gpufi_channels_trim(void) {
  gpufi_channel *channel;
  while ((channel = take_with_workspace())) {
    workspace_free(channel);
    put_unused(channel);
  }
}

void gpufi_channel_release(gpufi_channel *channel, bool failed) {
  if (!channel) {
    return;
  }
  gpufi_channel_give_scratch(channel);
  /* A failure that the stream has inherited, and that nobody looked at, is not the next one's. */
  if (failed || !channel->backend->fails_for_good) {
    failed |= channel->backend->stream_synchronize(channel->device.index, channel->stream, NULL) !=
              GPUF_OK;
  }
  if (failed) {
    channel_destroy(channel);
    return;
  }
  for (int i = 0; i < GPUFI_CHANNEL_BUFFER_COUNT; i++) {
    gpuf_pool_release(channel->buffers[i].data, NULL);
    channel->buffers[i].data = NULL;
  }
  if (channel->workspace_nbytes > GPUFI_CHANNEL_WORKSPACE_KEPT_NBYTES) {
    workspace_free(channel);
  }
  put_unused(channel);
}
