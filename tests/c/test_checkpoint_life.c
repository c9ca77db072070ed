/* The life of a checkpoint: names, which files stay, who may write, and what is refused; ends of
 * the process. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "checkpoint_steps.h"

static bool has_file(const char *name) {
  return access(path_in_folder(name), F_OK) == 0;
}

/* --- Files ------------------------------------------------------------------- */

static void the_newest_are_kept(void) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 2;
  gpuf_checkpoint *c = open_writer(&options);
  for (int64_t step = 10; step <= 40; step += 10) {
    write_step(c, step);
  }
  CHECK(count_files(".h5", false) == 2);
  CHECK(has_file("run-000000000030.h5") && has_file("run-000000000040.h5"));
  /* A run that began again at an earlier step keeps its own, and touches no later one. */
  write_step(c, 5);
  CHECK(has_file("run-000000000005.h5") && has_file("run-000000000040.h5"));
  write_step(c, 1234567890123456);
  CHECK(has_file("run-1234567890123456.h5"));
  CHECK(count_files(".h5", false) == 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  check_newest("run", 1234567890123456);
  remove_folder();
}

static void other_prefixes_are_left_alone(void) {
  gpuf_restart *none = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("a");
  options.keep_count = 1;
  gpuf_checkpoint_options other_options = options_in_folder("a-1");
  other_options.keep_count = 1;
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_checkpoint *const other = open_writer(&other_options);
  write_step(c, 1);
  write_step(other, 2);
  write_step(c, 3);
  write_step(other, 4);
  CHECK(has_file("a-000000000003.h5") && has_file("a-1-000000000004.h5"));
  CHECK(count_files(".h5", false) == 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK_OK(gpuf_checkpoint_close(other, NULL, &err));
  CHECK(symlink("nowhere", path_in_folder("b-5.h5")) == 0); /* too few digits: none of ours */
  CHECK_OK(gpuf_restart_open(folder, "b", -1, &none, &report, &err));
  CHECK(!none && report.step == -1 && report.skipped_count == 0);
  remove_folder();
}

static void a_step_that_exists_is_refused_or_replaced(void) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *c = open_writer(&options);
  write_step(c, 1);
  CHECK_FAILS(gpuf_checkpoint_begin(c, 1, NULL, &err), GPUF_ERR_INVALID, "options.replace");
  CHECK_FAILS(gpuf_checkpoint_begin(c, -1, NULL, &err), GPUF_ERR_INVALID, "negative");
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  options.replace = true;
  c = open_writer(&options);
  gpuf_tensor u = state_of(99);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart *const r = open_restart("run", 1);
  check_restarted(r, "u", &u);
  gpuf_restart_close(r);
  destroy(&u);
  CHECK(count_files(".h5", false) == 1);
  remove_folder();
}

static void what_is_no_file_is_not_replaced(void) {
  make_folder();
  struct stat found;
  gpuf_checkpoint_options options = options_in_folder("run");
  options.replace = true;
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK(mkfifo(path_in_folder("run-000000000001.h5"), 0600) == 0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, NULL, &err), GPUF_ERR_INVALID, "no regular file");
  CHECK(gpuf_checkpoint_close(c, NULL, &err) == GPUF_ERR_INVALID);
  CHECK(stat(path_in_folder("run-000000000001.h5"), &found) == 0 && S_ISFIFO(found.st_mode));
  CHECK(count_files(".tmp", false) == 0);
  CHECK(unlink(path_in_folder("run-000000000001.h5")) == 0);
  remove_folder();
}

/* Somebody else makes the file while ours is being written: theirs stays. */
static void a_file_that_appears_is_not_overwritten(void) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  const int fd = open(path_in_folder("run-000000000001.h5"), O_CREAT | O_WRONLY, 0666);
  CHECK(fd >= 0 && write(fd, "theirs", 6) == 6);
  close(fd);
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_IO, "run-000000000001.h5");
  CHECK(report.status == GPUF_ERR_IO && report.system_error == EEXIST);
  CHECK(strstr(report.path, "/run-000000000001.h5") && strstr(report.message, "File exists"));
  CHECK(gpuf_checkpoint_close(c, NULL, &err) == GPUF_ERR_IO);
  CHECK(count_files(".tmp", false) == 0);
  struct stat file;
  CHECK(stat(path_in_folder("run-000000000001.h5"), &file) == 0 && file.st_size == 6);
  remove_folder();
}

static void a_dead_owners_temporary_is_swept(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  CHECK(close(creat(path_in_folder(".run-000000000007.h5.tmp"), 0666)) == 0);
  CHECK(close(creat(path_in_folder(".ruin-000000000007.h5.tmp"), 0666)) == 0);
  CHECK(close(creat(path_in_folder(".run-7.h5.tmp"), 0666)) == 0);
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK(!has_file(".run-000000000007.h5.tmp"));
  CHECK(has_file(".ruin-000000000007.h5.tmp") && has_file(".run-7.h5.tmp"));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  remove_folder();
}

static void a_second_writer_of_a_prefix_is_refused(void) {
  gpuf_checkpoint *second = NULL;
  char owner[40];
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  snprintf(owner, sizeof(owner), "process %ld", (long)getpid());
  CHECK_FAILS(gpuf_checkpoint_open(&options, &second, NULL, &err), GPUF_ERR_STATE, owner);
  CHECK(!second);
  commit_step(c, 1);
  CHECK(gpuf_checkpoint_open(&options, &second, NULL, &err) == GPUF_ERR_STATE);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  second = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_close(second, NULL, &err));
  check_newest("run", 1);
  remove_folder();
}

/* --- Calls ------------------------------------------------------------------- */

/* The lock protects the prefix no more: somebody may have locked a new file, in a new folder. */
static void a_folder_or_lock_that_was_replaced_is_refused(void) {
  char moved[80];
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *c = open_writer(&options);
  write_step(c, 1);
  CHECK(unlink(path_in_folder(".run.lock")) == 0);
  CHECK_FAILS(gpuf_checkpoint_begin(c, 2, NULL, &err), GPUF_ERR_STATE, ".run.lock");
  gpuf_checkpoint *const other = open_writer(&options);
  CHECK_FAILS(gpuf_checkpoint_begin(c, 2, NULL, &err), GPUF_ERR_STATE, "open it again");
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  write_step(other, 2);
  snprintf(moved, sizeof(moved), "%s-moved", folder);
  CHECK(rename(folder, moved) == 0);
  CHECK_FAILS(gpuf_checkpoint_begin(other, 3, NULL, &err), GPUF_ERR_STATE, "folder");
  CHECK(mkdir(folder, 0777) == 0);
  CHECK_FAILS(gpuf_checkpoint_begin(other, 3, NULL, &err), GPUF_ERR_STATE, "folder");
  CHECK(rmdir(folder) == 0 && rename(moved, folder) == 0);
  write_step(other, 3);
  CHECK_OK(gpuf_checkpoint_close(other, NULL, &err));
  check_newest("run", 3);
  remove_folder();
}

static void calls_out_of_order_are_refused(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_tensor u = state_of(1);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.step == -1 && report.status == GPUF_OK && report.path[0] == '\0');
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &u, NULL, &err), GPUF_ERR_STATE, "begin");
  CHECK_FAILS(gpuf_checkpoint_add_int64(c, "n", 1, &err), GPUF_ERR_STATE, "begin");
  CHECK_FAILS(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err), GPUF_ERR_STATE, "begin");
  CHECK_OK(gpuf_checkpoint_abort(c, &err));
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_FAILS(gpuf_checkpoint_begin(c, 2, NULL, &err), GPUF_ERR_STATE, "step 1 was begun");
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_abort(c, &err));
  write_step(c, 3);
  CHECK_OK(gpuf_checkpoint_begin(c, 4, &report, &err));
  CHECK(report.step == 3 && report.status == GPUF_OK && report.file_nbytes > 0);
  CHECK(report.raw_nbytes == gpuf_tensor_nbytes(&u) && report.stall_ns > 0 && report.write_ns > 0);
  CHECK(report.ratio > 1 && report.message[0] == '\0');
  CHECK_OK(gpuf_checkpoint_close(c, &report, &err)); /* step 4 was not committed */
  CHECK(report.step == 3 && report.status == GPUF_OK);
  CHECK(count_files(".h5", false) == 1);
  destroy(&u);
  remove_folder();
}

static atomic_bool is_saving;

static void *wait_meanwhile(void *arg) {
  gpuf_checkpoint *const c = arg;
  gpuf_error error;
  while (atomic_load(&is_saving)) {
    gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
    CHECK(gpuf_checkpoint_wait(c, -1, &report, &error) == GPUF_OK && report.status == GPUF_OK);
  }
  return NULL;
}

/* A wait without a limit meets checkpoints of another thread at any time, and a begin that does not
 * wait meets one that is just finished. */
static void a_wait_says_how_one_ended_while_another_thread_saves(void) {
  pthread_t waiters[2];
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 1;
  options.unsynced = options.skip_if_busy = true;
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_tensor u = state_of(1);
  atomic_store(&is_saving, true);
  for (int i = 0; i < 2; i++) {
    CHECK(pthread_create(&waiters[i], NULL, wait_meanwhile, c) == 0);
  }
  for (int64_t step = 0; step < 500; step++) {
    gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
    gpuf_status status = GPUF_ERR_TIMEOUT;
    while (status == GPUF_ERR_TIMEOUT) {
      status = gpuf_checkpoint_begin(c, step, &report, &err);
      CHECK(status == report.status);
    }
    CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  }
  atomic_store(&is_saving, false);
  for (int i = 0; i < 2; i++) {
    CHECK(pthread_join(waiters[i], NULL) == 0);
  }
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  destroy(&u);
  remove_folder();
}

static void names_are_checked(void) {
  static char long_name[1100];
  memset(long_name, 'n', sizeof(long_name) - 1);
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_tensor u = state_of(1);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "fields/ü", &u, NULL, &err));
  CHECK_FAILS(gpuf_checkpoint_add(c, "/fields/ü", &u, NULL, &err), GPUF_ERR_INVALID, "before");
  CHECK_FAILS(gpuf_checkpoint_add(c, "fields", &u, NULL, &err), GPUF_ERR_INVALID, "is a group");
  CHECK_FAILS(gpuf_checkpoint_add(c, "fields/ü/x/y", &u, NULL, &err), GPUF_ERR_INVALID,
              "is a dataset");
  static const char *const bad[] = {"",
                                    "/",
                                    "a//b",
                                    "a/",
                                    "./a",
                                    "a/../b",
                                    "\xff",
                                    long_name,
                                    "gpufetch_checkpoint",
                                    "gpufetch_checkpoint/x"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    CHECK(gpuf_checkpoint_add(c, bad[i], &u, NULL, &err) == GPUF_ERR_INVALID);
  }
  CHECK_OK(gpuf_checkpoint_add_int64(c, "fields", 1, &err)); /* values have names of their own */
  CHECK_FAILS(gpuf_checkpoint_add_text(c, "fields", "", &err), GPUF_ERR_INVALID, "before");
  CHECK(gpuf_checkpoint_add_int64(c, "", 1, &err) == GPUF_ERR_INVALID);
  CHECK(gpuf_checkpoint_add_int64(c, "\xff", 1, &err) == GPUF_ERR_INVALID);
  CHECK(gpuf_checkpoint_add_text(c, "t", "\xff", &err) == GPUF_ERR_INVALID);
  for (int i = 0; i < 3000; i++) {
    char name[40];
    snprintf(name, sizeof(name), "g%d/v%d", i % 100, i);
    CHECK_OK(gpuf_checkpoint_add_int64(c, name, i, &err));
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart *const r = open_restart("run", 1);
  int64_t value = 0;
  check_restarted(r, "/fields/ü", &u);
  CHECK_OK(gpuf_restart_get_int64(r, "g99/v2999", &value, &err));
  CHECK(value == 2999);
  gpuf_restart_close(r);
  destroy(&u);
  remove_folder();
}

static void options_are_checked(void) {
  static char long_prefix[300];
  memset(long_prefix, 'p', sizeof(long_prefix) - 1);
  make_folder();
  gpuf_checkpoint *c = NULL;
  gpuf_checkpoint_options options = options_in_folder("run");
#define CHECK_REFUSED(member, value, status, text)                                                 \
  do {                                                                                             \
    gpuf_checkpoint_options bad = options;                                                         \
    bad.member = (value);                                                                          \
    CHECK_FAILS(gpuf_checkpoint_open(&bad, &c, NULL, &err), status, text);                         \
    CHECK(!c);                                                                                     \
  } while (0)
  CHECK_REFUSED(struct_nbytes, 0, GPUF_ERR_INVALID, "GPUF_CHECKPOINT_OPTIONS_INIT");
  for (size_t nbytes = 0; nbytes < 40; nbytes++) { /* some of them end within a pointer */
    if (nbytes % sizeof(size_t) != 0) {
      CHECK_REFUSED(struct_nbytes, nbytes, GPUF_ERR_INVALID, "GPUF_CHECKPOINT_OPTIONS_INIT");
    }
  }
  CHECK_REFUSED(directory, NULL, GPUF_ERR_INVALID, "directory");
  CHECK_REFUSED(directory, "nowhere/at/all", GPUF_ERR_IO, "nowhere/at/all");
  CHECK(err.native_code == ENOENT);
  CHECK_REFUSED(directory, "/dev/null", GPUF_ERR_IO, "/dev/null");
  CHECK_REFUSED(prefix, NULL, GPUF_ERR_INVALID, "prefix");
  CHECK_REFUSED(prefix, "", GPUF_ERR_INVALID, "prefix");
  CHECK_REFUSED(prefix, "a/b", GPUF_ERR_INVALID, "a/b");
  CHECK_REFUSED(prefix, "\xff", GPUF_ERR_INVALID, "UTF-8");
  CHECK_REFUSED(prefix, long_prefix, GPUF_ERR_INVALID, "200");
  CHECK_REFUSED(keep_count, -1, GPUF_ERR_INVALID, "keep_count -1");
  CHECK_REFUSED(thread_count, -1, GPUF_ERR_INVALID, "thread_count -1");
  CHECK_REFUSED(mode, (gpuf_checkpoint_mode)9, GPUF_ERR_INVALID, "mode 9");
  CHECK(gpuf_checkpoint_open(NULL, &c, NULL, &err) == GPUF_ERR_INVALID);
  CHECK(gpuf_checkpoint_open(&options, NULL, NULL, &err) == GPUF_ERR_INVALID);
  CHECK_OK(gpuf_checkpoint_close(NULL, NULL, &err));
  gpuf_restart_close(NULL);
  CHECK(count_files("", false) == 0);
  remove_folder();
}

/* In a child, which gives up being root. */
static void a_read_only_folder_is_refused(void) {
  make_folder();
  CHECK(chmod(folder, 0555) == 0);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    gpuf_checkpoint *c = NULL;
    const gpuf_checkpoint_options options = options_in_folder("run");
    if (geteuid() == 0 && seteuid(65534) != 0) {
      _exit(1);
    }
    const gpuf_status status = gpuf_checkpoint_open(&options, &c, NULL, &err);
    const bool names_it = strstr(err.message, folder) != NULL;
    _exit(status == GPUF_ERR_IO && err.native_code == EACCES && names_it ? 0 : 1);
  }
  int outcome = 1;
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child && outcome == 0);
  remove_folder();
}

/* The names of all files would be longer than the reports hold. */
static void a_long_path_is_refused(void) {
  char component[202], path[3000];
  gpuf_checkpoint *c = NULL;
  gpuf_checkpoint_options options = options_in_folder("run");
  make_folder();
  snprintf(path, sizeof(path), "%s", folder);
  memset(component, 'd', sizeof(component));
  component[0] = '/';
  component[sizeof(component) - 1] = '\0';
  for (int i = 0; i < 8; i++) {
    memcpy(path + strlen(path), component, sizeof(component));
    CHECK(mkdir(path, 0777) == 0);
  }
  options.directory = path;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID, "1500");
  CHECK(!c);
  for (int i = 0; i < 8; i++) {
    CHECK(rmdir(path) == 0);
    *strrchr(path, '/') = '\0';
  }
  remove_folder();
}

static void pointers_that_are_null_are_refused(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_checkpoint_report unset = {.struct_nbytes = 0};
  gpuf_tensor u = state_of(1);
  gpuf_restart *r = NULL;
#define CHECK_NULL(call, text) CHECK_FAILS(call, GPUF_ERR_INVALID, text)
  CHECK_NULL(gpuf_checkpoint_begin(NULL, 1, NULL, &err), "argument checkpoint is NULL");
  CHECK_NULL(gpuf_checkpoint_begin(c, 1, &unset, &err), "GPUF_CHECKPOINT_REPORT_INIT");
  CHECK_NULL(gpuf_checkpoint_wait(NULL, 0, NULL, &err), "argument checkpoint is NULL");
  CHECK_NULL(gpuf_checkpoint_wait(c, 0, &unset, &err), "GPUF_CHECKPOINT_REPORT_INIT");
  CHECK_NULL(gpuf_checkpoint_abort(NULL, &err), "argument checkpoint is NULL");
  CHECK_NULL(gpuf_checkpoint_commit(NULL, GPUF_STREAM_NONE, &err), "argument checkpoint is NULL");
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_NULL(gpuf_checkpoint_add(NULL, "u", &u, NULL, &err), "argument checkpoint is NULL");
  CHECK_NULL(gpuf_checkpoint_add(c, NULL, &u, NULL, &err), "name");
  CHECK_NULL(gpuf_checkpoint_add(c, "u", NULL, NULL, &err), "tensor");
  CHECK_NULL(gpuf_checkpoint_add_int64(c, NULL, 1, &err), "name");
  CHECK_NULL(gpuf_checkpoint_add_float64(c, NULL, 1, &err), "name");
  CHECK_NULL(gpuf_checkpoint_add_text(c, NULL, "", &err), "name");
  CHECK_NULL(gpuf_checkpoint_add_text(c, "t", NULL, &err), "text");
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, NULL));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, NULL));
  CHECK_NULL(gpuf_restart_open(NULL, "run", -1, &r, NULL, &err), "directory");
  CHECK_NULL(gpuf_restart_open(folder, NULL, -1, &r, NULL, &err), "prefix");
  CHECK_NULL(gpuf_restart_open(folder, "run", -1, NULL, NULL, &err), "restart");
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, NULL, NULL));
  CHECK_NULL(gpuf_restart_read(NULL, "u", &u, NULL, &err), "restart");
  CHECK_NULL(gpuf_restart_read(r, NULL, &u, NULL, &err), "name");
  CHECK_NULL(gpuf_restart_read(r, "u", NULL, NULL, &err), "tensor");
  CHECK_NULL(gpuf_restart_describe(NULL, "u", &u, &err), "restart");
  CHECK_NULL(gpuf_restart_describe(r, NULL, &u, &err), "name");
  CHECK_NULL(gpuf_restart_describe(r, "u", NULL, &err), "tensor");
  CHECK_NULL(gpuf_restart_get_int64(r, "n", NULL, &err), "value");
  CHECK_NULL(gpuf_restart_get_float64(r, "n", NULL, &err), "value");
  CHECK_NULL(gpuf_restart_get_text(r, "n", NULL, &err), "text");
  CHECK(!gpuf_restart_name(NULL, 0));
  gpuf_restart_close(r);
  destroy(&u);
  remove_folder();
}

static void another_dtype_or_shape_is_refused(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_part part = GPUF_PART_INIT;
  gpuf_tensor u = state_of(1);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  memcpy(part.shape, shape, sizeof(shape));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, &part, &err)); /* the whole */
  part.start[0] = 1;
  CHECK_FAILS(gpuf_checkpoint_add(c, "v", &u, &part, &err), GPUF_ERR_INVALID, "axis 0");
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart *const r = open_restart("run", 1);
  gpuf_tensor other = u;
  other.dtype = GPUF_DTYPE_INT32;
  CHECK_FAILS(gpuf_restart_read(r, "u", &other, NULL, &err), GPUF_ERR_INVALID, "int32");
  other = u;
  other.shape[1]--;
  CHECK_FAILS(gpuf_restart_read(r, "u", &other, NULL, &err), GPUF_ERR_INVALID, "199");
  other = u;
  other.ndim = 1;
  CHECK(gpuf_restart_read(r, "u", &other, NULL, &err) == GPUF_ERR_INVALID);
  CHECK(gpuf_restart_read(r, "u", &u, &part, &err) == GPUF_ERR_INVALID); /* beyond the end */
  gpuf_restart_close(r);
  destroy(&u);
  remove_folder();
}

/* The step between two others is of memory that is none of the device's any more. */
static void lose_a_step(gpuf_checkpoint_mode mode, size_t shard_count, gpuf_stream stream) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_tensor u = state_of(1), d_u = copy_to_device(&u), freed = d_u;
  options.device = host_device;
  options.mode = mode;
  options.shard_count = shard_count;
  options.state_nbytes = gpuf_tensor_nbytes(&u);
  options.keep_count = 1;
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  CHECK_OK(gpuf_checkpoint_begin(c, 2, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &freed, NULL, &err));
  destroy(&d_u);
  gpuf_status status = gpuf_checkpoint_commit(c, stream, &err);
  status = status == GPUF_OK ? gpuf_checkpoint_wait(c, -1, NULL, &err) : status;
  CHECK(status != GPUF_OK && err.message[0]);
  check_newest("run", 1);
  gpuf_stream_synchronize(host_device, stream, NULL); /* fails once more, for what is there */
  write_step(c, 3);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  check_newest("run", 3);
  CHECK(count_files(".h5", false) <= 1 + (int)shard_count);
  destroy(&u);
  remove_folder();
}

/* Memory that is freed before the commit is refused by the device, and costs that checkpoint. */
static void a_freed_device_tensor_costs_one_checkpoint(void) {
  gpuf_stream own;
  CHECK_OK(gpuf_stream_create(host_device, &own, &err));
  const gpuf_stream streams[] = {GPUF_STREAM_NONE, own, GPUF_STREAM_LEGACY, GPUF_STREAM_PER_THREAD};
  for (int mode = GPUF_CHECKPOINT_DEVICE_COPY; mode <= GPUF_CHECKPOINT_PINNED; mode++) {
    for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
      lose_a_step((gpuf_checkpoint_mode)mode, 0, streams[i]);
      lose_a_step((gpuf_checkpoint_mode)mode, 2, streams[i]);
    }
  }
  CHECK_OK(gpuf_stream_destroy(host_device, own, &err));
}

/* The CPU has none, whatever the tensors are. */
static void a_stream_of_no_device_is_refused(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_tensor u = state_of(1);
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_FAILS(gpuf_checkpoint_commit(c, (gpuf_stream)0x1234, &err), GPUF_ERR_INVALID,
              "stream is 0x1234");
  write_step(c, 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  check_newest("run", 2);
  CHECK(count_files(".h5", false) == 1);
  destroy(&u);
  remove_folder();
}

/* H5close takes what is registered with HDF5 along: the next checkpoint registers it again. */
static void hdf5_may_be_closed_between_checkpoints(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  CHECK(H5close() >= 0);
  write_step(c, 2);
  CHECK(H5close() >= 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  check_newest("run", 2);
  CHECK(count_files(".h5", false) == 2);
  remove_folder();
}

static void *restart_again_and_again(void *arg) {
  const gpuf_tensor *const expected = arg;
  const size_t nbytes = gpuf_tensor_nbytes(expected);
  gpuf_tensor u = *expected;
  u.data = malloc(nbytes);
  CHECK(u.data);
  for (int i = 0; i < 10; i++) {
    gpuf_error error;
    gpuf_restart *r = NULL;
    memset(u.data, 0, nbytes);
    CHECK(gpuf_restart_open(folder, "run", -1, &r, NULL, &error) == GPUF_OK && r);
    CHECK(gpuf_restart_read(r, "u", &u, NULL, &error) == GPUF_OK);
    gpuf_restart_close(r);
    CHECK(!memcmp(u.data, expected->data, nbytes));
  }
  free(u.data);
  return NULL;
}

static atomic_bool synchronizes;

static void *synchronize_again_and_again(void *stream) {
  while (atomic_load(&synchronizes)) {
    gpuf_stream_synchronize(host_device, *(const gpuf_stream *)stream, NULL);
  }
  return NULL;
}

/* Whoever synchronizes the program's stream is told errors of its work, once. */
static void a_thread_that_synchronizes_the_stream_hides_no_failed_copy(void) {
  enum { COUNT = 50 };
  pthread_t thread;
  gpuf_stream stream;
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_tensor u = state_of(1);
  options.device = host_device;
  options.mode = GPUF_CHECKPOINT_DEVICE_COPY;
  options.state_nbytes = (COUNT + 1) * gpuf_tensor_nbytes(&u);
  options.unsynced = true;
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  atomic_store(&synchronizes, true);
  CHECK(pthread_create(&thread, NULL, synchronize_again_and_again, &stream) == 0);
  for (int64_t step = 1; step <= 30; step++) {
    gpuf_tensor tensors[COUNT];
    CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
    for (int i = 0; i < COUNT; i++) {
      char name[16];
      snprintf(name, sizeof(name), "u%d", i);
      tensors[i] = copy_to_device(&u);
      CHECK_OK(gpuf_checkpoint_add(c, name, &tensors[i], NULL, &err));
    }
    destroy(&tensors[0]);
    gpuf_status status = gpuf_checkpoint_commit(c, stream, &err);
    status = status == GPUF_OK ? gpuf_checkpoint_wait(c, -1, NULL, &err) : status;
    CHECK(status != GPUF_OK);
    for (int i = 1; i < COUNT; i++) {
      destroy(&tensors[i]);
    }
  }
  atomic_store(&synchronizes, false);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(gpuf_checkpoint_close(c, NULL, &err) == GPUF_ERR_DEVICE); /* of the last step */
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
  destroy(&u);
  remove_folder();
}

/* To HDF5 their files are files of their own. */
static void restarts_of_one_checkpoint_are_open_side_by_side(void) {
  for (size_t shard_count = 0; shard_count <= 3; shard_count += 3) {
    pthread_t threads[3];
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.shard_count = shard_count;
    gpuf_checkpoint *const c = open_writer(&options);
    write_step(c, 7);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_tensor expected = state_of(7);
    gpuf_restart *const first = open_restart("run", 7);
    gpuf_restart *const second = open_restart("run", 7);
    check_restarted(second, "u", &expected);
    check_restarted(first, "u", &expected);
    gpuf_restart_close(first);
    check_restarted(second, "u", &expected);
    for (int i = 0; i < 3; i++) {
      CHECK(pthread_create(&threads[i], NULL, restart_again_and_again, &expected) == 0);
    }
    for (int i = 0; i < 3; i++) {
      CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_restarted(second, "u", &expected);
    gpuf_restart_close(second);
    check_newest("run", 7);
    destroy(&expected);
    remove_folder();
  }
}

static void there_is_none_yet_is_not_an_error(void) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  make_folder();
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(!r && report.step == -1 && report.skipped_count == 0 && report.skipped_step == -1);
  CHECK_FAILS(gpuf_restart_open("nowhere", "run", -1, &r, &report, &err), GPUF_ERR_IO, "nowhere");
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 5);
  write_step(c, 9);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK_OK(gpuf_restart_open(folder, "run", 4, &r, &report, &err));
  CHECK(!r && report.step == -1);
  CHECK_OK(gpuf_restart_open(folder, "run", 8, &r, &report, &err));
  CHECK(r && report.step == 5);
  gpuf_restart_close(r);
  remove_folder();
}

int main(void) {
  test_device = host_device;
  TEST(the_newest_are_kept);
  TEST(other_prefixes_are_left_alone);
  TEST(a_step_that_exists_is_refused_or_replaced);
  TEST(what_is_no_file_is_not_replaced);
  TEST(a_file_that_appears_is_not_overwritten);
  TEST(a_dead_owners_temporary_is_swept);
  TEST(a_second_writer_of_a_prefix_is_refused);
  TEST(a_folder_or_lock_that_was_replaced_is_refused);
  TEST(calls_out_of_order_are_refused);
  TEST(a_wait_says_how_one_ended_while_another_thread_saves);
  TEST(names_are_checked);
  TEST(options_are_checked);
  TEST(a_read_only_folder_is_refused);
  TEST(a_long_path_is_refused);
  TEST(pointers_that_are_null_are_refused);
  TEST(another_dtype_or_shape_is_refused);
  TEST(a_freed_device_tensor_costs_one_checkpoint);
  TEST(a_thread_that_synchronizes_the_stream_hides_no_failed_copy);
  TEST(a_stream_of_no_device_is_refused);
  TEST(hdf5_may_be_closed_between_checkpoints);
  TEST(restarts_of_one_checkpoint_are_open_side_by_side);
  TEST(there_is_none_yet_is_not_an_error);
  return test_finish();
}
