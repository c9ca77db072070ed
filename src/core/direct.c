#include "core/direct.h"

#include "base/arithmetic.h"

static gpuf_status flat_enqueue(const gpufi_copy *copy, char *d_data, void *staging, size_t nbytes,
                                gpuf_stream stream, gpuf_error *err) {
  const bool to_host = copy->direction == GPUFI_TO_HOST;
  return copy->backend->copy(copy->device.index, to_host ? staging : d_data,
                             to_host ? d_data : staging, nbytes, copy->direction, stream, err);
}

static gpuf_status rows_enqueue(const gpufi_copy *copy, char *d_data, void *staging,
                                size_t row_count, gpuf_stream stream, gpuf_error *err) {
  const gpufi_strided *layout = &copy->device_layout;
  const size_t row_nbytes = (size_t)layout->shape[layout->ndim - 1] * layout->element_nbytes;
  const size_t pitch = (size_t)layout->strides_nbytes[layout->ndim - 2];
  const bool to_host = copy->direction == GPUFI_TO_HOST;
  const gpufi_rows rows = {
      .dst = to_host ? staging : d_data,
      .src = to_host ? d_data : staging,
      .dst_pitch_nbytes = to_host ? row_nbytes : pitch,
      .src_pitch_nbytes = to_host ? pitch : row_nbytes,
      .row_nbytes = row_nbytes,
      .row_count = row_count,
  };
  return copy->backend->copy_2d(copy->device.index, &rows, copy->direction, stream, err);
}

/* Enqueue one 2-D copy for each series of whole rows along the last axis but one, and flat copies
 * for incomplete rows at the ends of the piece. */
static gpuf_status rows_piece_enqueue(const gpufi_copy *copy, gpuf_stream stream, size_t offset,
                                      size_t nbytes, char *staging, gpuf_error *err) {
  const gpufi_strided *layout = &copy->device_layout;
  const int32_t last = layout->ndim - 1;
  const int64_t element_nbytes = layout->element_nbytes;
  const size_t row_nbytes = (size_t)(layout->shape[last] * element_nbytes);
  gpuf_status status = GPUF_OK;
  while (nbytes > 0 && status == GPUF_OK) {
    const size_t row = offset / row_nbytes, into_row = offset % row_nbytes;
    const size_t series_length = (size_t)layout->shape[last - 1];
    char *d_data = copy->d_data + gpufi_strided_offset(layout, (int64_t)offset / element_nbytes);
    const size_t row_count =
        gpufi_min_nbytes(series_length - row % series_length, nbytes / row_nbytes);
    size_t step = row_count * row_nbytes;
    if (into_row > 0 || row_count == 0) {
      step = gpufi_min_nbytes(row_nbytes - into_row, nbytes);
      status = flat_enqueue(copy, d_data, staging, step, stream, err);
    } else {
      status = rows_enqueue(copy, d_data, staging, row_count, stream, err);
    }
    offset += step;
    nbytes -= step;
    staging += step;
  }
  return status;
}

/* Enqueue packing `count` elements of the device side at `d_packed`, or, in a copy to a device,
 * unpacking them from there. They are cast if the copy casts. */
static gpuf_status repack_enqueue(const gpufi_copy *copy, void *d_packed, gpuf_stream stream,
                                  int64_t first, int64_t count, gpuf_error *err) {
  const bool to_device = copy->direction == GPUFI_TO_DEVICE;
  const gpufi_packing packing = {
      .layout = copy->device_layout,
      .d_base = copy->d_data,
      .first = first,
      .count = count,
      .d_packed = d_packed,
      .cast = to_device ? (gpufi_cast){copy->host_dtype, copy->device_dtype}
                        : (gpufi_cast){copy->device_dtype, copy->host_dtype},
  };
  return (to_device ? copy->backend->unpack : copy->backend->pack)(copy->device.index, &packing,
                                                                   stream, err);
}

static gpuf_status gather_piece_enqueue(const gpufi_copy *copy, void *d_packed, gpuf_stream stream,
                                        size_t offset, size_t nbytes, void *staging,
                                        gpuf_error *err) {
  const int64_t first = (int64_t)(offset / copy->host_layout.element_nbytes);
  const int64_t count = (int64_t)(nbytes / copy->host_layout.element_nbytes);
  gpuf_status status;
  if (copy->direction == GPUFI_TO_DEVICE) {
    status = flat_enqueue(copy, d_packed, staging, nbytes, stream, err);
    return status == GPUF_OK ? repack_enqueue(copy, d_packed, stream, first, count, err) : status;
  }
  status = repack_enqueue(copy, d_packed, stream, first, count, err);
  return status == GPUF_OK ? flat_enqueue(copy, d_packed, staging, nbytes, stream, err) : status;
}

gpuf_status gpufi_piece_enqueue(const gpufi_copy *copy, gpufi_channel *channel, gpuf_stream stream,
                                size_t offset, size_t nbytes, void *staging, gpuf_error *err) {
  switch (copy->route) {
  case GPUFI_ROUTE_FLAT:
    return flat_enqueue(copy, copy->d_data + offset, staging, nbytes, stream, err);
  case GPUFI_ROUTE_ROWS:
    return rows_piece_enqueue(copy, stream, offset, nbytes, staging, err);
  case GPUFI_ROUTE_GATHER:
    break;
  }
  return gather_piece_enqueue(copy, channel->d_scratch, stream, offset, nbytes, staging, err);
}

static size_t piece_nbytes_at(const gpufi_copy *copy, size_t offset) {
  return gpufi_min_nbytes(copy->nbytes - offset, copy->piece_nbytes);
}

gpuf_status gpufi_direct_enqueue(const gpufi_copy *copy, gpufi_channel *channel, gpuf_stream stream,
                                 gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (stream != copy->producer) {
    status = gpufi_channel_join(channel, copy->producer, err);
  }
  for (size_t offset = 0; offset < copy->nbytes && status == GPUF_OK;) {
    const size_t nbytes = piece_nbytes_at(copy, offset);
    status = gpufi_piece_enqueue(copy, channel, stream, offset, nbytes, copy->h_data + offset, err);
    offset += nbytes;
  }
  if (status == GPUF_OK) {
    status = copy->backend->event_record(copy->device.index, channel->finished, stream, err);
  }
  return status;
}

/* A channel with scratch, ordered behind the producer. Only the first waits for scratch, because a
 * thread that holds some must not wait for more. */
static gpuf_status gather_channel(const gpufi_copy *copy, bool wait, gpufi_channel **channel,
                                  gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!*channel) {
    status = gpufi_channel_acquire(copy->backend, copy->device, channel, err);
  }
  if (status == GPUF_OK) {
    status =
        wait ? gpufi_channel_need_scratch(*channel, err) : gpufi_channel_try_scratch(*channel, err);
  }
  return status == GPUF_OK ? gpufi_channel_join(*channel, copy->producer, err) : status;
}

gpuf_status gpufi_gather_enqueue(const gpufi_copy *copy, gpufi_channel **channels, int32_t *count,
                                 gpuf_error *err) {
  const size_t piece_count = (copy->nbytes + copy->piece_nbytes - 1) / copy->piece_nbytes;
  gpuf_status status = gather_channel(copy, true, &channels[0], err);
  while (status == GPUF_OK && *count < GPUFI_DIRECT_CHANNELS_MAX && (size_t)*count < piece_count) {
    gpufi_channel *channel = NULL;
    if (gather_channel(copy, false, &channel, NULL) != GPUF_OK) {
      gpufi_channel_release(channel, false); /* fewer channels only cost speed */
      break;
    }
    channels[(*count)++] = channel;
  }
  int32_t turn = 0;
  for (size_t offset = 0; offset < copy->nbytes && status == GPUF_OK;) {
    const size_t nbytes = piece_nbytes_at(copy, offset);
    gpufi_channel *channel = channels[turn];
    status = gpufi_piece_enqueue(copy, channel, channel->stream, offset, nbytes,
                                 copy->h_data + offset, err);
    offset += nbytes;
    turn = (turn + 1) % *count;
  }
  for (int32_t i = 0; i < *count && status == GPUF_OK; i++) {
    status = copy->backend->event_record(copy->device.index, channels[i]->finished,
                                         channels[i]->stream, err);
    gpufi_channel_give_scratch(channels[i]);
  }
  return status;
}
