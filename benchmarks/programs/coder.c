/* The codec's passes over a tensor's chunks. */
#include "coder.h"

#include <string.h>

#include "base/error.h"
#include "core/runtime.h"

#define BATCH_NBYTES ((size_t)32 << 20)
#define BATCH_COUNT 4 /* in flight */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

/* --- Memory -------------------------------------------------------------- */

typedef struct allocation {
  void **ptr;
  size_t nbytes;
} allocation;

static gpuf_status acquire(coder *c, gpuf_error *err) {
  const gpuf_device device = c->tensor.device;
  const size_t count = c->chunks.count;
  const size_t places_nbytes = GPUFI_CHUNKS_PLACE_COUNT(count) * sizeof(gpufi_chunk_place);
  const allocation on_device[] = {
      {&c->tensor.data, count * c->chunks.raw_nbytes},
      {&c->d_encoded, c->encoded_max_nbytes},
      {&c->d_decoded, count * c->chunks.raw_nbytes},
      {&c->d_places, places_nbytes},
      {&c->d_verdicts, count * sizeof(uint32_t)},
      {&c->d_scratch, larger(c->backend->encode_scratch_nbytes(&c->chunks),
                             c->backend->decode_scratch_nbytes(&c->chunks))},
  };
  const allocation pinned[] = {
      {&c->bytes, c->encoded_max_nbytes},
      {(void **)&c->places, places_nbytes},
      {(void **)&c->device_places, places_nbytes},
      {(void **)&c->verdicts, count * sizeof(uint32_t)},
  };
  gpuf_status status = gpuf_stream_create(device, &c->stream, err);
  for (size_t i = 0; i < COUNT_OF(on_device) && status == GPUF_OK; i++) {
    status = gpuf_alloc(device, on_device[i].nbytes, on_device[i].ptr, err);
  }
  for (size_t i = 0; i < COUNT_OF(pinned) && status == GPUF_OK; i++) {
    status = gpuf_pool_acquire(device, pinned[i].nbytes, pinned[i].ptr, err);
  }
  return status;
}

void coder_fini(coder *c) {
  void *const on_device[] = {c->tensor.data, c->d_encoded,  c->d_decoded,
                             c->d_places,    c->d_verdicts, c->d_scratch};
  void *const pinned[] = {c->bytes, c->places, c->device_places, c->verdicts};
  if (!c->backend) {
    return;
  }
  gpuf_stream_destroy(c->tensor.device, c->stream, NULL);
  for (size_t i = 0; i < COUNT_OF(on_device); i++) {
    gpuf_free(c->tensor.device, on_device[i], NULL);
  }
  for (size_t i = 0; i < COUNT_OF(pinned); i++) {
    gpuf_pool_release(pinned[i], NULL);
  }
}

/* --- On the device ------------------------------------------------------- */

gpuf_status coder_encode(coder *c, int64_t repeats, gpuf_error *err) {
  const int32_t device = c->tensor.device.index;
  gpuf_status status = GPUF_OK;
  for (int64_t i = 0; i < repeats && status == GPUF_OK; i++) {
    status = c->backend->encode(device, &c->chunks, c->tensor.data, c->d_encoded, c->d_places,
                                c->d_scratch, c->stream, err);
  }
  return status == GPUF_OK ? gpuf_stream_synchronize(c->tensor.device, c->stream, err) : status;
}

static gpuf_status check_verdicts(size_t count, const gpufi_chunk_place *places,
                                  const uint32_t *verdicts, gpuf_error *err) {
  for (size_t i = 0; i < count; i++) {
    if (places[i].nbytes != 0 && verdicts[i] != GPUFI_CHUNK_DONE) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "chunk %zu was encoded and is not decoded (%u)",
                        i, (unsigned)verdicts[i]);
    }
  }
  return GPUF_OK;
}

/* Bring over where the chunks lie encoded on the device, and what decoding found. */
static gpuf_status bring_verdicts(coder *c, gpuf_error *err) {
  const int32_t device = c->tensor.device.index;
  const size_t count = c->chunks.count;
  gpuf_status status =
      c->backend->copy(device, c->device_places, c->d_places, count * sizeof(*c->device_places),
                       GPUFI_TO_HOST, c->stream, err);
  if (status == GPUF_OK) {
    status = c->backend->copy(device, c->verdicts, c->d_verdicts, count * sizeof(*c->verdicts),
                              GPUFI_TO_HOST, c->stream, err);
  }
  return status == GPUF_OK ? gpuf_stream_synchronize(c->tensor.device, c->stream, err) : status;
}

gpuf_status coder_decode(coder *c, int64_t repeats, gpuf_error *err) {
  const int32_t device = c->tensor.device.index;
  const size_t count = c->chunks.count, raw_nbytes = c->chunks.raw_nbytes;
  gpuf_status status = GPUF_OK;
  for (int64_t i = 0; i < repeats && status == GPUF_OK; i++) {
    status =
        c->backend->decode(device, &c->chunks, c->d_encoded, c->encoded_max_nbytes, c->d_places,
                           c->d_decoded, c->d_verdicts, c->d_scratch, c->stream, err);
  }
  if (status == GPUF_OK) {
    status = bring_verdicts(c, err);
  }
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    const gpufi_flat_copy piece = {(char *)c->d_decoded + i * raw_nbytes,
                                   (char *)c->tensor.data + i * raw_nbytes, raw_nbytes};
    if (c->device_places[i].nbytes == 0) {
      status = c->backend->gather(device, &piece, 1, c->stream, err);
    }
  }
  if (status == GPUF_OK) {
    status = gpuf_stream_synchronize(c->tensor.device, c->stream, err);
  }
  return status == GPUF_OK ? check_verdicts(count, c->device_places, c->verdicts, err) : status;
}

/* --- With the link ------------------------------------------------------- */

static size_t batch_count_max(const coder *c) {
  return larger(BATCH_NBYTES / c->chunks.raw_nbytes, 1);
}

/* Batch i, which begins at chunk *first; its count is 0 past the last. */
static gpufi_chunks batch_at(const coder *c, size_t i, size_t *first) {
  gpufi_chunks chunks = c->chunks;
  const size_t full = batch_count_max(c);
  *first = i * full;
  const size_t left = *first < chunks.count ? chunks.count - *first : 0;
  chunks.count = left < full ? left : full;
  return chunks;
}

static gpuf_status start_batch(const coder *c, gpufi_batch *batches, size_t i, gpuf_error *err) {
  size_t first;
  gpufi_batch *const b = &batches[i % BATCH_COUNT];
  const gpufi_chunks chunks = batch_at(c, i, &first);
  if (chunks.count == 0) {
    return GPUF_OK;
  }
  b->chunks = chunks;
  return gpufi_batch_encode(b, (const char *)c->tensor.data + first * chunks.raw_nbytes, err);
}

/* Batch i to c->bytes + *at. */
static gpuf_status send_batch(const coder *c, gpufi_batch *batches, size_t i, size_t *at,
                              gpuf_error *err) {
  size_t first;
  gpufi_batch *const b = &batches[i % BATCH_COUNT];
  const size_t count = batch_at(c, i, &first).count;
  const gpuf_status status =
      count > 0 ? gpufi_batch_send(b, (uint8_t *)c->bytes + *at, err) : GPUF_OK;
  for (size_t k = 0; k < count && status == GPUF_OK; k++) {
    c->places[first + k] = (gpufi_chunk_place){*at + b->places[k].offset, b->places[k].nbytes};
  }
  *at += count > 0 ? b->nbytes : 0;
  return status;
}

static gpuf_status init_batches(const coder *c, gpufi_batch *batches, bool encodes,
                                gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  size_t first;
  const gpufi_chunks full = batch_at(c, 0, &first);
  for (size_t i = 0; i < BATCH_COUNT && status == GPUF_OK; i++) {
    status = gpufi_batch_init(&batches[i], c->backend, c->tensor.device, &full, encodes, 0, err);
  }
  return status;
}

static void fini_batches(gpufi_batch *batches) {
  for (size_t i = 0; i < BATCH_COUNT; i++) {
    gpufi_batch_fini(&batches[i]);
  }
}

gpuf_status coder_to_host(coder *c, gpuf_error *err) {
  gpufi_batch batches[BATCH_COUNT] = {0};
  const size_t total = (c->chunks.count - 1) / batch_count_max(c) + 1;
  size_t at = 0;
  gpuf_status status = init_batches(c, batches, true, err);
  /* Two are encoded and two cross at a time, so that nothing stands still until the end of one is
   * noticed. */
  for (size_t i = 0; i < total + 3 && status == GPUF_OK; i++) {
    status = start_batch(c, batches, i, err);
    if (status == GPUF_OK && i >= 1) {
      status = send_batch(c, batches, i - 1, &at, err);
    }
    if (status == GPUF_OK && i >= 3 && i - 3 < total) {
      status = gpufi_batch_wait(&batches[(i - 3) % BATCH_COUNT], err);
    }
  }
  fini_batches(batches);
  return status;
}

/* Enqueue transfer and decoding of batch i. */
static gpuf_status return_batch(const coder *c, gpufi_batch *b, size_t first, gpuf_error *err) {
  const size_t count = b->chunks.count, raw_nbytes = b->chunks.raw_nbytes;
  const gpufi_chunk_place *const places = c->places + first, last = places[count - 1];
  uint8_t *const d_raw = (uint8_t *)c->d_decoded + first * raw_nbytes;
  const size_t nbytes =
      (size_t)(last.offset - places[0].offset) + (last.nbytes ? (size_t)last.nbytes : raw_nbytes);
  for (size_t i = 0; i < count; i++) {
    b->places[i] = (gpufi_chunk_place){places[i].offset - places[0].offset, places[i].nbytes};
  }
  gpuf_status status =
      gpufi_batch_decode(b, (uint8_t *)c->bytes + places[0].offset, nbytes, d_raw, err);
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    const gpufi_flat_copy piece = {d_raw + i * raw_nbytes, b->d_encoded + b->places[i].offset,
                                   raw_nbytes};
    if (b->places[i].nbytes == 0) {
      status = c->backend->gather(b->channel->device.index, &piece, 1, b->channel->stream, err);
    }
  }
  return status == GPUF_OK ? gpufi_batch_mark(b, err) : status;
}

static gpuf_status end_batch(const gpufi_batch *b, gpuf_error *err) {
  const gpuf_status status = gpufi_batch_wait(b, err);
  return status == GPUF_OK ? check_verdicts(b->chunks.count, b->places, b->verdicts, err) : status;
}

gpuf_status coder_to_device(coder *c, gpuf_error *err) {
  gpufi_batch batches[BATCH_COUNT] = {0};
  const size_t total = (c->chunks.count - 1) / batch_count_max(c) + 1;
  gpuf_status status = init_batches(c, batches, false, err);
  for (size_t i = 0; i < total + BATCH_COUNT && status == GPUF_OK; i++) {
    gpufi_batch *const b = &batches[i % BATCH_COUNT];
    size_t first;
    if (i >= BATCH_COUNT && i - BATCH_COUNT < total) {
      status = end_batch(b, err);
    }
    if (status == GPUF_OK && i < total) {
      b->chunks = batch_at(c, i, &first);
      status = return_batch(c, b, first, err);
    }
  }
  fini_batches(batches);
  return status;
}

/* --- Start and end ------------------------------------------------------- */

/* Chunks have the shape of the tensor without its first axis. */
static gpuf_status describe(coder *c, gpuf_error *err) {
  const gpuf_tensor *const t = &c->tensor;
  gpufi_chunk_shape shape = {.dtype = t->dtype, .ndim = t->ndim - 1};
  if (t->ndim < 2 || t->ndim > GPUFI_CODEC_NDIM_MAX + 1 || gpuf_tensor_count(t) == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the tensor has %d axes; it must have 2 to %d, and elements", (int)t->ndim,
                      GPUFI_CODEC_NDIM_MAX + 1);
  }
  for (int32_t i = 0; i < shape.ndim; i++) {
    if (t->shape[i + 1] > UINT32_MAX) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a chunk has a length of 4 Gi or more");
    }
    shape.dims[i] = (uint32_t)t->shape[i + 1];
  }
  gpuf_status status = gpufi_chunks_init(&c->chunks, &shape, (size_t)t->shape[0], err);
  if (status == GPUF_OK && c->chunks.raw_nbytes != c->chunks.raw_pitch_nbytes) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a chunk has %zu bytes: not a multiple of 16",
                      c->chunks.raw_nbytes);
  }
  c->encoded_max_nbytes = gpufi_chunks_encoded_nbytes(&c->chunks);
  return status;
}

gpuf_status coder_init(coder *c, gpuf_device device, gpuf_dtype dtype, int32_t ndim,
                       const int64_t *shape, void *data, gpuf_error *err) {
  gpuf_tensor source;
  memset(c, 0, sizeof(*c));
  gpuf_status status =
      gpuf_tensor_init(&source, data, (gpuf_device){GPUF_DEVICE_CPU, 0}, dtype, ndim, shape, err);
  if (status == GPUF_OK) {
    c->tensor = source;
    c->tensor.device = device;
    c->tensor.data = NULL;
    status = gpufi_backend_for(device, &c->backend, err);
  }
  if (status == GPUF_OK) {
    status = describe(c, err);
  }
  if (status == GPUF_OK) {
    status = acquire(c, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_copy(&c->tensor, &source, NULL, err);
  }
  if (status == GPUF_OK) {
    status = coder_encode(c, 1, err);
  }
  return status == GPUF_OK ? coder_to_host(c, err) : status;
}

size_t coder_encoded_nbytes(const coder *c) {
  size_t nbytes = 0;
  for (size_t i = 0; i < c->chunks.count; i++) {
    nbytes += c->places[i].nbytes ? (size_t)c->places[i].nbytes : c->chunks.raw_nbytes;
  }
  return nbytes;
}

gpuf_status coder_decoded(const coder *c, void *data, gpuf_error *err) {
  gpuf_tensor source = c->tensor, target = c->tensor;
  source.data = c->d_decoded;
  target.data = data;
  target.device = (gpuf_device){GPUF_DEVICE_CPU, 0};
  return gpuf_copy(&target, &source, NULL, err);
}

gpuf_status coder_wake(coder *c, gpuf_error *err) {
  const gpuf_status status =
      c->backend->copy(c->tensor.device.index, c->device_places, c->d_places,
                       sizeof(*c->device_places), GPUFI_TO_HOST, c->stream, err);
  return status == GPUF_OK ? gpuf_stream_synchronize(c->tensor.device, c->stream, err) : status;
}
