/* HDF5 without memory: in processes whose n-th allocation fails, HDF5's too, while a dataset is
 * created, what is reported as written is in the file once that is closed; and a restart does not
 * take the newest checkpoint for damaged, also where memory was short earlier. Loaded with
 * failing_calls.c. */
#include "hdf5_files.h"

#include "gpufetch/checkpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

#define ROWS 50
#define COLUMNS 40
#define SECONDS_MAX 30
#define ALLOCATION 1 /* of failing_calls.c */

static void (*fail_from)(int kinds, long first, long count, int code, const char *path);
static long (*end_failing)(void);

static float values[ROWS * COLUMNS];

static gpuf_tensor tensor_of(float *data) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, cpu_device, GPUF_DTYPE_FLOAT32, 2,
                            (int64_t[]){ROWS, COLUMNS}, &err));
  return tensor;
}

/* What a child tells: which of its datasets were reported as written, and what its end was like. */
enum { FIRST = 1, SECOND = 2, THIRD = 4, CLOSED = 8, FAILED_NONE = 16 };

/* The process exits as a program does, so that HDF5 writes what it holds. */
static void write_three(long failing_call) {
  const gpuf_tensor src = tensor_of(values);
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.thread_count = 1;
  const hid_t file = H5Fcreate(file_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  int said = gpuf_h5_write(file, "first", &src, &options, &err) == GPUF_OK ? FIRST : 0;
  fail_from(ALLOCATION, failing_call, 1, ENOMEM, "");
  said |= gpuf_h5_write(file, "group/second", &src, &options, &err) == GPUF_OK ? SECOND : 0;
  said |= end_failing() == 0 ? FAILED_NONE : 0;
  said |= gpuf_h5_write(file, "third", &src, &options, &err) == GPUF_OK ? THIRD : 0;
  said |= H5Fclose(file) >= 0 ? CLOSED : 0;
  exit(said);
}

/* What the child has said; -1 where HDF5 ended it. */
static int run_child(long failing_call) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS_MAX);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (setjmp(test_exit) == 0) {
      write_three(failing_call);
    }
    _exit(255);
  }
  CHECK(child > 0 && waitpid(child, &outcome, 0) == child);
  CHECK(!WIFSIGNALED(outcome) || WTERMSIG(outcome) != SIGALRM);
  const bool has_said = WIFEXITED(outcome) && WEXITSTATUS(outcome) < 2 * FAILED_NONE;
  return has_said ? WEXITSTATUS(outcome) : -1;
}

static void check_what_was_written(hid_t file, const char *name) {
  static float found[ROWS * COLUMNS];
  const gpuf_tensor dst = tensor_of(found);
  memset(found, 0xff, sizeof(found));
  CHECK_OK(gpuf_h5_read(file, name, &dst, NULL, &err));
  const void *const bytes = found;
  CHECK(memcmp(bytes, values, sizeof(found)) == 0);
}

/* In a process of its own, which has not used HDF5 before its children are forked. */
static void check_file(int said) {
  int outcome;
  const pid_t child = fork();
  if (child == 0) {
    if (setjmp(test_exit) == 0) {
      const hid_t file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
      CHECK(file >= 0);
      static const char *const names[] = {"first", "group/second", "third"};
      for (int i = 0; i < 3; i++) {
        if (said & 1 << i) {
          check_what_was_written(file, names[i]);
        }
      }
      _exit(0);
    }
    fflush(stdout);
    _exit(1);
  }
  CHECK(child > 0 && waitpid(child, &outcome, 0) == child);
  CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
}

static void what_is_reported_as_written_is_in_the_closed_file(void) {
  int ended_count = 0, refused_count = 0, said = 0;
  for (long n = 1; !(said > 0 && said & FAILED_NONE); n++) {
    said = run_child(n);
    ended_count += said < 0;
    refused_count += said >= 0 && !(said & THIRD);
    if (said >= 0 && said & CLOSED) {
      check_file(said);
    }
    CHECK(said < 0 || (said & FIRST && n < 5000));
  }
  CHECK(said == (FIRST | SECOND | THIRD | CLOSED | FAILED_NONE));
  CHECK(refused_count > 0);
  printf("# %d times HDF5 ended the process, %d times the file took no more\n", ended_count,
         refused_count);
  CHECK(unlink(file_path) == 0);
}

/* --- Restarts ------------------------------------------------------------------ */

/* What a child tells of its restart, if HDF5 does not end it. */
enum { NEWEST, OTHER, REFUSED, NOT_FAILED };

static gpuf_checkpoint *open_checkpoints(void) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  gpuf_checkpoint *c = NULL;
  options.directory = ".";
  options.prefix = file_path;
  options.keep_count = 2;
  options.unsynced = true;
  CHECK_OK(gpuf_checkpoint_open(&options, &c, NULL, &err));
  return c;
}

static gpuf_status write_checkpoint(gpuf_checkpoint *c, int64_t step) {
  const gpuf_tensor src = tensor_of(values);
  gpuf_status status = gpuf_checkpoint_begin(c, step, NULL, &err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpuf_checkpoint_add(c, "u", &src, NULL, &err);
  if (status != GPUF_OK) {
    gpuf_checkpoint_abort(c, NULL);
    return status;
  }
  status = gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err);
  return status == GPUF_OK ? gpuf_checkpoint_wait(c, -1, NULL, &err) : status;
}

static void write_two_checkpoints(void) {
  gpuf_checkpoint *const c = open_checkpoints();
  CHECK_OK(write_checkpoint(c, 1));
  CHECK_OK(write_checkpoint(c, 2));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void remove_checkpoints(int64_t step_max) {
  char path[sizeof(file_path) + 32];
  for (int64_t step = 1; step <= step_max; step++) {
    snprintf(path, sizeof(path), "%s-%012lld.h5", file_path, (long long)step);
    unlink(path);
  }
  snprintf(path, sizeof(path), ".%s.lock", file_path);
  unlink(path);
}

/* The newest of them is `step_max`. */
static int restart(int64_t step_max, long failing_call) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  const gpuf_status status = gpuf_restart_open(".", file_path, -1, &r, &report, &err);
  const bool has_failed = end_failing() != 0;
  if (status == GPUF_OK && report.step == step_max && report.skipped_count == 0) {
    return has_failed ? NEWEST : NOT_FAILED;
  }
  if (status == GPUF_OK || status == GPUF_ERR_CORRUPT) {
    printf("# at allocation %ld: %s\n", failing_call, report.message);
    return OTHER;
  }
  return REFUSED;
}

static int restart_without_memory(long failing_call) {
  fail_from(ALLOCATION, failing_call, 1, ENOMEM, "");
  return restart(2, failing_call);
}

/* Memory is short during the second checkpoint. */
static int restart_after_lack_of_memory(long failing_call) {
  gpuf_checkpoint *const c = open_checkpoints();
  int64_t newest = 1;
  CHECK_OK(write_checkpoint(c, 1));
  fail_from(ALLOCATION, failing_call, 1, ENOMEM, "");
  newest = write_checkpoint(c, 2) == GPUF_OK ? 2 : newest;
  const bool has_failed = end_failing() != 0;
  newest = write_checkpoint(c, 3) == GPUF_OK ? 3 : newest;
  gpuf_checkpoint_close(c, NULL, NULL);
  const int said = restart(newest, failing_call);
  return said == NOT_FAILED && has_failed ? NEWEST : said;
}

/* What the child has said; -1 where HDF5 ended it. */
static int say_in_child(int (*restarted)(long failing_call), long failing_call) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    int said = OTHER;
    alarm(SECONDS_MAX);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (setjmp(test_exit) == 0) {
      said = restarted(failing_call);
    }
    fflush(stdout);
    _exit(said);
  }
  CHECK(child > 0 && waitpid(child, &outcome, 0) == child);
  CHECK(!WIFSIGNALED(outcome) || WTERMSIG(outcome) != SIGALRM);
  return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : -1;
}

static void a_restart_takes_no_whole_checkpoint_for_damaged(void) {
  int said = NEWEST, refused_count = 0;
  write_two_checkpoints();
  for (long n = 1; said != NOT_FAILED; n++) {
    said = say_in_child(restart_without_memory, n);
    CHECK(said != OTHER && n < 5000);
    refused_count += said == REFUSED;
  }
  CHECK(refused_count > 0);
  remove_checkpoints(2);
}

/* HDF5 1.10.8 may fail at every file from then on. */
static void after_a_lack_of_memory_whole_checkpoints_are_not_damaged(void) {
  int said = NEWEST, refused_count = 0, ended_count = 0;
  for (long n = 1; said != NOT_FAILED; n++) {
    said = say_in_child(restart_after_lack_of_memory, n);
    remove_checkpoints(3);
    CHECK(said != OTHER && n < 5000);
    refused_count += said == REFUSED;
    ended_count += said < 0;
  }
  printf("# %d restarts were refused, %d times HDF5 ended the process\n", refused_count,
         ended_count);
}

int main(void) {
  *(void **)&fail_from = dlsym(RTLD_DEFAULT, "failing_calls_set");
  *(void **)&end_failing = dlsym(RTLD_DEFAULT, "failing_calls_end");
  CHECK(fail_from && end_failing);
  snprintf(file_path, sizeof(file_path), "test_hdf5_memory_%ld.h5", (long)getpid());
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    values[i] = (float)(i * i);
  }
  TEST(a_restart_takes_no_whole_checkpoint_for_damaged);
  TEST(after_a_lack_of_memory_whole_checkpoints_are_not_damaged);
  TEST(what_is_reported_as_written_is_in_the_closed_file);
  return test_finish();
}
