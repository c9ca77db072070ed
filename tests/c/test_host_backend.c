/* The fake GPU must fail where a real one would, or the tests that run on it prove nothing. */
#include <semaphore.h>
#include <signal.h>
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
  gpuf_pool_release(f->pinned);
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

  CHECK_OK(gpufi_backend_host.stream_wait_event(0, f.consumer, written, &err));
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
  gpuf_pool_release(pinned);
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

int main(void) {
  TEST(what_is_printed_to_a_closed_stdout_stays_out_of_device_memory); /* before any device is used
                                                                        */
  TEST(a_host_read_of_a_device_pointer_faults);
  TEST(a_missing_wait_shows_the_old_bytes);
  TEST(a_missing_stream_wait_shows_poison);
  TEST(work_on_freed_memory_fails_the_stream);
  TEST(device_memory_is_out_of_reach_outside_a_kernel);
  TEST(a_stale_or_foreign_stream_is_refused);
  TEST(a_device_that_is_not_there_is_refused);
  TEST(a_pointer_tells_its_device);
  test_run("a_pointer_tells_its_gpu", gpu_is_there() ? a_pointer_tells_its_gpu : skip_for_no_gpu);
  TEST(more_memory_than_there_is_is_refused);
  TEST(too_many_kernel_arguments_are_refused);
  TEST(a_forked_child_is_refused_and_does_not_hang);
  return test_finish();
}
