#include "core/copy.h"

gpuf_status gpufi_piece_enqueue(const gpufi_copy *copy, gpufi_lane *lane, gpuf_stream stream,
                                size_t offset, size_t nbytes, void *staging, gpuf_error *err) {
  const gpufi_backend *backend = copy->backend;
  const int32_t device = copy->device.index;
  const gpufi_strided *layout = &copy->device_layout;
  const int64_t first = (int64_t)(offset / layout->element_nbytes);
  const int64_t count = (int64_t)(nbytes / layout->element_nbytes);
  void *d_packed = copy->device_contiguous ? copy->d_data + offset : lane->d_scratch;
  gpuf_status status = GPUF_OK;
  if (copy->direction == GPUFI_TO_HOST) {
    if (!copy->device_contiguous) {
      status = backend->pack(device, layout, copy->d_data, first, count, d_packed, stream, err);
    }
    if (status == GPUF_OK) {
      status = backend->copy(device, staging, d_packed, nbytes, GPUFI_TO_HOST, stream, err);
    }
  } else {
    status = backend->copy(device, d_packed, staging, nbytes, GPUFI_TO_DEVICE, stream, err);
    if (status == GPUF_OK && !copy->device_contiguous) {
      status = backend->unpack(device, layout, copy->d_data, first, count, d_packed, stream, err);
    }
  }
  return status;
}

gpuf_status gpufi_direct_enqueue(const gpufi_copy *copy, gpufi_lane *lane, gpuf_stream stream,
                                 gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!copy->device_contiguous) {
    status = gpufi_lane_need_scratch(lane, err);
  }
  if (status == GPUF_OK && stream != copy->producer) {
    status = gpufi_lane_join(lane, copy->producer, err);
  }
  for (size_t offset = 0; offset < copy->nbytes && status == GPUF_OK;) {
    const size_t left = copy->nbytes - offset;
    const size_t nbytes = left < copy->piece_nbytes ? left : copy->piece_nbytes;
    status = gpufi_piece_enqueue(copy, lane, stream, offset, nbytes, copy->h_data + offset, err);
    offset += nbytes;
  }
  if (status == GPUF_OK) {
    status = copy->backend->event_record(copy->device.index, lane->finished, stream, err);
  }
  return status;
}
