/* Work that fails on a stream of the host backend: what reads behind it fails, too, and nobody
 * takes that failure away. A GPU fails for good, and all calls with it. */
#include <dirent.h>
#include <gpufetch/reduce.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/many.h"
#include "devices.h"

static gpuf_error err;

/* A device tensor that was copied from `expected`, its stream, and where it is read to. */
typedef struct fixture {
  gpuf_stream stream;
  gpuf_tensor tensor, spare;
  gpuf_tensor expected, pageable, pinned;
} fixture;

static gpuf_tensor host_tensor(void *data, int64_t count) {
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, data, cpu_device, GPUF_DTYPE_FLOAT32, 1, &count, &err));
  return t;
}

static fixture fixture_create(int64_t count, gpuf_stream stream) {
  const size_t nbytes = (size_t)count * sizeof(float);
  fixture f = {.stream = stream};
  void *pinned;
  if (stream == GPUF_STREAM_NONE) {
    CHECK_OK(gpuf_stream_create(host_device, &f.stream, &err));
  }
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, &count, &f.tensor, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, &count, &f.spare, &err));
  CHECK_OK(gpuf_pool_acquire(host_device, nbytes, &pinned, &err));
  f.pinned = host_tensor(pinned, count);
  f.expected = host_tensor(malloc(nbytes), count);
  f.pageable = host_tensor(malloc(nbytes), count);
  fill_random(f.expected.data, nbytes, (uint64_t)count);
  CHECK_OK(gpuf_copy(&f.tensor, &f.expected, NULL, &err));
  f.tensor.stream = f.stream;
  return f;
}

static void fixture_destroy(fixture *f) {
  if (f->stream != GPUF_STREAM_PER_THREAD) {
    CHECK_OK(gpuf_stream_destroy(host_device, f->stream, &err));
  }
  CHECK_OK(gpuf_tensor_free(&f->tensor, &err));
  CHECK_OK(gpuf_tensor_free(&f->spare, &err));
  gpuf_pool_release(f->pinned.data, NULL);
  free(f->expected.data);
  free(f->pageable.data);
}

/* A copy that fails, from memory that was freed. */
typedef struct failing_copy {
  gpuf_tensor to, freed;
} failing_copy;

static failing_copy failing_copy_create(void) {
  const int64_t count = 16;
  failing_copy c;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, &count, &c.to, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, &count, &c.freed, &err));
  gpuf_tensor gone = c.freed;
  CHECK_OK(gpuf_tensor_free(&gone, &err));
  return c;
}

/* Waits for the whole device, since it frees memory. */
static void fail_on(gpuf_stream stream) {
  failing_copy c = failing_copy_create();
  CHECK_OK(gpuf_tensor_copy(&c.to, &c.freed, stream, &err));
  CHECK_OK(gpuf_tensor_free(&c.to, &err));
}

static bool is_right(const fixture *f, const gpuf_tensor *read) {
  return memcmp(f->expected.data, read->data, gpuf_tensor_nbytes(read)) == 0;
}

/* --- The calls: each reads the tensor, and says whether what it read is right --------- */

static gpuf_status copy_to_pinned(fixture *f, bool *right) {
  const gpuf_status status = gpuf_copy(&f->pinned, &f->tensor, NULL, &err);
  *right = is_right(f, &f->pinned);
  return status;
}

static gpuf_status copy_to_pageable(fixture *f, bool *right) {
  const gpuf_status status = gpuf_copy(&f->pageable, &f->tensor, NULL, &err);
  *right = is_right(f, &f->pageable);
  return status;
}

static gpuf_status copy_async(fixture *f, bool *right) {
  gpuf_future *future;
  gpuf_status status = gpuf_copy_async(&f->pinned, &f->tensor, NULL, &future, &err);
  if (status == GPUF_OK) {
    status = gpuf_future_wait(future, -1, &err);
    gpuf_future_destroy(future);
  }
  *right = is_right(f, &f->pinned);
  return status;
}

static gpuf_status copy_many(fixture *f, bool *right) {
  const gpuf_tensor dsts[2] = {f->pinned, f->pageable}, srcs[2] = {f->tensor, f->tensor};
  const gpuf_status status = gpuf_copy_many(dsts, srcs, 2, NULL, &err);
  *right = is_right(f, &f->pinned) && is_right(f, &f->pageable);
  return status;
}

static gpuf_status copy_within_the_device(fixture *f, bool *right) {
  gpuf_stream second;
  CHECK_OK(gpuf_stream_create(host_device, &second, &err));
  CHECK_OK(gpuf_tensor_copy(&f->spare, &f->tensor, second, &err));
  const gpuf_status status = gpuf_stream_synchronize(host_device, second, &err);
  const gpuf_error failure = err;
  CHECK_OK(gpuf_copy(&f->pinned, &f->spare, NULL, &err));
  CHECK_OK(gpuf_stream_destroy(host_device, second, &err));
  err = failure;
  *right = is_right(f, &f->pinned);
  return status;
}

static gpuf_status reduce(fixture *f, bool *right) {
  gpuf_stats stats = GPUF_STATS_INIT;
  const gpuf_status status = gpuf_reduce_stats(&f->tensor, &stats, &err);
  *right = stats.count == (uint64_t)gpuf_tensor_count(&f->tensor);
  return status;
}

static gpuf_status (*const calls[])(fixture *, bool *) = {
    copy_to_pinned, copy_to_pageable, copy_async, copy_many, copy_within_the_device, reduce,
};

/* After the failure was told, the stream works again. */
static void what_reads_behind_failed_work_fails(void) {
  static const int64_t counts[] = {1000, (1 << 19) + 1};
  static const gpuf_stream streams[] = {GPUF_STREAM_NONE, GPUF_STREAM_PER_THREAD};
  for (int i = 0; i < 4; i++) {
    fixture f = fixture_create(counts[i % 2], streams[i / 2]);
    for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++) {
      bool right;
      fail_on(f.stream);
      CHECK_FAILS(calls[k](&f, &right), GPUF_ERR_DEVICE, "not inside a live allocation");
      CHECK_FAILS(gpuf_stream_synchronize(host_device, f.stream, &err), GPUF_ERR_DEVICE,
                  "not inside a live allocation");
      memset(f.pinned.data, 0, gpuf_tensor_nbytes(&f.pinned));
      memset(f.pageable.data, 0, gpuf_tensor_nbytes(&f.pageable));
      CHECK_OK(calls[k](&f, &right));
      CHECK(right);
    }
    fixture_destroy(&f);
  }
}

/* A call without elements does nothing, and leaves no failure to the calls after it. */
static void a_call_without_elements_passes_no_failure_on(void) {
  fixture f = fixture_create(1000, GPUF_STREAM_PER_THREAD);
  gpuf_tensor nothing = f.tensor;
  nothing.shape[0] = 0;
  gpuf_tensor to = f.pageable;
  to.shape[0] = 0;
  gpuf_future *future;
  fail_on(f.stream);
  CHECK_OK(gpuf_copy(&to, &nothing, NULL, &err));
  CHECK_OK(gpuf_copy_async(&to, &nothing, NULL, &future, &err));
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  gpuf_future_destroy(future);
  CHECK_OK(gpuf_copy_many(&to, &nothing, 1, NULL, &err));
  gpuf_tensor spare = f.spare;
  gpuf_stream clean;
  spare.shape[0] = 0;
  CHECK_OK(gpuf_stream_create(host_device, &clean, &err));
  CHECK_OK(gpuf_tensor_copy(&spare, &nothing, clean, &err));
  CHECK_OK(gpuf_stream_destroy(host_device, clean, &err));
  CHECK_FAILS(gpuf_stream_synchronize(host_device, f.stream, &err), GPUF_ERR_DEVICE, "");
  for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++) {
    bool right;
    CHECK_OK(calls[k](&f, &right));
    CHECK(right);
  }
  fixture_destroy(&f);
}

/* --- Another thread that synchronizes the stream ------------------------------------ */

typedef struct synchronizer {
  gpuf_stream stream;
  atomic_bool is_ended;
} synchronizer;

/* The thread synchronizes once more after it is told to end: the stream keeps its last failure
 * until then. */
static void *synchronize(void *arg) {
  synchronizer *const s = arg;
  for (bool is_last = false; !is_last;) {
    is_last = atomic_load(&s->is_ended);
    gpuf_stream_synchronize(host_device, s->stream, NULL);
  }
  return NULL;
}

/* The failure goes to one of the two. What the copy gives is then what the memory held. */
static void a_copy_is_made_though_another_thread_is_told_of_the_failure(void) {
  fixture f = fixture_create(1000, GPUF_STREAM_NONE);
  synchronizer s = {.stream = f.stream};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, synchronize, &s) == 0);
  for (int i = 0; i < 500; i += test_every()) {
    bool right = false;
    memset(f.pinned.data, 0, gpuf_tensor_nbytes(&f.pinned));
    fail_on(f.stream);
    const gpuf_status status = copy_to_pinned(&f, &right);
    CHECK(status == GPUF_ERR_DEVICE || (status == GPUF_OK && right));
  }
  atomic_store(&s.is_ended, true);
  CHECK(pthread_join(thread, NULL) == 0);
  fixture_destroy(&f);
}

/* --- Copies in flight ----------------------------------------------------------------- */

static gpuf_status start_copy(fixture *f, int kind, gpuf_future **future) {
  switch (kind) {
  case 0:
    return gpuf_copy_async(&f->pageable, &f->tensor, NULL, future, &err);
  case 1:
    return gpuf_copy_async(&f->pinned, &f->tensor, NULL, future, &err);
  default:
    return gpufi_copy_many_async(&f->pageable, &f->tensor, 1, NULL, future, &err);
  }
}

/* A copy is behind the work that was on the stream when it began: what comes to the stream later
 * neither fails nor delays it, and the stream may be destroyed. */
static void a_copy_in_flight_has_no_part_in_what_follows_on_the_stream(void) {
  static const int64_t counts[] = {1000, (1 << 19) + 1};
  for (int i = 0; i < 12; i++) {
    const bool destroys = i % 2;
    fixture f = fixture_create(counts[i / 6], GPUF_STREAM_NONE);
    for (int k = 0; k < 20; k += test_every()) {
      gpuf_future *future;
      gpuf_stream stream;
      CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
      f.tensor.stream = stream;
      memset(f.pinned.data, 0, gpuf_tensor_nbytes(&f.pinned));
      memset(f.pageable.data, 0, gpuf_tensor_nbytes(&f.pageable));
      CHECK_OK(start_copy(&f, i / 2 % 3, &future));
      if (destroys) {
        CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
      } else {
        fail_on(stream);
      }
      CHECK_OK(gpuf_future_wait(future, -1, &err));
      CHECK(is_right(&f, i / 2 % 3 == 1 ? &f.pinned : &f.pageable));
      gpuf_future_destroy(future);
      if (!destroys) {
        CHECK_FAILS(gpuf_stream_destroy(host_device, stream, &err), GPUF_ERR_DEVICE, "");
      }
    }
    fixture_destroy(&f);
  }
}

/* --- Other streams ------------------------------------------------------------------------ */

static sem_t gate;

static void gated_kernel(const void *args) {
  (void)args;
  sem_wait(&gate);
}

/* A failed copy whose device still works for others is told of at once, and leaves nothing that
 * waits for those. */
static void a_failure_is_told_beside_a_busy_stream(void) {
  fixture f = fixture_create(1000, GPUF_STREAM_NONE);
  gpuf_stats stats = GPUF_STATS_INIT;
  gpuf_stream busy;
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_stream_create(host_device, &busy, &err));
  CHECK_OK(gpuf_reduce_stats(&f.tensor, &stats, &err)); /* a channel with a workspace is left */
  failing_copy c = failing_copy_create();               /* whose address is not used again */
  CHECK_OK(gpuf_host_launch(host_device, busy, gated_kernel, NULL, 0, &err));
  alarm(60);
  for (int kind = 0; kind < 3; kind++) {
    gpuf_future *future;
    CHECK_OK(gpuf_tensor_copy(&c.to, &c.freed, f.stream, &err));
    CHECK_OK(start_copy(&f, kind, &future));
    CHECK(gpuf_future_wait(future, -1, &err) == GPUF_ERR_DEVICE);
    gpuf_future_destroy(future);
    CHECK(gpuf_stream_synchronize(host_device, f.stream, &err) == GPUF_ERR_DEVICE);
  }
  alarm(0);
  sem_post(&gate);
  CHECK_OK(gpuf_stream_destroy(host_device, busy, &err));
  CHECK_OK(gpuf_tensor_free(&c.to, &err));
  fixture_destroy(&f);
}

/* A strided copy that waits for its producer holds no scratch meanwhile. */
static void copies_that_wait_leave_scratch_to_others(void) {
  fixture f = fixture_create((int64_t)1 << 20, GPUF_STREAM_NONE);
  fixture other = fixture_create(2000, GPUF_STREAM_NONE);
  const gpuf_copy_options many_threads = {
      .struct_nbytes = sizeof(gpuf_copy_options), .piece_nbytes = 64 << 10, .thread_count = 32};
  gpuf_tensor half = f.tensor, half_read = f.pageable, from = other.tensor, to = other.spare;
  gpuf_future *future;
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_tensor_slice(&half, 0, 0, 2, gpuf_tensor_count(&half) / 2, &err));
  CHECK_OK(gpuf_tensor_slice(&half_read, 0, 0, 2, gpuf_tensor_count(&half_read) / 2, &err));
  CHECK_OK(gpuf_tensor_slice(&from, 0, 0, 2, 1000, &err));
  CHECK_OK(gpuf_tensor_slice(&to, 0, 0, 2, 1000, &err));
  CHECK_OK(gpuf_host_launch(host_device, f.stream, gated_kernel, NULL, 0, &err));
  CHECK_OK(gpuf_copy_async(&half_read, &half, &many_threads, &future, &err));
  usleep(50000);
  alarm(60);
  CHECK_OK(gpuf_tensor_copy(&to, &from, other.stream, &err));
  CHECK_OK(gpuf_stream_synchronize(host_device, other.stream, &err));
  alarm(0);
  sem_post(&gate);
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  gpuf_future_destroy(future);
  for (int64_t i = 0; i < gpuf_tensor_count(&f.tensor); i += 2) {
    CHECK(memcmp((float *)f.pageable.data + i, (float *)f.expected.data + i, sizeof(float)) == 0);
  }
  fixture_destroy(&other);
  fixture_destroy(&f);
}

static void many_copies_in_flight_name_the_one_that_failed(void) {
  fixture f = fixture_create(1000, GPUF_STREAM_NONE);
  fixture failed = fixture_create(1000, GPUF_STREAM_NONE);
  const gpuf_tensor dsts[] = {f.pageable, failed.pageable}, srcs[] = {f.tensor, failed.tensor};
  gpuf_future *future;
  fail_on(failed.stream);
  CHECK_OK(gpufi_copy_many_async(dsts, srcs, 2, NULL, &future, &err));
  CHECK(gpuf_future_wait(future, -1, &err) == GPUF_ERR_DEVICE);
  CHECK(strncmp(err.message, "copy 1: ", 8) == 0);
  gpuf_future_destroy(future);
  CHECK_OK(gpuf_stream_synchronize(host_device, f.stream, &err));
  CHECK(gpuf_stream_synchronize(host_device, failed.stream, &err) == GPUF_ERR_DEVICE);
  fixture_destroy(&failed);
  fixture_destroy(&f);
}

static void many_copies_in_flight_tell_of_a_failure_beside_a_busy_stream(void) {
  fixture f = fixture_create(1000, GPUF_STREAM_NONE), busy = fixture_create(10, GPUF_STREAM_NONE);
  const gpuf_tensor dsts[] = {f.pageable, busy.pageable}, srcs[] = {f.tensor, busy.tensor};
  gpuf_future *future;
  fail_on(f.stream);
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, busy.stream, gated_kernel, NULL, 0, &err));
  CHECK_OK(gpufi_copy_many_async(dsts, srcs, 2, NULL, &future, &err));
  alarm(60);
  CHECK(gpuf_future_wait(future, -1, &err) == GPUF_ERR_DEVICE);
  alarm(0);
  sem_post(&gate);
  gpuf_future_destroy(future);
  CHECK(gpuf_stream_synchronize(host_device, f.stream, &err) == GPUF_ERR_DEVICE);
  fixture_destroy(&busy);
  fixture_destroy(&f);
}

/* Those that can do without take no scratch that a stream still works on. */
static void contiguous_copies_wait_for_no_scratch(void) {
  fixture f = fixture_create(2000, GPUF_STREAM_NONE), other = fixture_create(8, GPUF_STREAM_NONE);
  gpuf_tensor from = f.tensor, to = f.spare;
  gpuf_tensor dsts[2], srcs[2];
  gpuf_future *future;
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_tensor_slice(&from, 0, 0, 2, 1000, &err));
  CHECK_OK(gpuf_tensor_slice(&to, 0, 0, 2, 1000, &err));
  CHECK_OK(gpuf_host_launch(host_device, f.stream, gated_kernel, NULL, 0, &err));
  for (int i = 0; i < 20; i++) { /* more than there is scratch */
    CHECK_OK(gpuf_tensor_copy(&to, &from, f.stream, &err));
  }
  for (int i = 0; i < 2; i++) {
    dsts[i] = other.pinned;
    srcs[i] = other.tensor;
    CHECK_OK(gpuf_tensor_slice(&dsts[i], 0, 4 * i, 1, 4, &err));
    CHECK_OK(gpuf_tensor_slice(&srcs[i], 0, 4 * i, 1, 4, &err));
  }
  CHECK_OK(gpufi_copy_many_async(dsts, srcs, 2, NULL, &future, &err));
  alarm(60);
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  alarm(0);
  CHECK(is_right(&other, &other.pinned));
  gpuf_future_destroy(future);
  sem_post(&gate);
  fixture_destroy(&other);
  fixture_destroy(&f);
}

static void *trim(void *arg) {
  atomic_bool *const is_ended = arg;
  while (!atomic_load(is_ended)) {
    gpuf_device_trim();
  }
  return NULL;
}

static int thread_count(void) {
  int count = 0;
  DIR *const threads = opendir("/proc/self/task");
  CHECK(threads);
  while (readdir(threads)) {
    count++;
  }
  closedir(threads);
  return count;
}

/* Each channel has a stream, which is a thread here. */
static void trims_beside_reductions_make_no_channels(void) {
  fixture f = fixture_create(1000, GPUF_STREAM_NONE);
  const int before = thread_count();
  atomic_bool is_ended = false;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, trim, &is_ended) == 0);
  for (int i = 0; i < 3000; i++) {
    gpuf_stats stats = GPUF_STATS_INIT;
    CHECK_OK(gpuf_reduce_stats(&f.tensor, &stats, &err));
  }
  atomic_store(&is_ended, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(thread_count() <= before + 3);
  fixture_destroy(&f);
}

int main(void) {
  TEST(a_copy_in_flight_has_no_part_in_what_follows_on_the_stream);
  TEST(what_reads_behind_failed_work_fails);
  TEST(a_call_without_elements_passes_no_failure_on);
  TEST(a_copy_is_made_though_another_thread_is_told_of_the_failure);
  TEST(a_failure_is_told_beside_a_busy_stream);
  TEST(copies_that_wait_leave_scratch_to_others);
  TEST(many_copies_in_flight_name_the_one_that_failed);
  TEST(many_copies_in_flight_tell_of_a_failure_beside_a_busy_stream);
  TEST(contiguous_copies_wait_for_no_scratch);
  TEST(trims_beside_reductions_make_no_channels);
  return test_finish();
}
