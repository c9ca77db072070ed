/* The codec's passes over a tensor's chunks. */
#include "coder.h"

#include <string.h>

#include "base/error.h"
#include "core/runtime.h"

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
      {(void **)&c->places, places_nbytes},
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
  void *const pinned[] = {c->places, c->verdicts};
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

/* Bring over where the chunks lie encoded. */
static gpuf_status bring_places(coder *c, gpuf_error *err) {
  const gpuf_status status =
      c->backend->copy(c->tensor.device.index, c->places, c->d_places,
                       c->chunks.count * sizeof(*c->places), GPUFI_TO_HOST, c->stream, err);
  return status == GPUF_OK ? gpuf_stream_synchronize(c->tensor.device, c->stream, err) : status;
}

/* Bring over what decoding found, and check it. */
static gpuf_status check_verdicts(coder *c, gpuf_error *err) {
  const size_t count = c->chunks.count;
  gpuf_status status =
      c->backend->copy(c->tensor.device.index, c->verdicts, c->d_verdicts,
                       count * sizeof(*c->verdicts), GPUFI_TO_HOST, c->stream, err);
  if (status == GPUF_OK) {
    status = gpuf_stream_synchronize(c->tensor.device, c->stream, err);
  }
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    if (c->places[i].nbytes != 0 && c->verdicts[i] != GPUFI_CHUNK_DONE) {
      status = gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "chunk %zu was encoded and is not decoded (%u)",
                          i, (unsigned)c->verdicts[i]);
    }
  }
  return status;
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
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    const gpufi_flat_copy piece = {(char *)c->d_decoded + i * raw_nbytes,
                                   (char *)c->tensor.data + i * raw_nbytes, raw_nbytes};
    if (c->places[i].nbytes == 0) {
      status = c->backend->gather(device, &piece, 1, c->stream, err);
    }
  }
  return status == GPUF_OK ? check_verdicts(c, err) : status;
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
  return status == GPUF_OK ? bring_places(c, err) : status;
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
  const gpuf_status status = c->backend->copy(c->tensor.device.index, c->places, c->d_places,
                                              sizeof(*c->places), GPUFI_TO_HOST, c->stream, err);
  return status == GPUF_OK ? gpuf_stream_synchronize(c->tensor.device, c->stream, err) : status;
}
