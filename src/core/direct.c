#include "core/copy.h"
#include "core/pool.h"

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

/* Pieces end where the pool's segments do. */
static size_t piece_nbytes_at(const gpufi_copy *copy, size_t offset) {
  const size_t in_segment =
      (copy->host_segment_offset + offset) % GPUFI_POOL_SEGMENT_NBYTES;
  size_t nbytes = copy->nbytes - offset;
  if (nbytes > copy->piece_nbytes) {
    nbytes = copy->piece_nbytes;
  }
  if (nbytes > GPUFI_POOL_SEGMENT_NBYTES - in_segment) {
    nbytes = GPUFI_POOL_SEGMENT_NBYTES - in_segment;
  }
  return nbytes;
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
    const size_t nbytes = piece_nbytes_at(copy, offset);
    status = gpufi_piece_enqueue(copy, lane, stream, offset, nbytes, copy->h_data + offset, err);
    offset += nbytes;
  }
  if (status == GPUF_OK) {
    status = copy->backend->event_record(copy->device.index, lane->finished, stream, err);
  }
  return status;
}
