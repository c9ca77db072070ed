#include "backend/host/codec.h"

#include <string.h>

#include "backend/host/host.h"
#include "base/error.h"
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
  gpufi_chunks chunks;
  void *d_raw, *d_encoded, *d_places, *d_verdicts, *d_scratch;
  size_t encoded_nbytes; /* of decoding */
} batch_args;

/* The bytes of the batch's parts as the stream's thread may touch them. */
typedef struct batch {
  uint8_t *raw, *encoded, *scratch;
  gpufi_chunk_place *places;
  uint32_t *verdicts;
} batch;

/* `alias` of memory that is in no live allocation is an error. */
static gpuf_status resolve(const void *d_ptr, size_t nbytes, void *alias, gpuf_error *err) {
  void *const there = gpufi_host_alias(d_ptr, nbytes);
  memcpy(alias, &there, sizeof(there));
  return there ? GPUF_OK
               : gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                            "%zu bytes at %p are not inside a live allocation of the host "
                            "backend; keep the memory allocated until the work on it is done",
                            nbytes, d_ptr);
}

static gpuf_status resolve_batch(const batch_args *a, size_t place_count, size_t encoded_nbytes,
                                 batch *b, gpuf_error *err) {
  gpuf_status status =
      resolve(a->d_raw, a->chunks.count * a->chunks.raw_pitch_nbytes, &b->raw, err);
  if (status == GPUF_OK) {
    status = resolve(a->d_encoded, encoded_nbytes, &b->encoded, err);
  }
  return status == GPUF_OK
             ? resolve(a->d_places, place_count * sizeof(gpufi_chunk_place), &b->places, err)
             : status;
}

/* What a GPU leaves to the CPU. */
static bool is_left(const uint8_t *chunk) {
  return chunk[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_DICTIONARY;
}

/* Into what is left of the encoded buffer. *nbytes is set on success: 0 for a chunk that is left.
 */
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

/* As a GPU does: the ranked chunks behind all others. */
static bool comes_later(const gpufi_chunks *chunks, const uint8_t *encoded, size_t nbytes) {
  return chunks->coding == GPUFI_CODING_GPUFETCH && nbytes != 0 &&
         encoded[GPUFI_AT_MODE] == GPUFI_MODE_RANKED;
}

static gpuf_status encode_work(const void *args, gpuf_error *err) {
  const batch_args *const a = args;
  const gpufi_chunks *const chunks = &a->chunks;
  uint64_t at = 0;
  batch b;
  gpufi_host_delay(0);
  gpuf_status status = resolve_batch(a, GPUFI_CHUNKS_PLACE_COUNT(chunks->count),
                                     gpufi_chunks_encoded_nbytes(chunks), &b, err);
  if (status == GPUF_OK) {
    status = resolve(a->d_scratch, gpufi_host_encode_scratch_nbytes(chunks), &b.scratch, err);
  }
  const uint64_t later = UINT64_MAX; /* the place of a chunk that comes in the second round */
  for (size_t k = 0; k < 2 * chunks->count && status == GPUF_OK; k++) {
    const size_t i = k % chunks->count;
    const bool is_first = k < chunks->count;
    if (!is_first && b.places[i].offset != later) {
      continue;
    }
    size_t nbytes = 0;
    status = encode_one(chunks, b.raw + i * chunks->raw_pitch_nbytes, b.encoded + at, &nbytes,
                        b.scratch, err);
    if (is_first && comes_later(chunks, b.encoded + at, nbytes)) {
      b.places[i] = (gpufi_chunk_place){later, 0};
    } else {
      b.places[i] = (gpufi_chunk_place){at, nbytes};
      at = gpufi_round_up(at + nbytes, 16);
    }
  }
  if (status == GPUF_OK) {
    b.places[chunks->count] = (gpufi_chunk_place){at, 0};
  }
  return status;
}

gpuf_status gpufi_host_encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                              void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                              gpuf_stream stream, gpuf_error *err) {
  const batch_args args = {.chunks = *chunks,
                           .d_raw = (void *)d_raw,
                           .d_encoded = d_encoded,
                           .d_places = d_places,
                           .d_scratch = d_scratch};
  return gpufi_host_enqueue(device, stream, encode_work, &args, sizeof(args), err);
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

static gpuf_status decode_work(const void *args, gpuf_error *err) {
  const batch_args *const a = args;
  const gpufi_chunks *const chunks = &a->chunks;
  batch b;
  gpufi_host_delay(0);
  gpuf_status status = resolve_batch(a, chunks->count, a->encoded_nbytes, &b, err);
  if (status == GPUF_OK) {
    status = resolve(a->d_verdicts, chunks->count * sizeof(*b.verdicts), &b.verdicts, err);
  }
  for (size_t i = 0; i < chunks->count && status == GPUF_OK; i++) {
    b.verdicts[i] = decode_one(chunks, &b.places[i], b.encoded, a->encoded_nbytes,
                               b.raw + i * chunks->raw_pitch_nbytes);
  }
  return status;
}

gpuf_status gpufi_host_decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                              gpuf_error *err) {
  const batch_args args = {.chunks = *chunks,
                           .d_raw = d_raw,
                           .d_encoded = (void *)d_encoded,
                           .d_places = (void *)d_places,
                           .d_verdicts = d_verdicts,
                           .d_scratch = d_scratch,
                           .encoded_nbytes = encoded_nbytes};
  return gpufi_host_enqueue(device, stream, decode_work, &args, sizeof(args), err);
}
