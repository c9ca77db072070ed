/* The fake GPU must fail where a real one would, or the tests that run on it prove nothing. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/host/host.h"
#include "devices.h"

static gpuf_error err;

/* A kernel that holds its stream up until the gate opens, then fills device memory. */
static sem_t gate;

static void gated_fill_kernel(const void *args) {
  void *d_ptr;
  memcpy(&d_ptr, args, sizeof(d_ptr));
  sem_wait(&gate);
  memset(gpuf_host_pointer(d_ptr), 0x42, 4096);
}

static void launch_gated_fill(gpuf_stream stream, void *d_ptr) {
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, stream, gated_fill_kernel, &d_ptr, sizeof(d_ptr), &err));
}

/* Waits for an event are for its latest recording then, whichever stream ends first. */
static void a_copy_waits_for_its_own_producer_though_another_ends_first(void) {
  const int64_t shape[1] = {4096};
  unsigned char got[4096];
  gpuf_stream producers[2], streams[2];
  gpuf_tensor from[2], to[2], result;
  for (int i = 0; i < 2; i++) {
    CHECK_OK(gpuf_stream_create(host_device, &producers[i], &err));
    CHECK_OK(gpuf_stream_create(host_device, &streams[i], &err));
    CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_UINT8, 1, shape, &from[i], &err));
    CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_UINT8, 1, shape, &to[i], &err));
    from[i].stream = producers[i];
  }
  launch_gated_fill(producers[0], from[0].data);
  CHECK_OK(gpuf_tensor_copy(&to[0], &from[0], streams[0], &err));
  CHECK_OK(gpuf_tensor_copy(&to[1], &from[1], streams[1], &err));
  CHECK_OK(gpuf_stream_synchronize(host_device, streams[1], &err));
  usleep(20000);
  sem_post(&gate);
  CHECK_OK(gpuf_stream_synchronize(host_device, streams[0], &err));
  CHECK_OK(gpuf_tensor_init(&result, got, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(&result, &to[0], NULL, &err));
  CHECK(got[0] == 0x42 && got[sizeof(got) - 1] == 0x42);
  for (int i = 0; i < 2; i++) {
    CHECK_OK(gpuf_tensor_free(&from[i], &err));
    CHECK_OK(gpuf_tensor_free(&to[i], &err));
    CHECK_OK(gpuf_stream_destroy(host_device, producers[i], &err));
    CHECK_OK(gpuf_stream_destroy(host_device, streams[i], &err));
  }
}

static void read_in_child(const volatile char *ptr) {
  signal(SIGSEGV, SIG_DFL);
  signal(SIGBUS, SIG_DFL);
  _exit(*ptr == 1);
}

static void a_host_read_of_a_device_pointer_faults(void) {
  void *d_ptr;
  int outcome;
  CHECK_OK(gpuf_alloc(host_device, 8192, &d_ptr, &err));
  const pid_t child = fork();
  if (child == 0) {
    read_in_child(d_ptr);
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  CHECK(WIFSIGNALED(outcome) && WTERMSIG(outcome) == SIGSEGV);
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
}

static int use_device_without_stdout(void) {
  unsigned char got[64];
  const int64_t shape[1] = {sizeof(got)};
  gpuf_tensor d_tensor, tensor;
  close(STDOUT_FILENO);
  if (gpuf_tensor_alloc(host_device, GPUF_DTYPE_UINT8, 1, shape, &d_tensor, &err) != GPUF_OK ||
      gpuf_tensor_init(&tensor, got, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err) != GPUF_OK) {
    return 2;
  }
  const ssize_t written = write(STDOUT_FILENO, "printed", 7);
  return gpuf_copy(&tensor, &d_tensor, NULL, &err) == GPUF_OK && written < 0 &&
                 got[0] == GPUFI_HOST_POISON
             ? 0
             : 1;
}

/* Device memory is a file: its descriptor must not become the program's standard output. */
static void what_is_printed_to_a_closed_stdout_stays_out_of_device_memory(void) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    _exit(use_device_without_stdout());
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
}

typedef struct fixture {
  gpuf_stream producer, consumer;
  void *d_ptr;
  unsigned char *pinned;
} fixture;

static fixture fixture_create(void) {
  fixture f;
  void *pinned;
  CHECK_OK(gpuf_alloc(host_device, 4096, &f.d_ptr, &err));
  CHECK_OK(gpuf_pool_acquire(host_device, 4096, &pinned, &err));
  f.pinned = memset(pinned, 0x11, 4096);
  CHECK_OK(gpuf_stream_create(host_device, &f.producer, &err));
  CHECK_OK(gpuf_stream_create(host_device, &f.consumer, &err));
  return f;
}

static void fixture_destroy(fixture *f) {
  CHECK_OK(gpuf_stream_destroy(host_device, f->producer, &err));
  CHECK_OK(gpuf_stream_destroy(host_device, f->consumer, &err));
  gpuf_pool_release(f->pinned, NULL);
  CHECK_OK(gpuf_free(host_device, f->d_ptr, &err));
}

/* What a caller sees who forgets to wait: the destination as it was before. */
static void a_missing_wait_shows_the_old_bytes(void) {
  fixture f = fixture_create();
  launch_gated_fill(f.producer, f.d_ptr);
  CHECK_OK(gpufi_backend_host.copy(0, f.pinned, f.d_ptr, 4096, GPUFI_TO_HOST, f.producer, &err));
  const unsigned char early = f.pinned[4095];
  sem_post(&gate);
  CHECK_OK(gpuf_stream_synchronize(host_device, f.producer, &err));
  CHECK(early == 0x11);
  CHECK(f.pinned[4095] == 0x42);
  fixture_destroy(&f);
}

/* A stream that does not wait for the producer's reads what was there before it wrote. */
static void a_missing_stream_wait_shows_poison(void) {
  fixture f = fixture_create();
  gpufi_event *written;
  CHECK_OK(gpufi_backend_host.event_create(0, &written, &err));
  launch_gated_fill(f.producer, f.d_ptr);
  CHECK_OK(gpufi_backend_host.event_record(0, written, f.producer, &err));
  CHECK_OK(gpufi_backend_host.copy(0, f.pinned, f.d_ptr, 4096, GPUFI_TO_HOST, f.consumer, &err));
  CHECK_OK(gpuf_stream_synchronize(host_device, f.consumer, &err));
  CHECK(f.pinned[0] == GPUFI_HOST_POISON && f.pinned[4095] == GPUFI_HOST_POISON);

  CHECK_OK(gpufi_backend_host.stream_wait_event(0, f.consumer, written, true, &err));
  CHECK_OK(gpufi_backend_host.copy(0, f.pinned, f.d_ptr, 4096, GPUFI_TO_HOST, f.consumer, &err));
  sem_post(&gate);
  CHECK_OK(gpuf_stream_synchronize(host_device, f.consumer, &err));
  CHECK(f.pinned[0] == 0x42 && f.pinned[4095] == 0x42);
  gpufi_backend_host.event_destroy(0, written);
  fixture_destroy(&f);
}

static void work_on_freed_memory_fails_the_stream(void) {
  gpuf_stream stream;
  void *d_ptr, *pinned;
  CHECK_OK(gpuf_alloc(host_device, 4096, &d_ptr, &err));
  CHECK_OK(gpuf_pool_acquire(host_device, 4096, &pinned, &err));
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
  CHECK_OK(gpufi_backend_host.copy(0, pinned, d_ptr, 4096, GPUFI_TO_HOST, stream, &err));
  CHECK_FAILS(gpuf_stream_synchronize(host_device, stream, &err), GPUF_ERR_DEVICE,
              "not inside a live allocation");
  CHECK_OK(gpuf_stream_synchronize(host_device, stream, &err));
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
  gpuf_pool_release(pinned, NULL);
}

typedef struct launcher {
  gpuf_stream stream;
  atomic_bool is_ended;
} launcher;

static void short_kernel(const void *args) {
  (void)args;
  usleep(1000);
}

/* Keep the stream at work. */
static void *launch_always(void *arg) {
  launcher *const l = arg;
  while (!atomic_load(&l->is_ended)) {
    for (int i = 0; i < 3; i++) {
      if (gpuf_host_launch(host_device, l->stream, short_kernel, NULL, 0, NULL) != GPUF_OK) {
        return arg;
      }
    }
    usleep(1000);
  }
  return NULL;
}

static void synchronize_waits_for_no_later_work(void) {
  launcher l = {.is_ended = false};
  pthread_t thread;
  void *failed, *d_ptr;
  CHECK_OK(gpuf_alloc(host_device, 64, &d_ptr, &err));
  CHECK_OK(gpuf_stream_create(host_device, &l.stream, &err));
  CHECK(pthread_create(&thread, NULL, launch_always, &l) == 0);
  usleep(10000);
  alarm(60);
  for (int i = 0; i < 3; i++) {
    CHECK_OK(gpuf_stream_synchronize(host_device, l.stream, &err));
  }
  CHECK_OK(gpuf_free(host_device, d_ptr, &err)); /* waits for all streams */
  alarm(0);
  atomic_store(&l.is_ended, true);
  CHECK(pthread_join(thread, &failed) == 0 && !failed);
  CHECK_OK(gpuf_stream_destroy(host_device, l.stream, &err));
}

static void *free_memory(void *d_ptr) {
  return gpuf_free(host_device, d_ptr, NULL) == GPUF_OK ? NULL : d_ptr;
}

static void open_gate_kernel(const void *args) {
  (void)args;
  sem_post(&gate);
}

/* A free waits for a kernel that ends by another stream's. */
static void others_enqueue_while_a_free_waits(void) {
  fixture f = fixture_create();
  pthread_t thread;
  void *failed, *d_ptr;
  CHECK_OK(gpuf_alloc(host_device, 64, &d_ptr, &err));
  launch_gated_fill(f.producer, f.d_ptr);
  CHECK(pthread_create(&thread, NULL, free_memory, d_ptr) == 0);
  usleep(10000);
  alarm(60);
  CHECK_OK(gpuf_host_launch(host_device, f.consumer, open_gate_kernel, NULL, 0, &err));
  CHECK(pthread_join(thread, &failed) == 0 && !failed);
  alarm(0);
  fixture_destroy(&f);
}

/* Ends its stream by hand, or by its own end. */
static void *end_stream(void *arg) {
  void *const d_ptr = *(void **)arg;
  gpuf_stream *const own = (gpuf_stream *)arg + 1;
  gpuf_error failure;
  if (*own != GPUF_STREAM_NONE) {
    return gpuf_stream_destroy(host_device, *own, &failure) == GPUF_OK ? NULL : arg;
  }
  return gpuf_host_launch(host_device, GPUF_STREAM_PER_THREAD, gated_fill_kernel, &d_ptr,
                          sizeof(d_ptr), &failure) == GPUF_OK
             ? NULL
             : arg;
}

/* The kernel of a stream that is being destroyed, or whose thread has ended, still works on the
 * memory. */
static void a_free_waits_for_streams_that_are_ending(void) {
  for (int by_hand = 0; by_hand < 2; by_hand++) {
    struct {
      void *d_ptr;
      gpuf_stream stream;
    } work = {NULL, GPUF_STREAM_NONE};
    pthread_t ending, freeing;
    void *failed;
    CHECK_OK(gpuf_alloc(host_device, 4096, &work.d_ptr, &err));
    CHECK(sem_init(&gate, 0, 0) == 0);
    if (by_hand) {
      CHECK_OK(gpuf_stream_create(host_device, &work.stream, &err));
      launch_gated_fill(work.stream, work.d_ptr);
    }
    CHECK(pthread_create(&ending, NULL, end_stream, &work) == 0);
    usleep(20000);
    CHECK(pthread_create(&freeing, NULL, free_memory, work.d_ptr) == 0);
    usleep(20000);
    sem_post(&gate);
    CHECK(pthread_join(ending, &failed) == 0 && !failed);
    CHECK(pthread_join(freeing, &failed) == 0 && !failed);
  }
}

/* Nobody else would be told. */
static void the_end_of_a_stream_tells_of_its_failure(void) {
  fixture f = fixture_create();
  gpuf_stream stream;
  const int64_t count = 64;
  gpuf_tensor from, to;
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_UINT8, 1, &count, &from, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_UINT8, 1, &count, &to, &err));
  const gpuf_tensor freed = from;
  CHECK_OK(gpuf_tensor_free(&from, &err));
  CHECK_OK(gpuf_tensor_copy(&to, &freed, stream, &err));
  CHECK(gpuf_stream_destroy(host_device, stream, &err) == GPUF_ERR_DEVICE);
  CHECK(gpuf_stream_destroy(host_device, stream, &err) == GPUF_ERR_INVALID);
  CHECK_OK(gpuf_tensor_free(&to, &err));
  fixture_destroy(&f);
}

static void use_the_threads_stream_without_keys(void) {
  pthread_key_t key, first;
  void *d_ptr;
  CHECK(pthread_key_create(&first, NULL) == 0);
  CHECK(pthread_setspecific(first, &err) == 0);
  while (pthread_key_create(&key, NULL) == 0) {
  }
  CHECK_OK(gpuf_alloc(host_device, 64, &d_ptr, &err));
  CHECK(gpuf_stream_synchronize(host_device, GPUF_STREAM_PER_THREAD, &err) == GPUF_ERR_NO_MEMORY &&
        strstr(err.message, "pthread key"));
  CHECK(pthread_getspecific(first) == &err);
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
}

static void a_process_without_pthread_keys_has_no_streams_of_threads(void) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    use_the_threads_stream_without_keys();
    _exit(0);
  }
  CHECK(child > 0 && waitpid(child, &outcome, 0) == child && outcome == 0);
}

static void device_memory_is_out_of_reach_outside_a_kernel(void) {
  void *d_ptr;
  CHECK_OK(gpuf_alloc(host_device, 64, &d_ptr, &err));
  CHECK(gpuf_host_pointer(d_ptr) == NULL);
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
}

static void a_stale_or_foreign_stream_is_refused(void) {
  gpuf_stream stream;
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_FAILS(gpuf_stream_synchronize((gpuf_device){GPUF_DEVICE_HOST, 1}, stream, &err),
              GPUF_ERR_INVALID, "not a live stream of host:1");
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
  CHECK_FAILS(gpuf_stream_synchronize(host_device, stream, &err), GPUF_ERR_INVALID,
              "not a live stream");
}

static void a_default_stream_is_not_destroyed(void) {
  CHECK_FAILS(gpuf_stream_destroy(host_device, GPUF_STREAM_LEGACY, &err), GPUF_ERR_INVALID,
              "GPUF_STREAM_LEGACY is a default stream");
  CHECK_FAILS(gpuf_stream_destroy(host_device, GPUF_STREAM_PER_THREAD, &err), GPUF_ERR_INVALID,
              "GPUF_STREAM_PER_THREAD is a default stream");
  CHECK_OK(gpuf_stream_destroy(host_device, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_stream_synchronize(host_device, GPUF_STREAM_LEGACY, &err));
}

static void a_device_that_is_not_there_is_refused(void) {
  void *d_ptr;
  const gpuf_device absent = {GPUF_DEVICE_HOST, GPUFI_HOST_DEVICE_COUNT};
  CHECK_FAILS(gpuf_alloc(absent, 1, &d_ptr, &err), GPUF_ERR_NO_DEVICE, "host:2");
  CHECK_FAILS(gpuf_alloc(cpu_device, 1, &d_ptr, &err), GPUF_ERR_INVALID, "has no devices");
}

static void more_memory_than_there_is_is_refused(void) {
  void *d_ptr;
  CHECK_FAILS(gpuf_alloc(host_device, (size_t)1 << 50, &d_ptr, &err), GPUF_ERR_NO_DEVICE_MEMORY,
              "host:0 has no memory");
}

static void too_many_kernel_arguments_are_refused(void) {
  static const char args[2048];
  CHECK_FAILS(gpuf_host_launch(host_device, GPUF_STREAM_LEGACY, gated_fill_kernel, args,
                               sizeof(args), &err),
              GPUF_ERR_INVALID, "2048 bytes of kernel arguments");
}

static void a_forked_child_is_refused_and_does_not_hang(void) {
  void *d_ptr;
  int outcome;
  CHECK_OK(gpuf_alloc(host_device, 64, &d_ptr, &err));
  const pid_t child = fork();
  if (child == 0) {
    const gpuf_status status = gpuf_free(host_device, d_ptr, &err);
    gpuf_pool_trim(0);
    _exit(status == GPUF_ERR_STATE && strstr(err.message, "spawn") ? 0 : 1);
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
}

static void a_pointer_tells_its_device(void) {
  const gpuf_device second = {GPUF_DEVICE_HOST, 1};
  gpuf_device found = {GPUF_DEVICE_CPU, -1};
  void *d_ptr;
  int on_the_stack;
  CHECK_OK(gpuf_alloc(second, 100, &d_ptr, &err));
  CHECK_OK(gpuf_device_of((char *)d_ptr + 99, &found, &err));
  CHECK(found.kind == GPUF_DEVICE_HOST && found.index == 1);
  CHECK_FAILS(gpuf_device_of((char *)d_ptr - 1, &found, &err), GPUF_ERR_INVALID, "no device");
  CHECK_OK(gpuf_free(second, d_ptr, &err));
  CHECK_FAILS(gpuf_device_of(d_ptr, &found, &err), GPUF_ERR_INVALID, "no device");
  CHECK_FAILS(gpuf_device_of(&on_the_stack, &found, &err), GPUF_ERR_INVALID, "no device");
}

static void a_pointer_tells_its_gpu(void) {
  int32_t count;
  CHECK_OK(gpuf_device_count(GPUF_DEVICE_CUDA, &count, &err));
  for (int32_t i = 0; i < count; i++) {
    const gpuf_device device = {GPUF_DEVICE_CUDA, i};
    gpuf_device found = {GPUF_DEVICE_CPU, -1};
    void *d_ptr;
    CHECK_OK(gpuf_alloc(device, 100, &d_ptr, &err));
    CHECK_OK(gpuf_device_of((char *)d_ptr + 50, &found, &err));
    CHECK(found.kind == GPUF_DEVICE_CUDA && found.index == i);
    CHECK_OK(gpuf_free(device, d_ptr, &err));
  }
}

static void memory_is_freed_by_its_own_device_alone(void) {
  const gpuf_device second = {GPUF_DEVICE_HOST, 1};
  void *d_ptr;
  CHECK_OK(gpuf_alloc(host_device, 1 << 20, &d_ptr, &err));
  CHECK_FAILS(gpuf_free(second, d_ptr, &err), GPUF_ERR_INVALID, "is memory of host:0, not of");
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
  CHECK_FAILS(gpuf_free(host_device, d_ptr, &err), GPUF_ERR_INVALID, "not the start of a live");
}

/* What a kernel tries, and what it gets. */
typedef struct attempt {
  gpuf_stream stream;
  void *d_ptr;
  gpuf_future *future;
  gpuf_status statuses[7];
  gpuf_error errors[7];
} attempt;

static void waiting_kernel(const void *args) {
  attempt *const a = *(attempt *const *)args;
  gpuf_stats stats = GPUF_STATS_INIT;
  gpuf_tensor t, result;
  gpuf_device device;
  const int64_t shape[1] = {8};
  float values[8];
  gpuf_tensor_init(&t, a->d_ptr, host_device, GPUF_DTYPE_FLOAT32, 1, shape, NULL);
  gpuf_tensor_init(&result, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, NULL);
  t.stream = a->stream;
  a->statuses[0] = gpuf_stream_synchronize(host_device, a->stream, &a->errors[0]);
  a->statuses[1] = gpuf_stream_destroy(host_device, a->stream, &a->errors[1]);
  a->statuses[2] = gpuf_free(host_device, a->d_ptr, &a->errors[2]);
  a->statuses[3] = gpuf_copy(&result, &t, NULL, &a->errors[3]);
  a->statuses[4] = gpuf_reduce_stats(&t, &stats, &a->errors[4]);
  a->statuses[5] = gpuf_future_wait(a->future, -1, &a->errors[5]);
  a->statuses[6] = gpuf_device_of(a->d_ptr, &device, &a->errors[6]);
  gpuf_future_destroy(a->future);
  gpuf_device_trim();
}

static void a_kernel_that_would_wait_for_itself_is_refused(void) {
  const int64_t shape[1] = {8};
  float values[8];
  gpuf_tensor t, result;
  attempt tried = {0}, *const args = &tried;
  CHECK_OK(gpuf_stream_create(host_device, &tried.stream, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, shape, &t, &err));
  CHECK_OK(gpuf_tensor_init(&result, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  tried.d_ptr = t.data;
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_host_launch(host_device, tried.stream, gated_fill_kernel, &t.data, sizeof(t.data),
                            &err));
  CHECK_OK(gpuf_host_launch(host_device, tried.stream, waiting_kernel, &args, sizeof(args), &err));
  t.stream = tried.stream; /* the copy comes after the kernel that waits for it */
  CHECK_OK(gpuf_copy_async(&result, &t, NULL, &tried.future, &err));
  sem_post(&gate);
  alarm(60);
  CHECK_OK(gpuf_stream_synchronize(host_device, tried.stream, &err));
  CHECK_OK(gpuf_future_wait(tried.future, -1, &err));
  alarm(0);
  for (int i = 0; i < 7; i++) {
    CHECK(tried.statuses[i] == GPUF_ERR_STATE && strstr(tried.errors[i].message, "kernel"));
  }
  gpuf_future_destroy(tried.future);
  CHECK_OK(gpuf_stream_destroy(host_device, tried.stream, &err));
  CHECK_OK(gpuf_tensor_free(&t, &err));
}

static int alloc_beyond_the_limit(bool ignores_signal) {
  const struct rlimit limit = {1 << 20, 1 << 20};
  void *d_first, *d_second;
  signal(SIGXFSZ, ignores_signal ? SIG_IGN : SIG_DFL);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
      gpuf_alloc(host_device, 4096, &d_first, &err) != GPUF_OK ||
      gpuf_alloc(host_device, 4 << 20, &d_second, &err) != GPUF_ERR_NO_DEVICE_MEMORY ||
      !strstr(err.message, "RLIMIT_FSIZE") || err.native_code != EFBIG) {
    return 1;
  }
  return gpuf_alloc(host_device, 4096, &d_second, &err) != GPUF_OK ||
         gpuf_free(host_device, d_second, &err) != GPUF_OK ||
         gpuf_free(host_device, d_first, &err) != GPUF_OK;
}

static void a_limit_on_the_size_of_files_is_an_error_that_names_it(void) {
  for (int ignores = 0; ignores < 2; ignores++) {
    int outcome;
    const pid_t child = fork();
    if (child == 0) {
      _exit(alloc_beyond_the_limit(ignores));
    }
    CHECK(waitpid(child, &outcome, 0) == child);
    CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
  }
}

int main(void) {
  TEST(what_is_printed_to_a_closed_stdout_stays_out_of_device_memory); /* before any device is used
                                                                        */
  TEST(a_limit_on_the_size_of_files_is_an_error_that_names_it);        /* likewise */
  TEST(a_process_without_pthread_keys_has_no_streams_of_threads);      /* likewise */
  TEST(a_host_read_of_a_device_pointer_faults);
  TEST(a_missing_wait_shows_the_old_bytes);
  TEST(a_missing_stream_wait_shows_poison);
  TEST(work_on_freed_memory_fails_the_stream);
  TEST(synchronize_waits_for_no_later_work);
  TEST(others_enqueue_while_a_free_waits);
  TEST(a_free_waits_for_streams_that_are_ending);
  TEST(the_end_of_a_stream_tells_of_its_failure);
  TEST(device_memory_is_out_of_reach_outside_a_kernel);
  TEST(a_stale_or_foreign_stream_is_refused);
  TEST(a_default_stream_is_not_destroyed);
  TEST(a_device_that_is_not_there_is_refused);
  TEST(a_pointer_tells_its_device);
  test_run("a_pointer_tells_its_gpu", gpu_is_there() ? a_pointer_tells_its_gpu : skip_for_no_gpu);
  TEST(more_memory_than_there_is_is_refused);
  TEST(too_many_kernel_arguments_are_refused);
  TEST(memory_is_freed_by_its_own_device_alone);
  TEST(a_kernel_that_would_wait_for_itself_is_refused);
  TEST(a_copy_waits_for_its_own_producer_though_another_ends_first);
  TEST(a_forked_child_is_refused_and_does_not_hang);
  return test_finish();
}
