/* Copies that cross the link encoded, compared with what was copied to the device. test_layout
 * tests layouts. */
#include <math.h>
#include <pthread.h>
#include <semaphore.h>

#include "backend/host/faults.h"
#include "core/batch.h"
#include "core/coded.h"
#include "core/copy.h"
#include "devices.h"

static gpuf_error err;

static const gpuf_copy_options by_codec = {.struct_nbytes = sizeof(by_codec),
                                           .via = GPUF_VIA_CODEC};

static gpuf_copy_options codec_options(size_t piece_nbytes) {
  gpuf_copy_options options = by_codec;
  options.piece_nbytes = piece_nbytes;
  return options;
}

/* A tensor on the device, and the same elements on the CPU. */
typedef struct fixture {
  gpuf_tensor d_tensor, sent, received;
  size_t nbytes;
} fixture;

static fixture fixture_create(gpuf_dtype dtype, int32_t ndim, const int64_t *shape) {
  fixture f;
  void *d_ptr;
  CHECK_OK(gpuf_tensor_init(&f.sent, &f, cpu_device, dtype, ndim, shape, &err));
  f.nbytes = gpuf_tensor_nbytes(&f.sent);
  f.received = f.sent;
  f.sent.data = malloc(f.nbytes + 1);
  f.received.data = malloc(f.nbytes + 1);
  CHECK_OK(gpuf_alloc(test_device, f.nbytes, &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&f.d_tensor, d_ptr, test_device, dtype, ndim, shape, &err));
  return f;
}

/* Fill with values that compress, or with noise. */
static void fill(fixture *f, bool smooth, uint64_t seed) {
  float *const values = f->sent.data;
  fill_random(f->sent.data, f->nbytes, seed);
  for (size_t i = 0; smooth && i < f->nbytes / sizeof(*values); i++) {
    values[i] = sinf((float)(i % 4096) / 300.0F) + (float)(i / 4096);
  }
  memset(f->received.data, 0xa5, f->nbytes);
  CHECK_OK(gpuf_copy(&f->d_tensor, &f->sent, NULL, &err));
}

static bool arrived(const fixture *f) {
  return memcmp(f->received.data, f->sent.data, f->nbytes) == 0;
}

static void fixture_destroy(fixture *f) {
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  CHECK_OK(gpuf_free(f->d_tensor.device, f->d_tensor.data, &err));
  free(f->sent.data);
  free(f->received.data);
  gpuf_pool_get_stats(&stats, NULL);
  CHECK(stats.used_nbytes == 0);
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

/* As gpuf_copy does it, with another backend. */
static void copy_with(const gpufi_backend *backend, const fixture *f,
                      const gpuf_copy_options *options) {
  gpufi_carrier carrier;
  gpuf_future future;
  gpufi_future_init(&future);
  CHECK_OK(gpufi_copy_plan(&future.copy, &f->received, &f->d_tensor, options, &carrier, &err));
  CHECK(carrier == GPUFI_CARRIER_CODED);
  future.copy.backend = backend;
  CHECK_OK(gpufi_coded_prepare(&future, &err));
  gpufi_future_start_threads(&future, 1);
  future.run(&future);
  CHECK_OK(gpuf_future_wait(&future, -1, &err));
  gpufi_future_fini(&future);
}

/* Has to come first, while no channel of the host backend exists: it keeps the backend that it was
 * made with. */
static void chunks_that_the_encoder_leaves_cross_as_they_are(void) {
  static const uint32_t patterns[] = {0, ~0U, 0x55555555, 0x80000001, 0x00fff000, 0x7fffffff};
  const int64_t shape[2] = {401, 1021};
  const gpuf_copy_options options = codec_options(9000);
  static gpufi_backend backend;
  backend = gpufi_backend_host;
  backend.encode = encode_some;
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
    left = patterns[i];
    fill(&f, i % 2, 11 + i);
    copy_with(&backend, &f, &options);
    CHECK(arrived(&f));
  }
  left = 0;
  fixture_destroy(&f);
}

/* --- Whole copies ------------------------------------------------------------------- */

/* Sizes around the chunks' and the batches' ends, by one thread and by several. */
static void every_dtype_and_size_keeps_its_bits(void) {
  static const int64_t shapes[][3] = {{1, 1, 1},    {1, 1, 5},    {3, 5, 7},      {40, 33, 1},
                                      {1, 1, 5000}, {70, 64, 32}, {17, 100, 129}, {4, 9001, 3}};
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i += (size_t)test_every()) {
      const gpuf_copy_options options = {.struct_nbytes = sizeof(options),
                                         .piece_nbytes = i % 3 ? 3000 * i : 0,
                                         .thread_count = (int32_t)(i % 4),
                                         .via = GPUF_VIA_CODEC};
      fixture f = fixture_create((gpuf_dtype)dtype, 3, shapes[i]);
      fill(&f, i % 2, i);
      CHECK_OK(gpuf_copy(&f.received, &f.d_tensor, &options, &err));
      CHECK(arrived(&f));
      fixture_destroy(&f);
    }
  }
}

/* Ramps, which are predicted, between weights, which are ranked and lie behind them on the device.
 */
static void chunks_of_several_forms_arrive_in_order(void) {
  const int64_t shape[2] = {400, 2048};
  const gpuf_copy_options options = codec_options(32 << 10);
  fixture f = fixture_create(GPUF_DTYPE_FLOAT16, 2, shape);
  fill(&f, false, 17);
  uint16_t *const values = f.sent.data;
  for (size_t i = 0; i < f.nbytes / sizeof(*values); i++) {
    const int exponent = 15 - __builtin_ctz(values[i] | 0x1000U);
    const bool is_ramp = i / 2048 % 40 < 16;
    values[i] = (uint16_t)(is_ramp ? i % 2048 : (values[i] & 0x83ffU) | (unsigned)exponent << 10);
  }
  CHECK_OK(gpuf_copy(&f.d_tensor, &f.sent, NULL, &err));
  CHECK_OK(gpuf_copy(&f.received, &f.d_tensor, &options, &err));
  CHECK(arrived(&f));
  fixture_destroy(&f);
}

static void scalars_and_empty_tensors_are_copied(void) {
  const int64_t empty[2] = {3, 0};
  fixture f = fixture_create(GPUF_DTYPE_COMPLEX128, 0, NULL);
  fill(&f, false, 5);
  CHECK_OK(gpuf_copy(&f.received, &f.d_tensor, &by_codec, &err));
  CHECK(arrived(&f));
  fixture_destroy(&f);
  f = fixture_create(GPUF_DTYPE_FLOAT32, 2, empty);
  CHECK_OK(gpuf_copy(&f.received, &f.d_tensor, &by_codec, &err));
  fixture_destroy(&f);
}

/* Many full batches of the library's own size, into pageable and pinned memory. */
static void a_large_tensor_takes_many_rounds_of_each_batch(void) {
  const int64_t shape[3] = {109, 512, 513};
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 3, shape);
  void *pinned;
  fill(&f, true, 1);
  CHECK_OK(gpuf_copy(&f.received, &f.d_tensor, &by_codec, &err));
  CHECK(arrived(&f));
  CHECK_OK(gpuf_pool_acquire(test_device, f.nbytes, &pinned, &err));
  gpuf_tensor dst = f.received;
  dst.data = pinned;
  CHECK_OK(gpuf_copy(&dst, &f.d_tensor, &by_codec, &err));
  CHECK(memcmp(pinned, f.sent.data, f.nbytes) == 0);
  gpuf_pool_release(pinned, NULL);
  fixture_destroy(&f);
}

/* The host backend's link breaks before the tensor's own size has crossed. */
static void what_compresses_takes_less_of_the_link(void) {
  const int64_t shape[2] = {800, 1024};
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  fill(&f, true, 4);
  faults.copy_fail_after_nbytes = (int64_t)f.nbytes * 4 / 5;
  gpufi_host_faults_set(&faults);
  const gpuf_status status = gpuf_copy(&f.received, &f.d_tensor, &by_codec, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK_OK(status);
  CHECK(arrived(&f));
  fixture_destroy(&f);
}

static void a_cast_is_encoded_as_what_it_gives(void) {
  const gpuf_copy_options options = {
      .struct_nbytes = sizeof(options), .piece_nbytes = 20000, .cast = true, .via = GPUF_VIA_CODEC};
  const int64_t shape[2] = {300, 701};
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  static double wide[300 * 701], expected[300 * 701];
  gpuf_tensor dst;
  fill(&f, true, 1);
  CHECK_OK(gpuf_tensor_init(&dst, expected, cpu_device, GPUF_DTYPE_FLOAT64, 2, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &f.sent,
                     &(gpuf_copy_options){.struct_nbytes = sizeof(gpuf_copy_options), .cast = true},
                     &err));
  dst.data = wide;
  CHECK_OK(gpuf_copy(&dst, &f.d_tensor, &options, &err));
  CHECK(memcmp(wide, expected, sizeof(wide)) == 0);
  fixture_destroy(&f);
}

static void copies_that_nothing_encodes_are_refused(void) {
  const int64_t shape[1] = {100};
  fixture f = fixture_create(GPUF_DTYPE_INT8, 1, shape);
  gpuf_copy_options options = by_codec;
  fill(&f, false, 1);
  CHECK_FAILS(gpuf_copy(&f.d_tensor, &f.sent, &options, &err), GPUF_ERR_UNSUPPORTED,
              "the copy is to a device");
  CHECK_OK(gpuf_copy(&f.received, &f.sent, &options, &err)); /* there is no link between the two */
  CHECK(arrived(&f));
  options.via = (gpuf_via)7;
  CHECK_FAILS(gpuf_copy(&f.received, &f.d_tensor, &options, &err), GPUF_ERR_INVALID,
              "options.via is 7");
  fixture_destroy(&f);
}

static void pairs_of_one_call_go_by_the_codec_too(void) {
  const int64_t shape[2] = {200, 300};
  fixture f = fixture_create(GPUF_DTYPE_INT16, 2, shape);
  fixture g = fixture_create(GPUF_DTYPE_FLOAT64, 2, shape);
  fill(&f, true, 1);
  fill(&g, false, 2);
  const gpuf_tensor dsts[2] = {f.received, g.received}, srcs[2] = {f.d_tensor, g.d_tensor};
  CHECK_OK(gpuf_copy_many(dsts, srcs, 2, &by_codec, &err));
  CHECK(arrived(&f) && arrived(&g));
  fixture_destroy(&f);
  fixture_destroy(&g);
}

/* --- Futures ------------------------------------------------------------------------- */

static void many_copies_in_flight_all_arrive(void) {
  enum { COUNT = 9 };
  const int64_t shape[2] = {500, 1024};
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options),
                                     .piece_nbytes = 50000,
                                     .thread_count = 3,
                                     .via = by_codec.via};
  fixture fixtures[COUNT];
  gpuf_future *futures[COUNT];
  for (int i = 0; i < COUNT; i++) {
    fixtures[i] = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
    fill(&fixtures[i], i % 3, (uint64_t)i);
  }
  for (int i = 0; i < COUNT; i++) {
    CHECK_OK(
        gpuf_copy_async(&fixtures[i].received, &fixtures[i].d_tensor, &options, &futures[i], &err));
  }
  for (int i = COUNT - 1; i >= 0; i--) {
    CHECK_OK(gpuf_future_wait(futures[i], -1, &err));
    CHECK(arrived(&fixtures[i]));
    gpuf_future_destroy(futures[i]);
  }
  for (int i = 0; i < COUNT; i++) {
    fixture_destroy(&fixtures[i]);
  }
}

static sem_t gate;

static void gated_kernel(const void *args) {
  sem_wait(&gate);
}

static void a_copy_waits_for_its_producer_and_a_timeout_leaves_it_running(void) {
  const int64_t shape[2] = {300, 1024};
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  gpuf_future *future;
  fill(&f, true, 3);
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_stream_create(host_device, &f.d_tensor.stream, &err));
  CHECK_OK(gpuf_host_launch(host_device, f.d_tensor.stream, gated_kernel, "", 0, &err));
  CHECK_OK(gpuf_copy_async(&f.received, &f.d_tensor, &by_codec, &future, &err));
  CHECK(!gpuf_future_done(future));
  CHECK_FAILS(gpuf_future_wait(future, 2000000, &err), GPUF_ERR_TIMEOUT, "2.000 ms");
  sem_post(&gate);
  CHECK_OK(gpuf_future_wait(future, INT64_C(60000000000), &err));
  CHECK(arrived(&f));
  gpuf_future_destroy(future);
  CHECK_OK(gpuf_stream_destroy(host_device, f.d_tensor.stream, &err));
  fixture_destroy(&f);
}

static void an_abandoned_copy_over_a_slow_link_is_finished(void) {
  const int64_t shape[2] = {300, 1024};
  const gpuf_copy_options options = codec_options(100000);
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  gpuf_future *future;
  fill(&f, true, 4);
  faults.link_nbytes_per_second = 20000000;
  faults.latency_ns = 100000;
  gpufi_host_faults_set(&faults);
  CHECK_OK(gpuf_copy_async(&f.received, &f.d_tensor, &options, &future, &err));
  gpuf_future_destroy(future);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK(arrived(&f));
  fixture_destroy(&f);
}

/* --- Failures -------------------------------------------------------------------------- */

static void a_link_that_fails_midway_is_an_error_at_every_wait(void) {
  const int64_t shape[2] = {800, 1024};
  const gpuf_copy_options options = codec_options(100000);
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  fill(&f, false, 4); /* noise: more than its own size crosses */
  for (int64_t limit = 0; limit < (int64_t)f.nbytes; limit += 400000) {
    gpuf_future *future;
    faults.copy_fail_after_nbytes = limit;
    gpufi_host_faults_set(&faults);
    const gpuf_status status = gpuf_copy_async(&f.received, &f.d_tensor, &options, &future, &err);
    CHECK(status == GPUF_OK);
    for (int k = 0; k < 2; k++) {
      CHECK_FAILS(gpuf_future_wait(future, -1, &err), GPUF_ERR_DEVICE, "injected");
    }
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    gpuf_future_destroy(future);
  }
  CHECK_OK(gpuf_copy(&f.received, &f.d_tensor, &options, &err)); /* nothing is broken */
  CHECK(arrived(&f));
  fixture_destroy(&f);
}

/* With less memory than it asks for, a copy takes longer; with none it fails before it starts. */
static void device_memory_for_one_batch_suffices(void) {
  const int64_t shape[2] = {800, 1024};
  const gpuf_copy_options options = codec_options(50000);
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  test_device.index = 1; /* no channel has memory there yet */
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  for (int64_t more = 0; more < 3; more++) {
    gpuf_future *future = (gpuf_future *)&f;
    fill(&f, true, 6);
    faults.alloc_fail_after = more == 0 ? 0 : 1;
    gpufi_host_faults_set(&faults);
    const gpuf_status status = gpuf_copy_async(&f.received, &f.d_tensor, &options, &future, &err);
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    if (more == 0) {
      CHECK(status == GPUF_ERR_NO_DEVICE_MEMORY && strstr(err.message, "host:1 has no memory"));
      CHECK(future == NULL);
      continue;
    }
    CHECK_OK(status);
    CHECK_OK(gpuf_future_wait(future, -1, &err));
    CHECK(arrived(&f));
    gpuf_future_destroy(future);
  }
  fixture_destroy(&f);
  test_device.index = 0;
}

static void a_copy_works_with_the_pool_at_its_cap(void) {
  const int64_t shape[2] = {800, 1024};
  fixture f = fixture_create(GPUF_DTYPE_FLOAT32, 2, shape);
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  fill(&f, true, 7);
  gpuf_pool_get_stats(&stats, NULL);
  gpuf_pool_trim(0);
  gpuf_pool_set_cap(0);
  const gpuf_status status = gpuf_copy(&f.received, &f.d_tensor, &by_codec, &err);
  gpuf_pool_set_cap(stats.cap_nbytes);
  CHECK_OK(status);
  CHECK(arrived(&f));
  fixture_destroy(&f);
}

int main(void) {
  test_device = host_device;
  TEST(chunks_that_the_encoder_leaves_cross_as_they_are);
  TEST_ON_DEVICES(every_dtype_and_size_keeps_its_bits);
  TEST_ON_DEVICES(chunks_of_several_forms_arrive_in_order);
  TEST_ON_DEVICES(scalars_and_empty_tensors_are_copied);
  TEST_ON_DEVICES(a_large_tensor_takes_many_rounds_of_each_batch);
  TEST_ON_DEVICES(a_cast_is_encoded_as_what_it_gives);
  TEST_ON_DEVICES(copies_that_nothing_encodes_are_refused);
  TEST_ON_DEVICES(pairs_of_one_call_go_by_the_codec_too);
  TEST_ON_DEVICES(many_copies_in_flight_all_arrive);
  TEST_ON_DEVICES(a_copy_works_with_the_pool_at_its_cap);
  test_device = host_device;
  TEST(what_compresses_takes_less_of_the_link);
  TEST(a_copy_waits_for_its_producer_and_a_timeout_leaves_it_running);
  TEST(an_abandoned_copy_over_a_slow_link_is_finished);
  TEST(a_link_that_fails_midway_is_an_error_at_every_wait);
  TEST(device_memory_for_one_batch_suffices);
  return test_finish();
}
