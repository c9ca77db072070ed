#include "core/lane.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "core/pool.h"

static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static gpufi_lane *unused_lanes;

static void workspace_free(gpufi_lane *lane) {
  if (lane->d_workspace) {
    lane->backend->free(lane->device.index, lane->d_workspace, NULL);
  }
  lane->d_workspace = NULL;
  lane->workspace_nbytes = 0;
}

static void lane_destroy(gpufi_lane *lane) {
  const gpufi_backend *backend = lane->backend;
  const int32_t device = lane->device.index;
  if (lane->stream != GPUF_STREAM_NONE) {
    backend->stream_destroy(device, lane->stream, NULL);
  }
  for (int i = 0; i < GPUFI_LANE_SLOT_COUNT; i++) {
    if (lane->slots[i].copied) {
      backend->event_destroy(device, lane->slots[i].copied);
    }
    gpuf_pool_release(lane->slots[i].staging);
  }
  if (lane->joined) {
    backend->event_destroy(device, lane->joined);
  }
  if (lane->finished) {
    backend->event_destroy(device, lane->finished);
  }
  workspace_free(lane);
  free(lane);
}

static gpuf_status lane_create(const gpufi_backend *backend, gpuf_device device, gpufi_lane **out,
                               gpuf_error *err) {
  gpufi_lane *lane = calloc(1, sizeof(*lane));
  if (!lane) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a transfer lane");
  }
  lane->backend = backend;
  lane->device = device;
  gpuf_status status = backend->stream_create(device.index, &lane->stream, err);
  if (status == GPUF_OK) {
    status = backend->event_create(device.index, &lane->joined, err);
  }
  if (status == GPUF_OK) {
    status = backend->event_create(device.index, &lane->finished, err);
  }
  for (int i = 0; i < GPUFI_LANE_SLOT_COUNT && status == GPUF_OK; i++) {
    status = backend->event_create(device.index, &lane->slots[i].copied, err);
  }
  if (status != GPUF_OK) {
    lane_destroy(lane);
    return status;
  }
  *out = lane;
  return GPUF_OK;
}

gpuf_status gpufi_lane_acquire(const gpufi_backend *backend, gpuf_device device, gpufi_lane **out,
                               gpuf_error *err) {
  pthread_mutex_lock(&lanes_lock);
  gpufi_lane **link = &unused_lanes;
  while (*link && ((*link)->device.kind != device.kind || (*link)->device.index != device.index)) {
    link = &(*link)->next;
  }
  gpufi_lane *lane = *link;
  if (lane) {
    *link = lane->next;
  }
  pthread_mutex_unlock(&lanes_lock);
  if (!lane) {
    return lane_create(backend, device, out, err);
  }
  *out = lane;
  return GPUF_OK;
}

gpuf_status gpufi_lane_need_staging(gpufi_lane *lane, gpuf_error *err) {
  for (int i = 0; i < GPUFI_LANE_SLOT_COUNT; i++) {
    if (!lane->slots[i].staging) {
      const gpuf_status status = gpufi_pool_acquire_staging(lane->device, GPUFI_LANE_BUFFER_NBYTES,
                                                            &lane->slots[i].staging, err);
      if (status != GPUF_OK) {
        return status;
      }
    }
  }
  return GPUF_OK;
}

static gpuf_status take_scratch(gpufi_lane *lane, bool wait, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!lane->scratch) {
    status =
        gpufi_scratch_take(lane->backend, lane->device, lane->stream, wait, &lane->scratch, err);
  }
  if (status == GPUF_OK) {
    lane->d_scratch = lane->scratch->d_data;
  }
  return status;
}

gpuf_status gpufi_lane_need_scratch(gpufi_lane *lane, gpuf_error *err) {
  return take_scratch(lane, true, err);
}

gpuf_status gpufi_lane_try_scratch(gpufi_lane *lane, gpuf_error *err) {
  return take_scratch(lane, false, err);
}

void gpufi_lane_give_scratch(gpufi_lane *lane) {
  gpufi_scratch_give(lane->backend, lane->scratch, lane->stream);
  lane->scratch = NULL;
  lane->d_scratch = NULL;
}

gpuf_status gpufi_lane_need_workspace(gpufi_lane *lane, size_t nbytes, gpuf_error *err) {
  if (nbytes <= lane->workspace_nbytes) {
    return GPUF_OK;
  }
  workspace_free(lane);
  const gpuf_status status =
      lane->backend->alloc(lane->device.index, nbytes, &lane->d_workspace, err);
  lane->workspace_nbytes = status == GPUF_OK ? nbytes : 0;
  return status;
}

gpuf_status gpufi_lane_join(gpufi_lane *lane, gpuf_stream producer, gpuf_error *err) {
  if (producer == GPUF_STREAM_NONE || producer == lane->stream) {
    return GPUF_OK;
  }
  const int32_t device = lane->device.index;
  const gpuf_status status = lane->backend->event_record(device, lane->joined, producer, err);
  return status == GPUF_OK
             ? lane->backend->stream_wait_event(device, lane->stream, lane->joined, err)
             : status;
}

void gpufi_lanes_trim(void) {
  pthread_mutex_lock(&lanes_lock);
  gpufi_lane *const trimmed = unused_lanes;
  unused_lanes = NULL;
  pthread_mutex_unlock(&lanes_lock);
  gpufi_lane *last = NULL;
  for (gpufi_lane *lane = trimmed; lane; lane = lane->next) {
    workspace_free(lane);
    last = lane;
  }
  if (last) {
    pthread_mutex_lock(&lanes_lock);
    last->next = unused_lanes;
    unused_lanes = trimmed;
    pthread_mutex_unlock(&lanes_lock);
  }
}

void gpufi_lane_release(gpufi_lane *lane, bool failed) {
  if (!lane) {
    return;
  }
  gpufi_lane_give_scratch(lane);
  if (failed) {
    lane->backend->stream_synchronize(lane->device.index, lane->stream, NULL);
    lane_destroy(lane);
    return;
  }
  for (int i = 0; i < GPUFI_LANE_SLOT_COUNT; i++) {
    gpuf_pool_release(lane->slots[i].staging);
    lane->slots[i].staging = NULL;
  }
  if (lane->workspace_nbytes > GPUFI_LANE_WORKSPACE_KEPT_NBYTES) {
    workspace_free(lane);
  }
  pthread_mutex_lock(&lanes_lock);
  lane->next = unused_lanes;
  unused_lanes = lane;
  pthread_mutex_unlock(&lanes_lock);
}
