/* Batches of chunks on their way between a device and pinned memory: whatever the encoder leaves to
 * the CPU and wherever it puts the others, each chunk arrives, and is decoded on the way back. */
#include "devices.h"

#include "core/runtime.h"
#include "hdf5/batch.h"

#define CHUNK_COUNT 40

static gpuf_error err;

static gpuf_tensor bytes_at(void *data, gpuf_device device, size_t nbytes) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, device, GPUF_DTYPE_UINT8, 1, shape, &err));
  return tensor;
}

static void transfer(void *d_data, void *data, size_t nbytes, bool to_device) {
  const gpuf_tensor there = bytes_at(d_data, test_device, nbytes);
  const gpuf_tensor here = bytes_at(data, cpu_device, nbytes);
  CHECK_OK(gpuf_copy(to_device ? &there : &here, to_device ? &here : &there, NULL, &err));
}

/* Encode the raw chunks, and bring them over. */
static gpufi_h5_batch send(const gpufi_backend *backend, const gpufi_chunks *chunks, void *raw) {
  gpufi_h5_batch b = {0};
  CHECK_OK(gpufi_h5_batch_init(&b, backend, test_device, chunks,
                               &(gpufi_h5_batch_use){true, true, true}, &err));
  transfer(b.d_raw, raw, chunks->count * chunks->raw_pitch_nbytes, true);
  CHECK_OK(gpufi_h5_batch_encode(&b, &err));
  CHECK_OK(gpufi_h5_batch_send(&b, &err));
  CHECK_OK(gpufi_h5_batch_wait(&b, &err));
  return b;
}

/* Every chunk lies where its place says, within the batch's memory, behind the one before. */
static void check_arrived(gpufi_h5_batch *b, const uint8_t *raw) {
  const gpufi_chunks *const chunks = &b->chunks;
  uint8_t *const decoded = malloc(chunks->raw_nbytes);
  CHECK(decoded);
  b->encoded_nbytes = 0;
  for (size_t i = 0; i < chunks->count; i++) {
    const gpufi_chunk_place place = b->places[i];
    const uint8_t *const expected = raw + i * chunks->raw_pitch_nbytes, *found = decoded;
    CHECK(place.offset % 16 == 0 && place.offset >= b->encoded_nbytes);
    if (place.nbytes == 0) {
      found = b->bytes + place.offset;
    } else {
      CHECK_OK(gpufi_codec_decode(b->bytes + place.offset, (size_t)place.nbytes, decoded,
                                  chunks->raw_nbytes, &err));
    }
    CHECK(memcmp(found, expected, chunks->raw_nbytes) == 0);
    b->encoded_nbytes =
        (size_t)place.offset + (place.nbytes ? (size_t)place.nbytes : chunks->raw_nbytes);
  }
  CHECK(b->encoded_nbytes <= gpufi_chunks_encoded_nbytes(chunks));
  free(decoded);
}

/* Send back what has arrived, and compare the chunks that the device decodes. */
static void check_returned(const gpufi_backend *backend, const gpufi_h5_batch *arrived,
                           const uint8_t *raw) {
  const gpufi_chunks *const chunks = &arrived->chunks;
  const size_t nbytes = chunks->count * chunks->raw_pitch_nbytes;
  gpufi_h5_batch b = {0};
  uint8_t *const decoded = malloc(nbytes);
  CHECK(decoded);
  CHECK_OK(gpufi_h5_batch_init(&b, backend, test_device, chunks,
                               &(gpufi_h5_batch_use){false, true, true}, &err));
  memcpy(b.places, arrived->places, chunks->count * sizeof(*b.places));
  memcpy(b.bytes, arrived->bytes, arrived->encoded_nbytes);
  b.encoded_nbytes = arrived->encoded_nbytes;
  CHECK_OK(gpufi_h5_batch_decode(&b, &err));
  CHECK_OK(gpufi_h5_batch_mark(&b, &err));
  CHECK_OK(gpufi_h5_batch_wait(&b, &err));
  transfer(b.d_raw, decoded, nbytes, false);
  for (size_t i = 0; i < chunks->count; i++) {
    const size_t at = i * chunks->raw_pitch_nbytes;
    if (b.places[i].nbytes != 0 && b.verdicts[i] != GPUFI_CHUNK_LEFT) {
      CHECK(b.verdicts[i] == GPUFI_CHUNK_DONE);
      CHECK(memcmp(decoded + at, raw + at, chunks->raw_nbytes) == 0);
    }
  }
  gpufi_h5_batch_fini(&b);
  free(decoded);
}

static void check_there_and_back(const gpufi_backend *backend, const gpufi_chunks *chunks,
                                 uint8_t *raw) {
  gpufi_h5_batch b = send(backend, chunks, raw);
  check_arrived(&b, raw);
  check_returned(backend, &b, raw);
  gpufi_h5_batch_fini(&b);
}

/* --- Chunks that the encoder leaves ------------------------------------------------ */

/* This encoder leaves the chunks whose bit is set, whatever their form. */
static uint32_t left;

typedef struct leave_args {
  gpufi_chunk_place *d_places;
  size_t count;
} leave_args;

static void leave_kernel(const void *arg) {
  const leave_args *const a = arg;
  gpufi_chunk_place *const places = gpuf_host_pointer(a->d_places);
  for (size_t i = 0; i < a->count; i++) {
    if (left >> i % 32 & 1) {
      places[i].nbytes = 0;
    }
  }
}

static gpuf_status encode_some(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                               void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                               gpuf_stream stream, gpuf_error *error) {
  const leave_args args = {d_places, chunks->count};
  const gpuf_status status = gpufi_backend_host.encode(device, chunks, d_raw, d_encoded, d_places,
                                                       d_scratch, stream, error);
  return status == GPUF_OK
             ? gpuf_host_launch(host_device, stream, leave_kernel, &args, sizeof(args), error)
             : status;
}

/* Has to come first, while no channel of the host backend exists: it keeps the backend that it was
 * made with. The rows have a length that leaves a gap between the raw chunks. */
static void chunks_that_the_encoder_leaves_cross_as_they_are(void) {
  static const uint32_t patterns[] = {0, ~0U, 0x55555555, 0x80000001, 0x00fff000, 0x7fffffff};
  const gpufi_chunk_shape shape = {.dtype = GPUF_DTYPE_FLOAT32, .ndim = 2, .dims = {9, 1021}};
  static gpufi_backend backend;
  gpufi_chunks chunks;
  backend = gpufi_backend_host;
  backend.encode = encode_some;
  CHECK_OK(gpufi_chunks_init(&chunks, &shape, CHUNK_COUNT, &err));
  CHECK(chunks.raw_pitch_nbytes > chunks.raw_nbytes);
  const size_t nbytes = chunks.count * chunks.raw_pitch_nbytes;
  float *const raw = malloc(nbytes);
  CHECK(raw);
  for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
    left = patterns[p];
    fill_random(raw, nbytes, 11 + p);
    for (size_t i = 0; p % 2 && i < nbytes / sizeof(*raw); i++) {
      raw[i] = (float)(i % 4096) / 300.0F + (float)(i / 4096);
    }
    gpufi_h5_batch b = send(&backend, &chunks, raw);
    for (size_t i = 0; i < chunks.count; i++) {
      CHECK(!(left >> i % 32 & 1) || b.places[i].nbytes == 0);
    }
    check_arrived(&b, (uint8_t *)raw);
    check_returned(&backend, &b, (uint8_t *)raw);
    gpufi_h5_batch_fini(&b);
  }
  left = 0;
  free(raw);
}

/* Noisy ramps, which are predicted, between weights, which are ranked and lie behind them on the
 * device, labels, which are left to the CPU, and noise. */
static void chunks_of_several_forms_arrive_in_order(void) {
  const gpufi_chunk_shape shape = {.dtype = GPUF_DTYPE_FLOAT16, .ndim = 2, .dims = {8, 2048}};
  const gpufi_backend *backend;
  gpufi_chunks chunks;
  CHECK_OK(gpufi_backend_for(test_device, &backend, &err));
  CHECK_OK(gpufi_chunks_init(&chunks, &shape, CHUNK_COUNT, &err));
  const size_t nbytes = chunks.count * chunks.raw_pitch_nbytes;
  uint16_t *const raw = malloc(nbytes);
  CHECK(raw);
  fill_random(raw, nbytes, 17);
  for (size_t i = 0; i < nbytes / sizeof(*raw); i++) {
    const int exponent = 15 - __builtin_ctz(raw[i] | 0x1000U);
    switch (i / (chunks.raw_nbytes / sizeof(*raw)) / 3 % 5) {
    case 0:
    case 2:
      raw[i] = (uint16_t)(0x2000U + i % 2048 * 4 + raw[i] % 8);
      break;
    case 1:
      raw[i] = (uint16_t)((raw[i] & 0x83ffU) | (unsigned)exponent << 10);
      break;
    case 3:
      raw[i] = (uint16_t)(0x1234U * (raw[i] % 5 + 1U));
      break;
    default:
      break;
    }
  }
  check_there_and_back(backend, &chunks, (uint8_t *)raw);
  free(raw);
}

int main(void) {
  test_device = host_device;
  TEST(chunks_that_the_encoder_leaves_cross_as_they_are);
  TEST_ON_DEVICES(chunks_of_several_forms_arrive_in_order);
  return test_finish();
}
