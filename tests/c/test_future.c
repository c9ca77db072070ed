#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/host/faults.h"
#include "core/future.h"
#include "devices.h"
#include "scarce_threads.h"

static gpuf_error err;

typedef struct fixture {
  gpuf_tensor d_tensor, pinned, pageable;
  gpuf_stream stream;
} fixture;

enum { NBYTES = 9000000 };

static fixture fixture_create(void) {
  static char pageable[NBYTES];
  const int64_t shape[1] = {NBYTES};
  void *pinned, *d_ptr;
  fixture f;
  CHECK_OK(gpuf_alloc(test_device, NBYTES, &d_ptr, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, NBYTES, &pinned, &err));
  CHECK_OK(gpuf_stream_create(test_device, &f.stream, &err));
  CHECK_OK(gpuf_tensor_init(&f.d_tensor, d_ptr, test_device, GPUF_DTYPE_INT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&f.pinned, pinned, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&f.pageable, pageable, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err));
  fill_random(pageable, NBYTES, 1);
  CHECK_OK(gpuf_copy(&f.d_tensor, &f.pageable, NULL, &err));
  return f;
}

static void fixture_destroy(fixture *f) {
  CHECK_OK(gpuf_stream_destroy(test_device, f->stream, &err));
  CHECK_OK(gpuf_free(test_device, f->d_tensor.data, &err));
  gpuf_pool_release(f->pinned.data, NULL);
}

/* A kernel that holds the producer's stream up until the gate opens. */
static sem_t gate;
static void gated_kernel(const void *args) {
  sem_wait(&gate);
}

static void hold_up(fixture *f) {
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, f->stream, gated_kernel, "", 0, &err));
  f->d_tensor.stream = f->stream;
}

static void many_copies_in_flight_all_arrive(void) {
  enum { COUNT = 12 };
  fixture f = fixture_create();
  gpuf_future *futures[COUNT];
  gpuf_tensor outs[COUNT];
  for (int i = 0; i < COUNT; i++) {
    void *out = i % 2 ? malloc(NBYTES) : NULL;
    if (!out) {
      CHECK_OK(gpuf_pool_acquire(test_device, NBYTES, &out, &err));
    }
    CHECK_OK(
        gpuf_tensor_init(&outs[i], out, cpu_device, GPUF_DTYPE_INT8, 1, f.d_tensor.shape, &err));
    CHECK_OK(gpuf_copy_async(&outs[i], &f.d_tensor, NULL, &futures[i], &err));
  }
  for (int i = COUNT - 1; i >= 0; i--) {
    CHECK_OK(gpuf_future_wait(futures[i], -1, &err));
    CHECK(gpuf_future_done(futures[i]));
    CHECK(memcmp(outs[i].data, f.pageable.data, NBYTES) == 0);
    gpuf_future_destroy(futures[i]);
    if (i % 2) {
      free(outs[i].data);
    } else {
      gpuf_pool_release(outs[i].data, NULL);
    }
  }
  fixture_destroy(&f);
}

static void a_copy_waits_for_the_producers_stream_and_a_timeout_leaves_it_running(void) {
  fixture f = fixture_create();
  gpuf_tensor *const destinations[2] = {&f.pinned, &f.pageable};
  for (int i = 0; i < 2; i++) {
    gpuf_future *future;
    hold_up(&f);
    CHECK_OK(gpuf_copy_async(destinations[i], &f.d_tensor, NULL, &future, &err));
    CHECK(!gpuf_future_done(future));
    CHECK_FAILS(gpuf_future_wait(future, 2000000, &err), GPUF_ERR_TIMEOUT, "2.000 ms");
    sem_post(&gate);
    CHECK_OK(gpuf_future_wait(future, INT64_C(60000000000), &err));
    gpuf_future_destroy(future);
  }
  fixture_destroy(&f);
}

/* The threads that stage a copy have a per-thread stream of their own: it is the caller's that
 * counts. */
static void a_copy_waits_for_the_callers_own_default_stream(void) {
  fixture f = fixture_create();
  const gpuf_stream created = f.stream;
  f.stream = GPUF_STREAM_PER_THREAD;
  gpuf_tensor *const destinations[2] = {&f.pinned, &f.pageable};
  for (int i = 0; i < 2; i++) {
    gpuf_future *future;
    hold_up(&f);
    CHECK_OK(gpuf_copy_async(destinations[i], &f.d_tensor, NULL, &future, &err));
    CHECK_FAILS(gpuf_future_wait(future, 20000000, &err), GPUF_ERR_TIMEOUT, "20.000 ms");
    sem_post(&gate);
    CHECK_OK(gpuf_future_wait(future, INT64_C(60000000000), &err));
    gpuf_future_destroy(future);
  }
  f.stream = created;
  fixture_destroy(&f);
}

static int copy_between_arrays(void) {
  char from[64], to[64] = {0};
  const int64_t shape[1] = {64};
  gpuf_tensor src, dst;
  gpuf_future *future;
  fill_random(from, sizeof(from), 3);
  if (gpuf_tensor_init(&src, from, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err) != GPUF_OK ||
      gpuf_tensor_init(&dst, to, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err) != GPUF_OK ||
      gpuf_copy(&dst, &src, NULL, &err) != GPUF_OK || memcmp(from, to, sizeof(to)) != 0) {
    return 1;
  }
  memset(to, 0, sizeof(to));
  if (gpuf_copy_async(&dst, &src, NULL, &future, &err) != GPUF_OK ||
      gpuf_future_wait(future, -1, &err) != GPUF_OK || memcmp(from, to, sizeof(to)) != 0) {
    return 2;
  }
  gpuf_future_destroy(future);
  return 0;
}

/* Only what needs a device is refused there. */
static void a_forked_child_copies_between_arrays(void) {
  int outcome;
  fixture f = fixture_create();
  CHECK_OK(gpuf_copy(&f.pinned, &f.d_tensor, NULL, &err));
  const pid_t child = fork();
  if (child == 0) {
    _exit(copy_between_arrays());
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
  fixture_destroy(&f);
}

static void *wait_for(void *future) {
  return gpuf_future_wait(future, -1, NULL) == GPUF_OK ? future : NULL;
}

static void several_threads_may_wait_for_one_copy(void) {
  fixture f = fixture_create();
  pthread_t threads[3];
  gpuf_future *future;
  hold_up(&f);
  CHECK_OK(gpuf_copy_async(&f.pinned, &f.d_tensor, NULL, &future, &err));
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&threads[i], NULL, wait_for, future) == 0);
  }
  sem_post(&gate);
  for (int i = 0; i < 3; i++) {
    void *result;
    CHECK(pthread_join(threads[i], &result) == 0 && result == future);
  }
  gpuf_future_destroy(future);
  fixture_destroy(&f);
}

static void an_abandoned_copy_is_finished_before_it_is_freed(void) {
  fixture f = fixture_create();
  gpuf_future *future;
  memset(f.pinned.data, 0, NBYTES);
  CHECK_OK(gpuf_copy_async(&f.pinned, &f.d_tensor, NULL, &future, &err));
  gpuf_future_destroy(future);
  CHECK(memcmp(f.pinned.data, f.pageable.data, NBYTES) == 0);
  gpuf_future_destroy(NULL);
  fixture_destroy(&f);
}

static void a_failure_is_reported_at_every_wait(void) {
  fixture f = fixture_create();
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  gpuf_tensor *const destinations[2] = {&f.pinned, &f.pageable};
  for (int i = 0; i < 2; i++) {
    gpuf_future *future;
    faults.copy_fail_after_nbytes = 1000;
    gpufi_host_faults_set(&faults);
    CHECK_OK(gpuf_copy_async(destinations[i], &f.d_tensor, NULL, &future, &err));
    for (int k = 0; k < 2; k++) {
      CHECK_FAILS(gpuf_future_wait(future, -1, &err), GPUF_ERR_DEVICE, "injected");
    }
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    gpuf_future_destroy(future);
  }
  fixture_destroy(&f);
}

/* One thread: two pieces are with the device when the copy is cancelled, and no other follows. */
static void a_cancelled_copy_begins_no_other_piece(void) {
  fixture f = fixture_create();
  const size_t begun_nbytes_max = (size_t)4 << 20;
  char *out = malloc(NBYTES), *untouched = malloc(NBYTES);
  gpuf_tensor target = f.pageable;
  target.data = out;
  const gpuf_copy_options options = {
      .struct_nbytes = sizeof(options), .piece_nbytes = (size_t)1 << 20, .thread_count = 1};
  gpuf_future *future;
  memset(untouched, 0x5a, NBYTES);
  memset(out, 0x5a, NBYTES);
  hold_up(&f);
  CHECK_OK(gpuf_copy_async(&target, &f.d_tensor, &options, &future, &err));
  CHECK(gpufi_future_cancel(future));
  CHECK(!gpuf_future_done(future)); /* the device may still write */
  CHECK(gpufi_future_cancel(future));
  sem_post(&gate);
  CHECK_FAILS(gpuf_future_wait(future, -1, &err), GPUF_ERR_STATE, "cancelled");
  CHECK(!gpufi_future_cancel(future));
  gpuf_future_destroy(future);
  CHECK(memcmp(out + begun_nbytes_max, untouched, NBYTES - begun_nbytes_max) == 0);
  free(out);
  free(untouched);
  fixture_destroy(&f);
}

static void a_direct_copy_is_the_devices_and_ends_though_it_is_cancelled(void) {
  fixture f = fixture_create();
  gpuf_future *future;
  memset(f.pinned.data, 0, NBYTES);
  hold_up(&f);
  CHECK_OK(gpuf_copy_async(&f.pinned, &f.d_tensor, NULL, &future, &err));
  CHECK(gpufi_future_cancel(future));
  CHECK(!gpuf_future_done(future));
  sem_post(&gate);
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  CHECK(!gpufi_future_cancel(future));
  CHECK(memcmp(f.pinned.data, f.pageable.data, NBYTES) == 0);
  gpuf_future_destroy(future);
  fixture_destroy(&f);
}

static void a_copy_that_cannot_start_gives_no_future(void) {
  fixture f = fixture_create();
  gpuf_future *future = (gpuf_future *)&f;
  f.d_tensor.dtype = GPUF_DTYPE_UINT8;
  CHECK_FAILS(gpuf_copy_async(&f.pinned, &f.d_tensor, NULL, &future, &err), GPUF_ERR_INVALID,
              "dtype");
  CHECK(future == NULL);
  fixture_destroy(&f);
}

static void a_forked_child_is_told_to_wait_in_the_parent(void) {
  fixture f = fixture_create();
  gpuf_future *future;
  int outcome;
  CHECK_OK(gpuf_copy_async(&f.pinned, &f.d_tensor, NULL, &future, &err));
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = gpuf_future_wait(future, -1, &err) == GPUF_ERR_STATE;
    gpuf_future_destroy(future);
    _exit(refused ? 0 : 1);
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  gpuf_future_destroy(future);
  fixture_destroy(&f);
}

/* A copy of every second byte, so that each thread needs scratch, to pageable memory. */
static gpuf_status copy_scattered(const fixture *f, const gpuf_copy_options *options) {
  gpuf_tensor source = f->d_tensor, target = f->pageable;
  gpuf_future *future;
  CHECK_OK(gpuf_tensor_slice(&source, 0, 0, 2, NBYTES / 2, &err));
  CHECK_OK(gpuf_tensor_slice(&target, 0, 0, 1, NBYTES / 2, &err));
  CHECK_OK(gpuf_copy_async(&target, &source, options, &future, &err));
  const gpuf_status status = gpuf_future_wait(future, -1, &err);
  gpuf_future_destroy(future);
  return status;
}

/* No thread finds memory, and some end before the last is started. Has to come first, while the
 * device has no scratch. */
static void a_copy_whose_threads_find_no_memory_fails(void) {
  fixture f = fixture_create();
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .thread_count = 8};
  faults.alloc_fail_after = 0;
  for (int started = 0; started < 40; started++) {
    gpufi_host_faults_set(&faults);
    threads_left = started % 8 == 0 ? INT_MAX : started % 8;
    const gpuf_status status = copy_scattered(&f, &options);
    threads_left = INT_MAX;
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    CHECK(status == GPUF_ERR_NO_DEVICE_MEMORY || status == GPUF_ERR_NO_MEMORY);
  }
  CHECK_OK(copy_scattered(&f, &options));
  fixture_destroy(&f);
}

static void a_copy_that_gets_no_thread_is_done_by_the_caller(void) {
  fixture f = fixture_create();
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .thread_count = 8};
  char *bytes = malloc(NBYTES);
  gpuf_tensor target = f.pageable;
  gpuf_future *future;
  target.data = bytes;
  CHECK_OK(gpuf_copy(&target, &f.d_tensor, &options, &err)); /* leaves its channels */
  memset(bytes, 0, NBYTES);
  threads_left = 0;
  gpuf_status status = gpuf_copy_async(&target, &f.d_tensor, &options, &future, &err);
  status = status == GPUF_OK ? gpuf_future_wait(future, -1, &err) : status;
  threads_left = INT_MAX;
  CHECK_OK(status);
  CHECK(memcmp(bytes, f.pageable.data, NBYTES) == 0);
  gpuf_future_destroy(future);
  free(bytes);
  fixture_destroy(&f);
}

int main(void) {
  test_device = host_device;
  TEST(a_copy_whose_threads_find_no_memory_fails);
  TEST(a_copy_that_gets_no_thread_is_done_by_the_caller);
  TEST_ON_DEVICES(many_copies_in_flight_all_arrive);
  TEST_ON_DEVICES(an_abandoned_copy_is_finished_before_it_is_freed);
  TEST_ON_DEVICES(a_copy_that_cannot_start_gives_no_future);
  test_device = host_device;
  TEST(a_copy_waits_for_the_producers_stream_and_a_timeout_leaves_it_running);
  TEST(a_copy_waits_for_the_callers_own_default_stream);
  TEST(a_forked_child_copies_between_arrays);
  TEST(several_threads_may_wait_for_one_copy);
  TEST(a_failure_is_reported_at_every_wait);
  TEST(a_cancelled_copy_begins_no_other_piece);
  TEST(a_direct_copy_is_the_devices_and_ends_though_it_is_cancelled);
  TEST(a_forked_child_is_told_to_wait_in_the_parent);
  return test_finish();
}
