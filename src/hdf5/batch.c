#include "hdf5/batch.h"

#include "core/pool.h"

/* Reserve `nbytes` at the next multiple of 256 and return their offset. */
static size_t take(size_t *at, size_t nbytes) {
  const size_t begin = *at;
  *at = gpufi_round_up(begin + nbytes, 256);
  return begin;
}

gpuf_status gpufi_h5_batch_init(gpufi_h5_batch *b, const gpufi_backend *backend, gpuf_device device,
                                const gpufi_chunks *chunks, bool encodes, gpuf_error *err) {
  size_t nbytes = 0;
  const size_t verdicts_at = take(&nbytes, chunks->count * sizeof(*b->verdicts));
  const size_t places_at =
      take(&nbytes, GPUFI_CHUNKS_PLACE_COUNT(chunks->count) * sizeof(*b->places));
  const size_t encoded_at = take(&nbytes, gpufi_chunks_encoded_nbytes(chunks));
  const size_t pinned_nbytes = nbytes;
  const size_t raw_at = take(&nbytes, chunks->count * chunks->raw_pitch_nbytes);
  const size_t spare_at = take(&nbytes, chunks->raw_nbytes);
  const size_t scratch_at = take(&nbytes, encodes ? backend->encode_scratch_nbytes(chunks)
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
  b->d_raw = d_base + raw_at;
  b->d_spare = d_base + spare_at;
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
      b->channel->backend->encode(b->channel->device.index, &b->chunks, b->d_raw, b->d_encoded,
                                  b->d_places, b->d_scratch, b->channel->stream, err);
  if (status == GPUF_OK) {
    status =
        copy(b, b->places, b->d_places,
             GPUFI_CHUNKS_PLACE_COUNT(b->chunks.count) * sizeof(*b->places), GPUFI_TO_HOST, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_mark(b, err) : status;
}

/* Bring chunks first to end-1, each of which follows the one before it, in one transfer to *at,
 * which is where the chunks before them end. They take no more there than the encoder reserved for
 * them. */
static gpuf_status send_chunks(const gpufi_h5_batch *b, size_t first, size_t end, size_t *at,
                               gpuf_error *err) {
  gpufi_chunk_place *const places = b->places;
  const size_t pitch = b->chunks.raw_pitch_nbytes;
  const uint64_t base = places[first].offset;
  const bool raw = places[first].nbytes == 0;
  const uint8_t *const d_src = raw ? b->d_raw + first * pitch : b->d_encoded + base;
  const size_t nbytes = raw ? (end - first - 1) * pitch + b->chunks.raw_nbytes
                            : (size_t)(places[end - 1].offset + places[end - 1].nbytes - base);
  const gpuf_status status = copy(b, b->bytes + *at, d_src, nbytes, GPUFI_TO_HOST, err);
  for (size_t i = first; i < end; i++) {
    places[i].offset = *at + (raw ? (i - first) * pitch : places[i].offset - base);
  }
  *at = gpufi_round_up_16(*at + nbytes);
  return status;
}

/* Whether chunk i can cross in one transfer with the one before it: both are raw, or both are
 * encoded and no further apart than the encoder's reserve for a chunk. */
static bool follows(const gpufi_h5_batch *b, size_t i) {
  const gpufi_chunk_place before = b->places[i - 1], here = b->places[i];
  if (before.nbytes == 0 || here.nbytes == 0) {
    return before.nbytes == here.nbytes;
  }
  const size_t reserved = gpufi_chunks_encoded_nbytes(&b->chunks) / b->chunks.count;
  return here.offset > before.offset && here.offset - before.offset <= reserved;
}

gpuf_status gpufi_h5_batch_send(const gpufi_h5_batch *b, gpuf_error *err) {
  const size_t count = b->chunks.count;
  gpuf_status status = gpufi_h5_batch_wait(b, err);
  size_t at = 0;
  for (size_t first = 0, end; first < count && status == GPUF_OK; first = end) {
    end = first + 1;
    while (end < count && follows(b, end)) {
      end++;
    }
    status = send_chunks(b, first, end, &at, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_mark(b, err) : status;
}

gpuf_status gpufi_h5_batch_decode(const gpufi_h5_batch *b, gpuf_error *err) {
  const size_t gap = (size_t)(b->bytes - (const uint8_t *)b->places);
  gpuf_status status =
      copy(b, b->d_places, b->places, gap + b->encoded_nbytes, GPUFI_TO_DEVICE, err);
  if (status == GPUF_OK) {
    status = b->channel->backend->decode(b->channel->device.index, &b->chunks, b->d_encoded,
                                         b->encoded_nbytes, b->d_places, b->d_raw, b->d_verdicts,
                                         b->d_scratch, b->channel->stream, err);
  }
  return status == GPUF_OK ? copy(b, b->verdicts, b->d_verdicts,
                                  b->chunks.count * sizeof(*b->verdicts), GPUFI_TO_HOST, err)
                           : status;
}
