/* The device's encoder and decoder by themselves, and with the link: for benchmarks. */
#include "adapter.h"
#include "device_array.h"
#include "errors.h"
#include "methods.h"

#include "base/error.h"
#include "core/batch.h"
#include "core/runtime.h"

#define CAPSULE "gpufetch._core.codec"
#define BATCH_NBYTES ((size_t)32 << 20)
#define SLOT_COUNT 4

/* A tensor's chunks, one an index of its first axis. Used by one thread at a time. */
typedef struct coder {
  const gpufi_backend *backend;
  gpuf_tensor tensor;
  PyObject *keepalive;
  gpufi_chunks chunks; /* all of them */
  gpuf_stream stream;
  size_t encoded_nbytes; /* room for it */
  void *d_encoded, *d_decoded, *d_places, *d_verdicts, *d_scratch;
  /* Pinned: what has crossed, and where; nbytes 0 = as it is. */
  void *bytes, *places;
  void *device_places; /* of what lies encoded on the device */
  void *verdicts;
} coder;

static gpufi_chunk_place *places_of(const coder *c) {
  return c->places;
}

/* --- Memory -------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

static gpuf_status acquire(coder *c, gpuf_error *err) {
  const gpuf_device device = c->tensor.device;
  const size_t count = c->chunks.count;
  const size_t places_nbytes = GPUFI_CHUNKS_PLACE_COUNT(count) * sizeof(gpufi_chunk_place);
  const size_t scratch_nbytes = larger(c->backend->encode_scratch_nbytes(&c->chunks),
                                       c->backend->decode_scratch_nbytes(&c->chunks));
  const struct {
    void **ptr;
    size_t nbytes;
    bool pinned;
  } parts[] = {
      {&c->d_encoded, c->encoded_nbytes, false},
      {&c->d_decoded, count * c->chunks.raw_nbytes, false},
      {&c->d_places, places_nbytes, false},
      {&c->d_verdicts, count * sizeof(uint32_t), false},
      {&c->d_scratch, scratch_nbytes, false},
      {&c->bytes, c->encoded_nbytes, true},
      {&c->places, places_nbytes, true},
      {&c->device_places, places_nbytes, true},
      {&c->verdicts, count * sizeof(uint32_t), true},
  };
  gpuf_status status = gpuf_stream_create(device, &c->stream, err);
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && status == GPUF_OK; i++) {
    status = parts[i].pinned ? gpuf_pool_acquire(device, parts[i].nbytes, parts[i].ptr, err)
                             : gpuf_alloc(device, parts[i].nbytes, parts[i].ptr, err);
  }
  return status;
}

static void release(coder *c) {
  void *const d_parts[] = {c->d_encoded, c->d_decoded, c->d_places, c->d_verdicts, c->d_scratch};
  void *const parts[] = {c->bytes, c->places, c->device_places, c->verdicts};
  gpuf_stream_destroy(c->tensor.device, c->stream, NULL);
  for (size_t i = 0; i < sizeof(d_parts) / sizeof(d_parts[0]); i++) {
    gpuf_free(c->tensor.device, d_parts[i], NULL);
  }
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
    gpuf_pool_release(parts[i]);
  }
}

static void coder_destroy(PyObject *capsule) {
  coder *const c = PyCapsule_GetPointer(capsule, CAPSULE);
  Py_BEGIN_ALLOW_THREADS
    release(c);
  Py_END_ALLOW_THREADS
  Py_XDECREF(c->keepalive);
  PyMem_Free(c);
}

/* --- On the device ---------------------------------------------------------------- */

static gpuf_status encode(coder *c, int64_t repeats, gpuf_error *err) {
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

/* Decode what `encode` has left on the device; chunks that it left to the CPU are copied. */
static gpuf_status decode(coder *c, int64_t repeats, gpuf_error *err) {
  const int32_t device = c->tensor.device.index;
  const gpufi_backend *const backend = c->backend;
  gpufi_chunk_place *const places = c->device_places;
  const size_t count = c->chunks.count, raw_nbytes = c->chunks.raw_nbytes;
  gpuf_status status = GPUF_OK;
  for (int64_t i = 0; i < repeats && status == GPUF_OK; i++) {
    status = backend->decode(device, &c->chunks, c->d_encoded, c->encoded_nbytes, c->d_places,
                             c->d_decoded, c->d_verdicts, c->d_scratch, c->stream, err);
  }
  if (status == GPUF_OK) {
    status = backend->copy(device, places, c->d_places, count * sizeof(*places), GPUFI_TO_HOST,
                           c->stream, err);
  }
  if (status == GPUF_OK) {
    status = backend->copy(device, c->verdicts, c->d_verdicts, count * sizeof(uint32_t),
                           GPUFI_TO_HOST, c->stream, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_stream_synchronize(c->tensor.device, c->stream, err);
  }
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    const gpufi_piece piece = {(char *)c->d_decoded + i * raw_nbytes,
                               (char *)c->tensor.data + i * raw_nbytes, raw_nbytes};
    status = places[i].nbytes == 0 ? backend->gather(device, &piece, 1, c->stream, err) : GPUF_OK;
  }
  if (status == GPUF_OK) {
    status = gpuf_stream_synchronize(c->tensor.device, c->stream, err);
  }
  return status == GPUF_OK ? check_verdicts(count, places, c->verdicts, err) : status;
}

/* --- With the link ------------------------------------------------------------------- */

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

static gpuf_status start_batch(const coder *c, gpufi_batch *slots, size_t i, gpuf_error *err) {
  size_t first;
  gpufi_batch *const b = &slots[i % SLOT_COUNT];
  const gpufi_chunks chunks = batch_at(c, i, &first);
  if (chunks.count == 0) {
    return GPUF_OK;
  }
  b->chunks = chunks;
  return gpufi_batch_encode(b, (const char *)c->tensor.data + first * chunks.raw_nbytes, err);
}

/* Batch i to c->bytes + *at. */
static gpuf_status send_batch(const coder *c, gpufi_batch *slots, size_t i, size_t *at,
                              gpuf_error *err) {
  size_t first;
  gpufi_batch *const b = &slots[i % SLOT_COUNT];
  const size_t count = batch_at(c, i, &first).count;
  const gpuf_status status =
      count > 0 ? gpufi_batch_send(b, (uint8_t *)c->bytes + *at, err) : GPUF_OK;
  for (size_t k = 0; k < count && status == GPUF_OK; k++) {
    places_of(c)[first + k] = (gpufi_chunk_place){*at + b->places[k].offset, b->places[k].nbytes};
  }
  *at += count > 0 ? b->nbytes : 0;
  return status;
}

static gpuf_status init_slots(const coder *c, gpufi_batch *slots, bool encodes, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  size_t first;
  const gpufi_chunks full = batch_at(c, 0, &first);
  for (size_t i = 0; i < SLOT_COUNT && status == GPUF_OK; i++) {
    status = gpufi_batch_init(&slots[i], c->backend, c->tensor.device, &full, encodes, 0, err);
  }
  return status;
}

static void fini_slots(gpufi_batch *slots) {
  for (size_t i = 0; i < SLOT_COUNT; i++) {
    gpufi_batch_fini(&slots[i]);
  }
}

/* Encode and transfer everything, batch by batch. */
static gpuf_status to_host(coder *c, gpuf_error *err) {
  gpufi_batch slots[SLOT_COUNT] = {0};
  const size_t total = (c->chunks.count - 1) / batch_count_max(c) + 1;
  size_t at = 0;
  gpuf_status status = init_slots(c, slots, true, err);
  /* Two are encoded and two cross at a time: nothing waits while the end of one is noticed. */
  for (size_t i = 0; i < total + 3 && status == GPUF_OK; i++) {
    status = start_batch(c, slots, i, err);
    if (status == GPUF_OK && i >= 1) {
      status = send_batch(c, slots, i - 1, &at, err);
    }
    if (status == GPUF_OK && i >= 3 && i - 3 < total) {
      status = gpufi_batch_wait(&slots[(i - 3) % SLOT_COUNT], err);
    }
  }
  fini_slots(slots);
  return status;
}

/* Enqueue transfer and decoding of batch i. */
static gpuf_status return_batch(const coder *c, gpufi_batch *b, size_t first, gpuf_error *err) {
  const size_t count = b->chunks.count, raw_nbytes = b->chunks.raw_nbytes;
  const gpufi_chunk_place *const places = places_of(c) + first, last = places[count - 1];
  uint8_t *const d_raw = (uint8_t *)c->d_decoded + first * raw_nbytes;
  const size_t nbytes =
      (size_t)(last.offset - places[0].offset) + (last.nbytes ? (size_t)last.nbytes : raw_nbytes);
  for (size_t i = 0; i < count; i++) {
    b->places[i] = (gpufi_chunk_place){places[i].offset - places[0].offset, places[i].nbytes};
  }
  gpuf_status status =
      gpufi_batch_decode(b, (uint8_t *)c->bytes + places[0].offset, nbytes, d_raw, err);
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    const gpufi_piece piece = {d_raw + i * raw_nbytes, b->d_encoded + b->places[i].offset,
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

/* Transfer what has crossed back and decode it, batch by batch. */
static gpuf_status to_device(coder *c, gpuf_error *err) {
  gpufi_batch slots[SLOT_COUNT] = {0};
  const size_t total = (c->chunks.count - 1) / batch_count_max(c) + 1;
  gpuf_status status = init_slots(c, slots, false, err);
  for (size_t i = 0; i < total + SLOT_COUNT && status == GPUF_OK; i++) {
    gpufi_batch *const b = &slots[i % SLOT_COUNT];
    size_t first;
    if (i >= SLOT_COUNT && i - SLOT_COUNT < total) {
      status = end_batch(b, err);
    }
    if (status == GPUF_OK && i < total) {
      b->chunks = batch_at(c, i, &first);
      status = return_batch(c, b, first, err);
    }
  }
  fini_slots(slots);
  return status;
}

/* --- The Python functions ---------------------------------------------------------- */

/* Chunks have the shape of the tensor without its first axis. */
static gpuf_status describe(coder *c, gpuf_error *err) {
  const gpuf_tensor *const t = &c->tensor;
  gpufi_chunk_shape shape = {.dtype = t->dtype, .ndim = t->ndim - 1};
  gpuf_status status = gpufi_backend_for(t->device, &c->backend, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (t->ndim < 2 || t->ndim > GPUFI_CODEC_NDIM_MAX + 1 || gpuf_tensor_count(t) == 0 ||
      !gpuf_tensor_is_contiguous(t) || (uintptr_t)t->data % 16 != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the tensor has %d axes; it must have 2 to %d, elements, and these packed",
                      (int)t->ndim, GPUFI_CODEC_NDIM_MAX + 1);
  }
  for (int32_t i = 0; i < shape.ndim; i++) {
    if (t->shape[i + 1] > UINT32_MAX) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a chunk has a length of 4 Gi or more");
    }
    shape.dims[i] = (uint32_t)t->shape[i + 1];
  }
  status = gpufi_chunks_init(&c->chunks, &shape, (size_t)t->shape[0], err);
  if (status == GPUF_OK && c->chunks.raw_nbytes != c->chunks.raw_pitch_nbytes) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a chunk has %zu bytes: not a multiple of 16",
                      c->chunks.raw_nbytes);
  }
  c->encoded_nbytes = gpufi_chunks_encoded_nbytes(&c->chunks);
  return status;
}

static PyObject *codec_open(PyObject *module, PyObject *object) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_error err;
  gpuf_status status;
  if (gpufi_py_adapter_import(state, object, &source) < 0) {
    return NULL;
  }
  coder *const c = PyMem_Calloc(1, sizeof(*c));
  PyObject *const capsule = c ? PyCapsule_New(c, CAPSULE, coder_destroy) : NULL;
  if (!capsule) {
    PyMem_Free(c);
    gpufi_py_import_clear(&source);
    return c ? NULL : PyErr_NoMemory();
  }
  c->tensor = source.tensor;
  c->keepalive = source.keepalive; /* taken over */
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_tensor_check(&c->tensor, &err);
    if (status == GPUF_OK) {
      status = describe(c, &err);
    }
    if (status == GPUF_OK) {
      status = acquire(c, &err);
    }
    if (status == GPUF_OK && c->tensor.stream != GPUF_STREAM_NONE) {
      status = gpuf_stream_synchronize(c->tensor.device, c->tensor.stream, &err);
    }
    if (status == GPUF_OK) {
      status = encode(c, 1, &err);
    }
    if (status == GPUF_OK) {
      status = to_host(c, &err);
    }
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    gpufi_py_raise(state, &err);
    Py_DECREF(capsule);
    return NULL;
  }
  return capsule;
}

static gpuf_status run(coder *c, const char *what, int64_t repeats, gpuf_error *err) {
  if (strcmp(what, "encode") == 0) {
    return encode(c, repeats, err);
  }
  if (strcmp(what, "decode") == 0) {
    return decode(c, repeats, err);
  }
  if (strcmp(what, "to_host") == 0) {
    return to_host(c, err);
  }
  if (strcmp(what, "to_device") == 0) {
    return to_device(c, err);
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0, "\"%s\" is not encode, decode, to_host or to_device",
                    what);
}

static PyObject *codec_run(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *capsule;
  const char *what;
  long long repeats;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OsL:_codec_run", &capsule, &what, &repeats)) {
    return NULL;
  }
  coder *const c = PyCapsule_GetPointer(capsule, CAPSULE);
  if (!c) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = run(c, what, repeats, &err);
  Py_END_ALLOW_THREADS
  return status == GPUF_OK ? Py_NewRef(capsule) : gpufi_py_raise(state, &err);
}

static PyObject *codec_nbytes(PyObject *module, PyObject *capsule) {
  const coder *const c = PyCapsule_GetPointer(capsule, CAPSULE);
  if (!c) {
    return NULL;
  }
  unsigned long long nbytes = 0;
  for (size_t i = 0; i < c->chunks.count; i++) {
    const gpufi_chunk_place place = places_of(c)[i];
    nbytes += place.nbytes ? place.nbytes : c->chunks.raw_nbytes;
  }
  return PyLong_FromUnsignedLongLong(nbytes);
}

static PyObject *codec_decoded(PyObject *module, PyObject *capsule) {
  const coder *const c = PyCapsule_GetPointer(capsule, CAPSULE);
  if (!c) {
    return NULL;
  }
  gpuf_tensor decoded = c->tensor;
  decoded.data = c->d_decoded;
  decoded.stream = GPUF_STREAM_NONE;
  return gpufi_py_device_array_create(gpufi_py_state_of_module(module), &decoded, true, capsule);
}

PyMethodDef gpufi_py_codec_methods[] = {
    {"_codec_open", codec_open, METH_O,
     "_codec_open(x, /)\n--\n\nFor benchmarks: x[i] is chunk i. Everything is encoded, there and "
     "here."},
    {"_codec_run", codec_run, METH_VARARGS,
     "_codec_run(codec, what, repeats, /)\n--\n\n"
     "\"encode\" and \"decode\" all, `repeats` times, on the device; \"to_host\" encodes and\n"
     "transfers batch by batch, \"to_device\" transfers that and decodes. Gives codec back."},
    {"_codec_nbytes", codec_nbytes, METH_O,
     "_codec_nbytes(codec, /)\n--\n\nBytes of the chunks as they have crossed to the host."},
    {"_codec_decoded", codec_decoded, METH_O,
     "_codec_decoded(codec, /)\n--\n\nDeviceArray over what was decoded last."},
    {0},
};
