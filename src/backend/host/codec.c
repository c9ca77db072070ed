#include "backend/host/codec.h"

#include <string.h>

#include "backend/host/faults.h"
#include "backend/host/memory.h"
#include "backend/host/stream.h"
#include "codec/bitshuffle.h"
#include "codec/geometry.h"

size_t gpufi_host_encode_scratch_nbytes(const gpufi_chunks *chunks) {
  return chunks->coding == GPUFI_CODING_BITSHUFFLE
             ? gpufi_bitshuffle_scratch_nbytes(chunks->raw_nbytes)
             : gpufi_codec_scratch_nbytes(&chunks->shape);
}

size_t gpufi_host_decode_scratch_nbytes(const gpufi_chunks *chunks) {
  return 1; /* none, but no allocation is empty */
}

typedef struct batch_args {
  gpufi_host_coder coder;
  gpufi_host_batch batch;
} batch_args;

static gpuf_status batch_work(const void *args, gpuf_error *err) {
  const batch_args *const a = args;
  gpufi_host_batch b = a->batch;
  const gpufi_chunks *const chunks = &b.chunks;
  const size_t place_count = b.verdicts ? chunks->count : GPUFI_CHUNKS_PLACE_COUNT(chunks->count);
  const struct {
    void **at;
    size_t nbytes;
  } ranges[] = {{&b.raw, chunks->count * chunks->raw_pitch_nbytes},
                {&b.encoded, b.encoded_nbytes},
                {&b.places, place_count * sizeof(gpufi_chunk_place)},
                {&b.verdicts, b.verdicts ? chunks->count * sizeof(uint32_t) : 0},
                {&b.scratch, b.scratch_nbytes}};
  gpuf_status status = GPUF_OK;
  gpufi_host_delay(0);
  for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]) && status == GPUF_OK; i++) {
    if (ranges[i].nbytes > 0) {
      status = gpufi_host_resolve(*ranges[i].at, ranges[i].nbytes, ranges[i].at, err);
    }
  }
  return status == GPUF_OK ? a->coder(&b, err) : status;
}

gpuf_status gpufi_host_enqueue_batch(int32_t device, gpufi_host_coder coder,
                                     const gpufi_host_batch *batch, gpuf_stream stream,
                                     gpuf_error *err) {
  const batch_args args = {coder, *batch};
  return gpufi_host_enqueue(device, stream, batch_work, &args, sizeof(args), err);
}

/* A GPU leaves chunks with a dictionary to the CPU. */
static bool is_left(const uint8_t *chunk) {
  return chunk[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_DICTIONARY;
}

/* Encode a chunk. *nbytes is set on success: 0 for a chunk that is left. */
static gpuf_status encode_one(const gpufi_chunks *chunks, const uint8_t *raw, uint8_t *encoded,
                              size_t *nbytes, uint8_t *scratch, gpuf_error *err) {
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    *nbytes = gpufi_bitshuffle_encode(gpufi_chunk_element_nbytes(chunks->shape.dtype), raw,
                                      chunks->raw_nbytes, encoded, scratch);
    return GPUF_OK;
  }
  const gpuf_status status = (chunks->big_endian ? gpufi_codec_encode_big_endian
                                                 : gpufi_codec_encode)(
      &chunks->shape, raw, encoded, gpufi_codec_bound(chunks->raw_nbytes), nbytes, scratch, err);
  *nbytes = status == GPUF_OK && !is_left(encoded) ? *nbytes : 0;
  return status;
}

/* Ranked chunks come behind all others, as on a GPU. */
static bool comes_later(const gpufi_chunks *chunks, const uint8_t *encoded, size_t nbytes) {
  return chunks->coding == GPUFI_CODING_GPUFETCH && nbytes != 0 &&
         encoded[GPUFI_AT_MODE] == GPUFI_MODE_RANKED;
}

static gpuf_status encode_batch(const gpufi_host_batch *b, gpuf_error *err) {
  const gpufi_chunks *const chunks = &b->chunks;
  const uint64_t later = UINT64_MAX; /* the place of a chunk that comes in the second round */
  gpufi_chunk_place *const places = b->places;
  gpuf_status status = GPUF_OK;
  uint64_t at = 0;
  for (size_t k = 0; k < 2 * chunks->count && status == GPUF_OK; k++) {
    const size_t i = k % chunks->count;
    const bool is_first = k < chunks->count;
    if (!is_first && places[i].offset != later) {
      continue;
    }
    const uint8_t *const raw = (const uint8_t *)b->raw + i * chunks->raw_pitch_nbytes;
    uint8_t *const encoded = (uint8_t *)b->encoded + at;
    size_t nbytes = 0;
    status = encode_one(chunks, raw, encoded, &nbytes, b->scratch, err);
    if (is_first && comes_later(chunks, encoded, nbytes)) {
      places[i] = (gpufi_chunk_place){later, 0};
    } else {
      places[i] = (gpufi_chunk_place){at, nbytes};
      at = gpufi_round_up_16(at + nbytes);
    }
  }
  if (status == GPUF_OK) {
    places[chunks->count] = (gpufi_chunk_place){at, 0};
  }
  return status;
}

gpuf_status gpufi_host_encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                              void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                              gpuf_stream stream, gpuf_error *err) {
  const gpufi_host_batch batch = {.chunks = *chunks,
                                  .raw = (void *)d_raw,
                                  .encoded = d_encoded,
                                  .encoded_nbytes = gpufi_chunks_encoded_nbytes(chunks),
                                  .places = d_places,
                                  .scratch = d_scratch,
                                  .scratch_nbytes = gpufi_host_encode_scratch_nbytes(chunks)};
  return gpufi_host_enqueue_batch(device, encode_batch, &batch, stream, err);
}

static bool same_shape(const gpufi_chunk_shape *a, const gpufi_chunk_shape *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof(*a->dims)) == 0;
}

static uint32_t decode_one(const gpufi_chunks *chunks, const gpufi_chunk_place *place,
                           const uint8_t *encoded, size_t encoded_nbytes, uint8_t *raw) {
  gpufi_chunk_shape shape;
  size_t raw_nbytes;
  if (place->offset % 16 != 0 || place->offset > encoded_nbytes ||
      place->nbytes > encoded_nbytes - place->offset || place->nbytes < GPUFI_HEADER_NBYTES) {
    return GPUFI_CHUNK_REFUSED;
  }
  encoded += place->offset;
  if (is_left(encoded)) {
    return GPUFI_CHUNK_LEFT;
  }
  const bool good =
      gpufi_codec_inspect(encoded, (size_t)place->nbytes, &shape, &raw_nbytes, NULL) == GPUF_OK &&
      same_shape(&shape, &chunks->shape) &&
      gpufi_codec_decode(encoded, (size_t)place->nbytes, raw, raw_nbytes, NULL) == GPUF_OK;
  return good ? GPUFI_CHUNK_DONE : GPUFI_CHUNK_REFUSED;
}

static gpuf_status decode_batch(const gpufi_host_batch *b, gpuf_error *err) {
  const gpufi_chunks *const chunks = &b->chunks;
  const gpufi_chunk_place *const places = b->places;
  uint32_t *const verdicts = b->verdicts;
  for (size_t i = 0; i < chunks->count; i++) {
    verdicts[i] = decode_one(chunks, &places[i], b->encoded, b->encoded_nbytes,
                             (uint8_t *)b->raw + i * chunks->raw_pitch_nbytes);
  }
  return GPUF_OK;
}

gpuf_status gpufi_host_decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                              gpuf_error *err) {
  const gpufi_host_batch batch = {.chunks = *chunks,
                                  .raw = d_raw,
                                  .encoded = (void *)d_encoded,
                                  .encoded_nbytes = encoded_nbytes,
                                  .places = (void *)d_places,
                                  .verdicts = d_verdicts,
                                  .scratch = d_scratch,
                                  .scratch_nbytes = gpufi_host_decode_scratch_nbytes(chunks)};
  return gpufi_host_enqueue_batch(device, decode_batch, &batch, stream, err);
}
