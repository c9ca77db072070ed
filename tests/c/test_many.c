#include <pthread.h>
#include <semaphore.h>

#include "backend/host/faults.h"
#include "core/many.h"
#include "devices.h"

static gpuf_error err;

enum { COUNT = 600, BLOCK_NBYTES = 24 << 20, DEVICE_NBYTES = 32 << 20 };

static gpuf_tensor bytes_at(void *data, gpuf_device device, size_t nbytes) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, data, device, GPUF_DTYPE_UINT8, 1, shape, &err));
  return t;
}

/* Pairs of a device tensor and its place in a pinned buffer. Sizes and alignments are of every
 * kind: nothing, a few bytes, as much as a bundle takes, and more. */
typedef struct pairs {
  gpuf_device device;
  char *d_data, *pinned, *expected; /* expected: what the device holds, from d_data on */
  gpuf_tensor device_side[COUNT], host_side[COUNT];
  size_t d_offsets[COUNT], h_offsets[COUNT], nbytes[COUNT];
} pairs;

static size_t size_of_pair(uint64_t *random) {
  switch (random_below(random, 8)) {
  case 0:
    return random_below(random, 2);
  case 1:
    return 1 + random_below(random, 100);
  case 2:
    return 64 * random_below(random, 40);
  case 3:
    return 1000 + random_below(random, 3000);
  case 4:
    return random_below(random, 40) == 0 ? (300 << 10) + random_below(random, 9) : 512;
  default:
    return 16384;
  }
}

static void pairs_make(pairs *p, gpuf_device device, size_t align, uint64_t seed) {
  uint64_t random = seed;
  void *d_data, *pinned;
  p->device = device;
  CHECK_OK(gpuf_alloc(device, DEVICE_NBYTES, &d_data, &err));
  CHECK_OK(gpuf_pool_acquire(device, BLOCK_NBYTES, &pinned, &err));
  p->d_data = d_data;
  p->pinned = pinned;
  p->expected = malloc(DEVICE_NBYTES);
  fill_random(p->expected, DEVICE_NBYTES, seed);
  size_t d_offset = 0, h_offset = 0;
  for (int i = 0; i < COUNT; i++) {
    const size_t nbytes = size_of_pair(&random);
    d_offset += random_below(&random, 3) ? (256 - d_offset % 256) : random_below(&random, 70);
    p->nbytes[i] = nbytes;
    p->d_offsets[i] = d_offset;
    p->h_offsets[i] = h_offset;
    p->device_side[i] = bytes_at(p->d_data + d_offset, device, nbytes);
    p->host_side[i] = bytes_at(p->pinned + h_offset, cpu_device, nbytes);
    d_offset += nbytes;
    h_offset += nbytes;
    h_offset = (h_offset + align - 1) / align * align;
    CHECK(d_offset <= DEVICE_NBYTES && h_offset <= BLOCK_NBYTES);
  }
}

static void fill_device(const pairs *p) {
  gpuf_tensor dst = bytes_at(p->d_data, p->device, DEVICE_NBYTES);
  gpuf_tensor src = bytes_at(p->expected, cpu_device, DEVICE_NBYTES);
  CHECK_OK(gpuf_copy(&dst, &src, NULL, &err));
}

static void pairs_free(pairs *p) {
  CHECK_OK(gpuf_free(p->device, p->d_data, &err));
  gpuf_pool_release(p->pinned, NULL);
  free(p->expected);
}

static bool pairs_hold_what_the_device_holds(const pairs *p) {
  for (int i = 0; i < COUNT; i++) {
    if (memcmp(p->pinned + p->h_offsets[i], p->expected + p->d_offsets[i], p->nbytes[i]) != 0) {
      printf("# pair %d of %zu bytes differs\n", i, p->nbytes[i]);
      return false;
    }
  }
  return true;
}

static pairs here, there;

static void many_fetches_agree_with_the_device(void) {
  const size_t aligns[] = {64, 1, 4096};
  for (size_t i = 0; i < 3; i++) {
    pairs_make(&here, test_device, aligns[i], i + 1);
    fill_device(&here);
    memset(here.pinned, 0xee, BLOCK_NBYTES);
    CHECK_OK(gpuf_copy_many(here.host_side, here.device_side, COUNT, NULL, &err));
    CHECK(pairs_hold_what_the_device_holds(&here));
    pairs_free(&here);
  }
}

/* The device's bytes outside the destinations stay as they were. */
static void many_uploads_write_their_bytes_only(void) {
  pairs_make(&here, test_device, 64, 7);
  fill_device(&here);
  fill_random(here.pinned, BLOCK_NBYTES, 8);
  CHECK_OK(gpuf_copy_many(here.device_side, here.host_side, COUNT, NULL, &err));
  for (int i = 0; i < COUNT; i++) {
    memcpy(here.expected + here.d_offsets[i], here.pinned + here.h_offsets[i], here.nbytes[i]);
  }
  char *after = malloc(DEVICE_NBYTES);
  gpuf_tensor src = bytes_at(here.d_data, test_device, DEVICE_NBYTES);
  gpuf_tensor dst = bytes_at(after, cpu_device, DEVICE_NBYTES);
  CHECK_OK(gpuf_copy(&dst, &src, NULL, &err));
  CHECK(memcmp(after, here.expected, DEVICE_NBYTES) == 0);
  free(after);
  pairs_free(&here);
}

/* Only the padding up to a next destination at a multiple of 64 may change. */
static void bytes_between_destinations_are_left_alone(void) {
  enum { STEP = 200, NBYTES = 100, N = 50 };
  gpuf_tensor dsts[N], srcs[N];
  void *d_data, *buffer;
  CHECK_OK(gpuf_alloc(test_device, N * NBYTES, &d_data, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, N * STEP, &buffer, &err));
  char *pinned = memset(buffer, 0x5a, N * STEP);
  for (int i = 0; i < N; i++) {
    srcs[i] = bytes_at((char *)d_data + i * NBYTES, test_device, NBYTES);
    dsts[i] = bytes_at(pinned + i * STEP, cpu_device, NBYTES);
  }
  CHECK_OK(gpuf_copy_many(dsts, srcs, N, NULL, &err));
  for (int i = 0; i < N; i++) {
    for (int k = NBYTES; k < STEP; k++) {
      CHECK(pinned[i * STEP + k] == 0x5a);
    }
  }
  gpuf_pool_release(buffer, NULL);
  CHECK_OK(gpuf_free(test_device, d_data, &err));
}

/* Strided device views, pageable and strided destinations, and copies on the CPU, in between. */
static void tensors_that_cannot_travel_together_are_copied_too(void) {
  enum { ROWS = 90, COLUMNS = 70, N = 12 };
  static int32_t values[ROWS * COLUMNS], pageable[N][ROWS * COLUMNS];
  const int64_t shape[2] = {ROWS, COLUMNS};
  gpuf_tensor dsts[N], srcs[N], whole, cpu;
  void *d_data, *buffer;
  fill_random(values, sizeof(values), 3);
  memset(pageable, 0, sizeof(pageable));
  CHECK_OK(gpuf_alloc(test_device, sizeof(values), &d_data, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, sizeof(pageable), &buffer, &err));
  CHECK_OK(gpuf_tensor_init(&whole, d_data, test_device, GPUF_DTYPE_INT32, 2, shape, &err));
  CHECK_OK(gpuf_tensor_init(&cpu, values, cpu_device, GPUF_DTYPE_INT32, 2, shape, &err));
  CHECK_OK(gpuf_copy(&whole, &cpu, NULL, &err));
  for (int i = 0; i < N; i++) {
    void *data = i % 2 ? (char *)buffer + (size_t)i * sizeof(values) : (char *)pageable[i];
    srcs[i] = i == 5 ? cpu : whole;
    if (i % 3 == 0) {
      CHECK_OK(gpuf_tensor_slice(&srcs[i], 1, COLUMNS - 1, -2, COLUMNS / 2, &err));
    }
    CHECK_OK(
        gpuf_tensor_init(&dsts[i], data, cpu_device, GPUF_DTYPE_INT32, 2, srcs[i].shape, &err));
  }
  CHECK_OK(gpuf_copy_many(dsts, srcs, N, NULL, &err));
  for (int i = 0; i < N; i++) {
    const int32_t *got = dsts[i].data;
    for (int k = 0; k < ROWS * (i % 3 ? COLUMNS : COLUMNS / 2); k++) {
      const int32_t expected =
          i % 3 ? values[k]
                : values[k / (COLUMNS / 2) * COLUMNS + COLUMNS - 1 - 2 * (k % (COLUMNS / 2))];
      CHECK(got[k] == expected);
    }
  }
  gpuf_pool_release(buffer, NULL);
  CHECK_OK(gpuf_free(test_device, d_data, &err));
}

/* Both directions and two devices in one call; the second is full, so that it has no scratch. */
static void two_devices_drain_in_one_call(void) {
  static gpuf_tensor dsts[2 * COUNT], srcs[2 * COUNT];
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  pairs_make(&here, host_device, 64, 21);
  pairs_make(&there, (gpuf_device){GPUF_DEVICE_HOST, 1}, 64, 22);
  fill_device(&here);
  fill_device(&there);
  for (int i = 0; i < COUNT; i++) {
    dsts[2 * i] = here.host_side[i];
    srcs[2 * i] = here.device_side[i];
    dsts[2 * i + 1] = there.host_side[i];
    srcs[2 * i + 1] = there.device_side[i];
  }
  faults.alloc_fail_after = 0;
  gpufi_host_faults_set(&faults);
  const gpuf_status status = gpuf_copy_many(dsts, srcs, 2 * COUNT, NULL, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK_OK(status);
  CHECK(pairs_hold_what_the_device_holds(&here));
  CHECK(pairs_hold_what_the_device_holds(&there));
  pairs_free(&here);
  pairs_free(&there);
}

static void a_pair_that_does_not_fit_is_named(void) {
  gpuf_pool_stats before = GPUF_POOL_STATS_INIT, after = GPUF_POOL_STATS_INIT;
  pairs_make(&here, test_device, 64, 31);
  gpuf_pool_get_stats(&before, NULL);
  here.host_side[417].dtype = GPUF_DTYPE_INT8;
  CHECK_FAILS(gpuf_copy_many(here.host_side, here.device_side, COUNT, NULL, &err), GPUF_ERR_INVALID,
              "copy 417: the destination's dtype is int8");
  here.host_side[417].dtype = GPUF_DTYPE_UINT8;
  CHECK_OK(gpuf_copy_many(here.host_side, here.device_side, COUNT, NULL, &err));
  gpuf_pool_get_stats(&after, NULL);
  CHECK(before.used_nbytes == after.used_nbytes);
  pairs_free(&here);
}

static void a_failure_on_the_device_is_reported(void) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  pairs_make(&here, host_device, 64, 41);
  fill_device(&here);
  faults.copy_fail_after_nbytes = 2000000;
  gpufi_host_faults_set(&faults);
  const gpuf_status status = gpuf_copy_many(here.host_side, here.device_side, COUNT, NULL, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK(status == GPUF_ERR_DEVICE);
  CHECK(strstr(err.message, "one of copies ") && strstr(err.message, "injected"));
  CHECK_OK(gpuf_copy_many(here.host_side, here.device_side, COUNT, NULL, &err));
  CHECK(pairs_hold_what_the_device_holds(&here));
  pairs_free(&here);
}

static sem_t gate;

static void fill_when_let(const void *args) {
  sem_wait(&gate);
  memset(gpuf_host_pointer(*(void *const *)args), 0x42, 1000);
}

static void *open_gate(void *unused) {
  sem_post(&gate);
  return unused;
}

/* The producer works on until the call is (in all likelihood) waiting for it. */
static void work_pending_on_a_stream_is_waited_for(void) {
  gpuf_tensor dsts[2], srcs[2];
  gpuf_stream stream;
  void *d_data, *buffer;
  pthread_t opener;
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_alloc(host_device, 4096, &d_data, &err));
  CHECK_OK(gpuf_pool_acquire(host_device, 4096, &buffer, &err));
  memset(buffer, 0, 4096);
  for (int i = 0; i < 2; i++) {
    srcs[i] = bytes_at((char *)d_data + i * 500, host_device, 500);
    srcs[i].stream = stream;
    dsts[i] = bytes_at((char *)buffer + i * 512, cpu_device, 500);
  }
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, stream, fill_when_let, &d_data, sizeof(d_data), &err));
  CHECK(pthread_create(&opener, NULL, open_gate, NULL) == 0);
  CHECK_OK(gpuf_copy_many(dsts, srcs, 2, NULL, &err));
  pthread_join(opener, NULL);
  for (int i = 0; i < 500; i++) {
    CHECK(((char *)buffer)[i] == 0x42 && ((char *)buffer)[512 + i] == 0x42);
  }
  gpuf_pool_release(buffer, NULL);
  CHECK_OK(gpuf_free(host_device, d_data, &err));
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
}

/* Every other element of 2 MiB: a fetch and an upload by a pinned buffer, a fetch to pageable
 * memory. Each needs the scratch that the one before has used. */
static void a_batch_does_not_wait_for_scratch_that_it_holds(void) {
  enum { ELEMENTS = 1 << 19, NBYTES = 2 << 20 };
  char *expected = malloc(NBYTES), *pageable = malloc(NBYTES);
  gpuf_tensor dsts[3], srcs[3];
  void *d_data[2], *buffer;
  fill_random(expected, NBYTES, 5);
  CHECK_OK(gpuf_pool_acquire(test_device, NBYTES, &buffer, &err));
  memcpy(buffer, expected, NBYTES);
  for (int i = 0; i < 2; i++) {
    CHECK_OK(gpuf_alloc(test_device, NBYTES, &d_data[i], &err));
  }
  const gpuf_tensor whole = bytes_at(d_data[0], test_device, NBYTES);
  const gpuf_tensor bytes = bytes_at(expected, cpu_device, NBYTES);
  CHECK_OK(gpuf_copy(&whole, &bytes, NULL, &err));
  for (int i = 0; i < 3; i++) {
    const int64_t shape[1] = {ELEMENTS / 2};
    char *const h_data = i == 2 ? pageable : (char *)buffer + i * (NBYTES / 2);
    gpuf_tensor *const device_side = i == 1 ? &dsts[i] : &srcs[i];
    gpuf_tensor *const host_side = i == 1 ? &srcs[i] : &dsts[i];
    CHECK_OK(gpuf_tensor_init(device_side, d_data[i == 1], test_device, GPUF_DTYPE_FLOAT32, 1,
                              shape, &err));
    device_side->strides_nbytes[0] = 8;
    CHECK_OK(gpuf_tensor_init(host_side, h_data, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  }
  setenv("GPUFETCH_SCRATCH_MAX_NBYTES", "1", 1); /* one piece at a time */
  CHECK_OK(gpuf_copy_many(dsts, srcs, 3, NULL, &err));
  unsetenv("GPUFETCH_SCRATCH_MAX_NBYTES");
  for (size_t i = 0; i < ELEMENTS / 2; i++) {
    CHECK(memcmp((char *)buffer + 4 * i, expected + 8 * i, 4) == 0);
    CHECK(memcmp(pageable + 4 * i, expected + 8 * i, 4) == 0);
  }
  CHECK_OK(gpuf_copy(&dsts[2], &dsts[1], NULL, &err)); /* what was uploaded */
  CHECK(memcmp(pageable, (char *)buffer + NBYTES / 2, NBYTES / 2) == 0);
  gpuf_pool_release(buffer, NULL);
  for (int i = 0; i < 2; i++) {
    CHECK_OK(gpuf_free(test_device, d_data[i], &err));
  }
  free(expected);
  free(pageable);
}

static void many_copies_in_flight_arrive(void) {
  gpuf_future *future;
  pairs_make(&here, test_device, 64, 11);
  fill_device(&here);
  memset(here.pinned, 0xee, BLOCK_NBYTES);
  CHECK_OK(gpufi_copy_many_async(here.host_side, here.device_side, COUNT, NULL, &future, &err));
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  CHECK(gpuf_future_done(future));
  CHECK(pairs_hold_what_the_device_holds(&here));
  gpuf_future_destroy(future);
  CHECK_OK(gpufi_copy_many_async(NULL, NULL, 0, NULL, &future, &err));
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  gpuf_future_destroy(future);
  pairs_free(&here);
}

/* The thread that copies has a per-thread stream of its own: it is the caller's that counts. */
static void many_copies_in_flight_wait_for_the_callers_stream(void) {
  gpuf_tensor dsts[2], srcs[2];
  gpuf_future *future;
  void *d_data, *buffer;
  CHECK_OK(gpuf_alloc(host_device, 4096, &d_data, &err));
  CHECK_OK(gpuf_pool_acquire(host_device, 4096, &buffer, &err));
  memset(buffer, 0, 4096);
  for (int i = 0; i < 2; i++) {
    srcs[i] = bytes_at((char *)d_data + i * 500, host_device, 500);
    srcs[i].stream = GPUF_STREAM_PER_THREAD;
    dsts[i] = bytes_at((char *)buffer + i * 512, cpu_device, 500);
  }
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, GPUF_STREAM_PER_THREAD, fill_when_let, &d_data,
                            sizeof(d_data), &err));
  CHECK_OK(gpufi_copy_many_async(dsts, srcs, 2, NULL, &future, &err));
  CHECK_FAILS(gpuf_future_wait(future, 20000000, &err), GPUF_ERR_TIMEOUT, "1000 bytes");
  sem_post(&gate);
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  for (int i = 0; i < 500; i++) {
    CHECK(((char *)buffer)[i] == 0x42 && ((char *)buffer)[512 + i] == 0x42);
  }
  gpuf_future_destroy(future);
  CHECK_OK(gpuf_pool_release(buffer, &err));
  CHECK_OK(gpuf_free(host_device, d_data, &err));
}

/* Each pair is copied before the next is begun, because its destination is pageable. */
static void many_copies_that_are_cancelled_begin_no_other(void) {
  enum { PAIRS = 8 };
  static char out[PAIRS][1000], untouched[1000];
  gpuf_tensor dsts[PAIRS], srcs[PAIRS];
  gpuf_future *future;
  void *d_data;
  CHECK_OK(gpuf_alloc(host_device, 4096, &d_data, &err));
  memset(out, 0x5a, sizeof(out));
  memset(untouched, 0x5a, sizeof(untouched));
  for (int i = 0; i < PAIRS; i++) {
    srcs[i] = bytes_at(d_data, host_device, 1000);
    srcs[i].stream = GPUF_STREAM_LEGACY;
    dsts[i] = bytes_at(out[i], cpu_device, 1000);
  }
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, GPUF_STREAM_LEGACY, fill_when_let, &d_data, sizeof(d_data),
                            &err));
  CHECK_OK(gpufi_copy_many_async(dsts, srcs, PAIRS, NULL, &future, &err));
  CHECK(gpufi_future_cancel(future));
  CHECK(!gpuf_future_done(future));
  sem_post(&gate);
  CHECK_FAILS(gpuf_future_wait(future, -1, &err), GPUF_ERR_STATE, "cancelled");
  for (int i = 1; i < PAIRS; i++) {
    CHECK(memcmp(out[i], untouched, sizeof(untouched)) == 0);
  }
  gpuf_future_destroy(future);
  CHECK_OK(gpuf_free(host_device, d_data, &err));
}

static void a_failure_in_flight_names_the_pair(void) {
  gpuf_future *future;
  gpuf_error inner;
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  pairs_make(&here, host_device, 64, 4);
  fill_device(&here);
  faults.copy_fail_after_nbytes = 10000;
  gpufi_host_faults_set(&faults);
  CHECK_OK(gpufi_copy_many_async(here.host_side, here.device_side, COUNT, NULL, &future, &err));
  const gpuf_status status = gpuf_future_wait(future, -1, &inner);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK(status == GPUF_ERR_DEVICE);
  CHECK(strstr(inner.message, "one of copies ") && strstr(inner.message, "injected"));
  gpuf_future_destroy(future);
  pairs_free(&here);
}

static void no_copies_at_all_are_fine(void) {
  CHECK_OK(gpuf_copy_many(NULL, NULL, 0, NULL, &err));
}

int main(void) {
  TEST(two_devices_drain_in_one_call); /* first, while no channel has scratch */
  TEST_ON_DEVICES(
      a_batch_does_not_wait_for_scratch_that_it_holds); /* scratch for one piece exists at most */
  TEST_ON_DEVICES(many_fetches_agree_with_the_device);
  TEST_ON_DEVICES(many_uploads_write_their_bytes_only);
  TEST_ON_DEVICES(bytes_between_destinations_are_left_alone);
  TEST_ON_DEVICES(tensors_that_cannot_travel_together_are_copied_too);
  TEST_ON_DEVICES(a_pair_that_does_not_fit_is_named);
  TEST(a_failure_on_the_device_is_reported);
  TEST(work_pending_on_a_stream_is_waited_for);
  TEST(no_copies_at_all_are_fine);
  TEST_ON_DEVICES(many_copies_in_flight_arrive);
  TEST(many_copies_in_flight_wait_for_the_callers_stream);
  TEST(many_copies_that_are_cancelled_begin_no_other);
  TEST(a_failure_in_flight_names_the_pair);
  return test_finish();
}
