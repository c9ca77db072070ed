/* Forks while other threads are in HDF5: the child may read and write, or gets an error at once. */
#include "hdf5_files.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "core/workers.h"
#include "hdf5/failures.h"
#include "hdf5/section.h"

#define ROWS 64
#define COLUMNS 100
#define CHILD_SECONDS_MAX 20

static float values[ROWS * COLUMNS];
static hid_t file; /* of the thread that writes */
static hid_t other;
static char other_path[64];

static gpuf_tensor tensor_of(float *data, int64_t rows, int64_t columns) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, cpu_device, GPUF_DTYPE_FLOAT32, 2,
                            (int64_t[]){rows, columns}, &err));
  return tensor;
}

static void open_files(void) {
  const gpuf_tensor src = tensor_of(values, ROWS, COLUMNS);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    values[i] = (float)i;
  }
  file = create_file();
  snprintf(other_path, sizeof(other_path), "test_hdf5_other_%ld.h5", (long)getpid());
  other = H5Fcreate(other_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(other >= 0);
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
  CHECK_OK(gpuf_h5_write(other, "x", &src, NULL, &err));
}

static void close_files(void) {
  CHECK(H5Fclose(other) >= 0 && unlink(other_path) == 0);
  CHECK(H5Fclose(file) >= 0 && unlink(file_path) == 0);
}

/* The status of a read, in the child. SIGALRM ends it where it waits for ever. */
static gpuf_status read_in_child(void) {
  static float found[ROWS * COLUMNS];
  const gpuf_tensor dst = tensor_of(found, ROWS, COLUMNS);
  const void *const bytes = found;
  signal(SIGALRM, SIG_DFL);
  alarm(CHILD_SECONDS_MAX);
  const gpuf_status status = gpuf_h5_read(other, "x", &dst, NULL, &err);
  return status == GPUF_OK && memcmp(bytes, values, sizeof(found)) != 0 ? GPUF_ERR_CORRUPT : status;
}

/* Without HDF5's own end of the process, which would write the parent's files. */
static int status_of(pid_t child) {
  int ended;
  CHECK(child > 0 && waitpid(child, &ended, 0) == child);
  CHECK(WIFEXITED(ended)); /* else it hung */
  return WEXITSTATUS(ended);
}

static int fork_and_read(void) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    _exit((int)read_in_child());
  }
  return status_of(child);
}

/* --- Threads that read and write ------------------------------------------------------ */

static atomic_bool stops;
static atomic_int write_count;
static pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;

static void take(void *arg) {
  pthread_mutex_lock(arg);
}
static void give_back(void *arg) {
  pthread_mutex_unlock(arg);
}

/* Parts of chunks, which HDF5 writes itself. */
static void *keep_writing(void *arg) {
  const int64_t start[] = {3, 5};
  gpuf_error error = {0};
  gpuf_tensor src = tensor_of(values, 40, 60);
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  gpuf_status status = dataset >= 0 ? GPUF_OK : GPUF_ERR_HDF5;
  while (status == GPUF_OK && !atomic_load(&stops)) {
    status = gpuf_h5_write_region(dataset, start, &src, arg, &error);
    atomic_fetch_add(&write_count, 1);
  }
  H5Dclose(dataset);
  return (void *)(intptr_t)status;
}

/* The program's lock is one that it takes at forks, after the library's handlers or before. */
static void hold_program_lock(void) {
  pthread_mutex_lock(&program_lock);
}
static void release_program_lock(void) {
  pthread_mutex_unlock(&program_lock);
}

static void fork_beside_a_writer(const gpuf_h5_options *options) {
  pthread_t writer;
  void *status;
  hbool_t is_safe = false;
  CHECK(H5is_library_threadsafe(&is_safe) >= 0);
  if (!is_safe) {
    SKIP("libhdf5 is not thread-safe");
  }
  stops = false;
  open_files();
  CHECK(pthread_create(&writer, NULL, keep_writing, (void *)(uintptr_t)options) == 0);
  for (int i = 0; i < 30; i++) {
    const int before = write_count;
    const int64_t end_ns = gpufi_clock_ns() + CHILD_SECONDS_MAX * (int64_t)GPUFI_NS_PER_S;
    while (write_count == before && gpufi_clock_ns() < end_ns) {
      sched_yield(); /* the writer goes on after the fork before */
    }
    CHECK(write_count != before);
    CHECK(fork_and_read() == GPUF_OK);
  }
  stops = true;
  CHECK(pthread_join(writer, &status) == 0 && status == NULL);
  close_files();
}

static void a_child_reads_though_a_thread_of_its_parent_wrote(void) {
  fork_beside_a_writer(NULL);
}

static void a_lock_that_the_program_takes_at_forks_is_not_waited_for(void) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.lock = take;
  options.unlock = give_back;
  options.lock_arg = &program_lock;
  fork_beside_a_writer(&options);
}

/* --- Threads that stay in HDF5 -------------------------------------------------------- */

static atomic_bool is_in, may_leave;

static void *stay_in_hdf5(void *arg) {
  while (!gpufi_h5_section_begin()) {
    gpufi_h5_sections_wait();
  }
  is_in = true;
  while (!may_leave) {
    sched_yield();
  }
  gpufi_h5_section_end();
  return NULL;
}

/* As one that waits for HDF5's lock, which the thread that forks has in a callback of HDF5's. The
 * child's own child cannot use HDF5 either. */
static void a_child_forked_beside_a_thread_that_stays_gets_an_error_at_once(void) {
  pthread_t thread;
  open_files();
  CHECK(pthread_create(&thread, NULL, stay_in_hdf5, NULL) == 0);
  while (!is_in) {
    sched_yield();
  }
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_refused = read_in_child() == GPUF_ERR_STATE && strstr(err.message, "spawn");
    _exit(is_refused ? fork_and_read() : 99);
  }
  CHECK(status_of(child) == GPUF_ERR_STATE);
  may_leave = true;
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(fork_and_read() == GPUF_OK);
  close_files();
}

static void do_nothing(void *arg) {}

/* Longer than a fork waits for threads in HDF5. The thread takes mutexes of the library's while it
 * has the program's lock, for which the fork waits. */
static void *stay_with_the_programs_lock(void *unused) {
  const int64_t end_ns = gpufi_clock_ns() + 4 * GPUFI_NS_PER_S;
  gpufi_h5_file none = {NULL, 0};
  pthread_mutex_lock(&program_lock);
  CHECK(gpufi_h5_section_begin());
  is_in = true;
  while (gpufi_clock_ns() < end_ns) {
    gpufi_workers workers = {0};
    gpufi_h5_failure_find(&none);
    if (gpufi_workers_start(&workers, 1, do_nothing, NULL) == 1) {
      gpufi_workers_wait(&workers);
    }
  }
  gpufi_h5_section_end();
  pthread_mutex_unlock(&program_lock);
  return NULL;
}

static void a_thread_that_stays_with_the_programs_lock_is_waited_for(void) {
  pthread_t thread;
  open_files();
  is_in = false;
  CHECK(pthread_create(&thread, NULL, stay_with_the_programs_lock, NULL) == 0);
  while (!is_in) {
    sched_yield();
  }
  CHECK(fork_and_read() == GPUF_OK);
  CHECK(pthread_join(thread, NULL) == 0);
  close_files();
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  pthread_atfork(hold_program_lock, release_program_lock, release_program_lock);
  TEST(a_child_reads_though_a_thread_of_its_parent_wrote);
  TEST(a_lock_that_the_program_takes_at_forks_is_not_waited_for);
  TEST(a_child_forked_beside_a_thread_that_stays_gets_an_error_at_once);
  TEST(a_thread_that_stays_with_the_programs_lock_is_waited_for);
  return test_finish();
}
