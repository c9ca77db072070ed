#include "hdf5/batch.h"

#include <string.h>

#include "core/pool.h"

/* Reserve `nbytes` at the next multiple of 256 and return their offset. */
static size_t take(size_t *at, size_t nbytes) {
  const size_t begin = *at;
  *at = gpufi_round_up(begin + nbytes, 256);
  return begin;
}

gpuf_status gpufi_h5_batch_init(gpufi_h5_batch *b, const gpufi_backend *backend, gpuf_device device,
                                const gpufi_chunks *chunks, const gpufi_h5_batch_use *use,
                                gpuf_error *err) {
  size_t nbytes = 0;
  const size_t verdicts_at = take(&nbytes, chunks->count * sizeof(*b->verdicts));
  const size_t places_at =
      take(&nbytes, GPUFI_CHUNKS_PLACE_COUNT(chunks->count) * sizeof(*b->places));
  const size_t encoded_at = take(&nbytes, gpufi_chunks_encoded_nbytes(chunks));
  const size_t pinned_nbytes = use->has_bytes ? nbytes : encoded_at;
  const size_t raw_at = take(&nbytes, use->has_raw ? chunks->count * chunks->raw_pitch_nbytes : 0);
  const size_t spare_at = take(&nbytes, chunks->raw_nbytes);
  const size_t fill_at = take(&nbytes, GPUFI_H5_BATCH_FILL_NBYTES);
  const size_t scratch_at = take(&nbytes, use->encodes ? backend->encode_scratch_nbytes(chunks)
                                                       : backend->decode_scratch_nbytes(chunks));
  gpuf_status status = gpufi_channel_acquire(backend, device, &b->channel, err);
  if (status == GPUF_OK) {
    status = gpufi_channel_need_workspace(b->channel, nbytes, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_pool_acquire_staging(device, pinned_nbytes, &b->pinned, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  uint8_t *const base = b->pinned, *const d_base = b->channel->d_workspace;
  b->chunks = *chunks;
  b->verdicts = (uint32_t *)(base + verdicts_at);
  b->places = (gpufi_chunk_place *)(base + places_at);
  b->bytes = base + encoded_at;
  b->d_verdicts = (uint32_t *)(d_base + verdicts_at);
  b->d_places = (gpufi_chunk_place *)(d_base + places_at);
  b->d_encoded = d_base + encoded_at;
  b->d_raw = b->d_chunks = d_base + raw_at;
  b->d_spare = d_base + spare_at;
  b->d_fill = d_base + fill_at;
  b->d_scratch = d_base + scratch_at;
  return GPUF_OK;
}

void gpufi_h5_batch_fini(gpufi_h5_batch *b) {
  gpufi_channel *const channel = b->channel;
  if (channel) {
    const bool failed = channel->backend->stream_synchronize(channel->device.index, channel->stream,
                                                             NULL) != GPUF_OK;
    gpufi_channel_release(channel, failed);
  }
  gpuf_pool_release(b->pinned, NULL);
}

static gpuf_status copy(const gpufi_h5_batch *b, void *dst, const void *src, size_t nbytes,
                        gpufi_direction direction, gpuf_error *err) {
  return b->channel->backend->copy(b->channel->device.index, dst, src, nbytes, direction,
                                   b->channel->stream, err);
}

/* The pinned verdicts, rounded up to 256 bytes, are not used where chunks are encoded. */
gpuf_status gpufi_h5_batch_set_fill(const gpufi_h5_batch *b, const void *element, gpuf_error *err) {
  memcpy(b->verdicts, element, GPUFI_H5_BATCH_FILL_NBYTES);
  return copy(b, b->d_fill, b->verdicts, GPUFI_H5_BATCH_FILL_NBYTES, GPUFI_TO_DEVICE, err);
}

gpuf_status gpufi_h5_batch_mark(const gpufi_h5_batch *b, gpuf_error *err) {
  const gpufi_channel *const channel = b->channel;
  return channel->backend->event_record(channel->device.index, channel->finished, channel->stream,
                                        err);
}

gpuf_status gpufi_h5_batch_wait(const gpufi_h5_batch *b, gpuf_error *err) {
  const gpufi_channel *const channel = b->channel;
  return channel->backend->event_wait(channel->device.index, channel->finished, err);
}

gpuf_status gpufi_h5_batch_encode(const gpufi_h5_batch *b, gpuf_error *err) {
  gpuf_status status =
      b->channel->backend->encode(b->channel->device.index, &b->chunks, b->d_chunks, b->d_encoded,
                                  b->d_places, b->d_scratch, b->channel->stream, err);
  if (status == GPUF_OK) {
    status =
        copy(b, b->places, b->d_places,
             GPUFI_CHUNKS_PLACE_COUNT(b->chunks.count) * sizeof(*b->places), GPUFI_TO_HOST, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_mark(b, err) : status;
}

/* Chunks that cross the link in one transfer: all raw or all encoded, each behind the one before.
 */
typedef struct span {
  size_t first, end;
  const uint8_t *d_src;
  size_t nbytes;
} span;

/* Whether chunk i can cross in one transfer with the one before it: both are raw, or both are
 * encoded and no further apart than the encoder's reserve for a chunk. */
static bool follows(const gpufi_h5_batch *b, size_t i, size_t reserved) {
  const gpufi_chunk_place before = b->places[i - 1], here = b->places[i];
  if (before.nbytes == 0 || here.nbytes == 0) {
    return before.nbytes == here.nbytes;
  }
  return here.offset > before.offset && here.offset - before.offset <= reserved;
}

static span span_at(const gpufi_h5_batch *b, size_t first) {
  const gpufi_chunk_place *const places = b->places;
  const size_t pitch = b->chunks.raw_pitch_nbytes;
  const size_t reserved = gpufi_chunks_encoded_nbytes(&b->chunks) / b->chunks.count;
  span s = {.first = first, .end = first + 1};
  while (s.end < b->chunks.count && follows(b, s.end, reserved)) {
    s.end++;
  }
  if (places[first].nbytes == 0) {
    s.d_src = b->d_chunks + first * pitch;
    s.nbytes = (s.end - first - 1) * pitch + b->chunks.raw_nbytes;
  } else {
    s.d_src = b->d_encoded + places[first].offset;
    s.nbytes = (size_t)(places[s.end - 1].offset + places[s.end - 1].nbytes - places[first].offset);
  }
  return s;
}

/* Say that the span's chunks lie from `at` on, and return where the next span begins. They take no
 * more there than the encoder reserved for them. */
static size_t place_span(const gpufi_h5_batch *b, const span *s, size_t at) {
  gpufi_chunk_place *const places = b->places;
  const uint64_t base = places[s->first].offset;
  const bool raw = places[s->first].nbytes == 0;
  for (size_t i = s->first; i < s->end; i++) {
    places[i].offset =
        at + (raw ? (i - s->first) * b->chunks.raw_pitch_nbytes : places[i].offset - base);
  }
  return gpufi_round_up_16(at + s->nbytes);
}

size_t gpufi_h5_batch_sent_nbytes(const gpufi_h5_batch *b) {
  size_t nbytes = 0;
  span s;
  for (size_t first = 0; first < b->chunks.count; first = s.end) {
    s = span_at(b, first);
    nbytes = gpufi_round_up_16(nbytes + s.nbytes);
  }
  return nbytes;
}

gpuf_status gpufi_h5_batch_send(const gpufi_h5_batch *b, gpuf_error *err) {
  gpuf_status status = gpufi_h5_batch_wait(b, err);
  size_t at = 0;
  span s;
  for (size_t first = 0; first < b->chunks.count && status == GPUF_OK; first = s.end) {
    s = span_at(b, first);
    status = copy(b, b->bytes + at, s.d_src, s.nbytes, GPUFI_TO_HOST, err);
    at = place_span(b, &s, at);
  }
  return status == GPUF_OK ? gpufi_h5_batch_mark(b, err) : status;
}

gpuf_status gpufi_h5_batch_keep(const gpufi_h5_batch *b, uint8_t *d_dst, gpuf_error *err) {
  const gpufi_channel *const channel = b->channel;
  gpuf_status status = GPUF_OK;
  size_t at = 0;
  span s;
  for (size_t first = 0; first < b->chunks.count && status == GPUF_OK; first = s.end) {
    s = span_at(b, first);
    const gpufi_flat_copy kept = {d_dst + at, s.d_src, s.nbytes};
    status = channel->backend->gather(channel->device.index, &kept, 1, channel->stream, err);
    at = place_span(b, &s, at);
  }
  return status == GPUF_OK ? gpufi_h5_batch_mark(b, err) : status;
}

gpuf_status gpufi_h5_batch_decode(const gpufi_h5_batch *b, gpuf_error *err) {
  const size_t gap = (size_t)(b->bytes - (const uint8_t *)b->places);
  gpuf_status status =
      copy(b, b->d_places, b->places, gap + b->encoded_nbytes, GPUFI_TO_DEVICE, err);
  if (status == GPUF_OK) {
    status = b->channel->backend->decode(b->channel->device.index, &b->chunks, b->d_encoded,
                                         b->encoded_nbytes, b->d_places, b->d_chunks, b->d_verdicts,
                                         b->d_scratch, b->channel->stream, err);
  }
  return status == GPUF_OK ? copy(b, b->verdicts, b->d_verdicts,
                                  b->chunks.count * sizeof(*b->verdicts), GPUFI_TO_HOST, err)
                           : status;
}
