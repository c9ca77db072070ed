/* Processes that end: at every system call of a checkpoint, at any time, by exit(), and after a
 * fork. The newest finished checkpoint is there, is whole, and restarts bit for bit. The parent
 * only reads.
 */
#include "ended_calls.h"

#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint_shards.h"
#include "portion.h"

#define SECONDS_MAX 60
#define CALLS_MAX 2000

static const int64_t shape[] = {300, 500};
static const int64_t large_shape[] = {3000, 4000};

/* Shared with children: the newest step that a wait has called finished. */
static atomic_llong *finished;

static gpuf_tensor state_of(int64_t step) {
  return create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, (uint64_t)step);
}

static gpuf_checkpoint_options cycle_options;

/* Once for each shard, and once more, so that they have several datasets. */
static void commit_tensor(gpuf_checkpoint *c, int64_t step, const gpuf_tensor *u) {
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", u, NULL, &err));
  for (size_t i = 0; i < cycle_options.shard_count; i++) {
    char name[40];
    snprintf(name, sizeof(name), "more/%zu", i);
    CHECK_OK(gpuf_checkpoint_add(c, name, u, NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
}

/* From the device where the writer has one, so that several threads write to a recycled file. */
static void write_step(gpuf_checkpoint *c, int64_t step) {
  gpuf_tensor u = state_of(step);
  if (cycle_options.device.kind != GPUF_DEVICE_CPU) {
    const gpuf_tensor d_u = copy_to_device(&u);
    destroy(&u);
    u = d_u;
  }
  commit_tensor(c, step, &u);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  atomic_store(finished, step);
  destroy(&u);
}

/* --- Children ------------------------------------------------------------------ */

static pid_t parent;

/* LeakSanitizer asks. What only the parent's other threads refer to, such as what the writer holds,
 * is lost in a child of a fork, and nobody's leak; and the sanitizer looks for the child's own
 * thread under its number in the parent, so that it misses what that thread alone refers to. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
  return getpid() != parent;
}

static pid_t start(void (*body)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS_MAX);
    if (setjmp(test_exit) == 0) {
      body();
      _exit(0);
    }
    fflush(stdout);
    _exit(1);
  }
  CHECK(child > 0);
  return child;
}

/* How it ended: its exit status, or the negative of its signal. */
static int await(pid_t child) {
  int outcome;
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  return WIFSIGNALED(outcome) ? -WTERMSIG(outcome) : WEXITSTATUS(outcome);
}

/* The newest step, whose bytes are right. */
static int64_t newest_step(void) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.skipped_count == 0); /* nothing that is not whole has a checkpoint's name */
  gpuf_tensor expected = state_of(report.step), found = state_of(-1);
  const char *name;
  for (size_t i = 0; (name = gpuf_restart_name(r, i)); i++) {
    CHECK_OK(gpuf_restart_read(r, name, &found, NULL, &err));
    CHECK(memcmp(found.data, expected.data, gpuf_tensor_nbytes(&found)) == 0);
  }
  gpuf_restart_close(r);
  DESTROY(&expected, &found);
  return report.step;
}

static void open_and_close(void) {
  const gpuf_checkpoint_options options = options_in_folder("run");
  CHECK_OK(gpuf_checkpoint_close(open_writer(&options), NULL, &err));
}

/* After a child's end: what is finished is there, and the next writer finds the prefix free. */
static int64_t check_after_end(void) {
  const int64_t newest = newest_step();
  CHECK(newest >= atomic_load(finished));
  CHECK(await(start(open_and_close)) == 0);
  CHECK(count_files(".tmp", false) == 0 && count_orphans() == 0);
  CHECK(newest_step() == newest);
  return newest;
}

static void write_first_steps(void) {
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  write_step(c, 1);
  write_step(c, 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

/* --- At every call --------------------------------------------------------------- */

static long ends_at;

/* Opening, writing, publishing, removing the oldest, closing; and, where files are recycled,
 * writing over the one that has expired. */
static void one_cycle(void) {
  atomic_store(&call_count, 0);
  atomic_store(&end_at, ends_at);
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  write_step(c, cycle_options.replace ? 2 : 3);
  if (cycle_options.recycle) {
    write_step(c, 4);
    CHECK(atomic_load(&copy_count) > 0);
  }
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

/* Until the cycle has fewer calls. Returns how many kills there were. */
static long end_at_each_call(int turn) {
  const portion p = portion_of_cases(turn);
  long kill_count = -1; /* the last cycle has no such call */
  int outcome = -SIGKILL;
  for (ends_at = p.first; outcome == -SIGKILL; ends_at += p.step) {
    CHECK(ends_at < CALLS_MAX);
    count_files("", true);
    atomic_store(finished, 0);
    CHECK(await(start(write_first_steps)) == 0);
    outcome = await(start(one_cycle));
    CHECK(outcome == 0 || outcome == -SIGKILL);
    const int64_t newest = check_after_end();
    CHECK(newest >= 2 && newest <= (cycle_options.recycle ? 4 : 3));
    kill_count++;
  }
  const int64_t last = cycle_options.recycle ? 4 : cycle_options.replace ? 2 : 3;
  CHECK(newest_step() == last);
  CHECK(count_files(".h5", false) == 2 * (1 + (int)cycle_options.shard_count));
  CHECK(kill_count > 0);
  return kill_count;
}

static void end_cycles(size_t shard_count) {
  cycle_options = options_in_folder("run");
  cycle_options.unsynced = false;
  cycle_options.keep_count = 2;
  cycle_options.thread_count = 1;
  cycle_options.shard_count = shard_count;
  printf("# %ld kills in a cycle\n", end_at_each_call(0));
  cycle_options.uncompressed = cycle_options.replace = true;
  printf("# %ld kills in one that replaces\n", end_at_each_call(1));
  cycle_options.uncompressed = cycle_options.replace = false;
  cycle_options.recycle = true;
  cycle_options.keep_count = 1;
  cycle_options.device = host_device;
  cycle_options.state_nbytes = 4 << 20;
  cycle_options.thread_count = shard_count > 0 ? 2 * (int32_t)shard_count : 2; /* for a mapping */
  printf("# %ld kills in one that recycles\n", end_at_each_call(2));
}

/* Shards are written by a thread each, so that the calls come in any order. */
static void a_kill_at_any_call_loses_nothing(void) {
  make_folder();
  end_cycles(0);
  end_cycles(2);
  remove_folder();
}

/* --- At any time ----------------------------------------------------------------- */

static void many_cycles(void) {
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  for (int64_t step = atomic_load(finished) + 1;; step++) {
    if (access(path_in_folder("stop"), F_OK) == 0) {
      break;
    }
    struct stat file;
    char name[60];
    snprintf(name, sizeof(name), "run-%012lld.h5", (long long)step);
    if (stat(path_in_folder(name), &file) != 0) { /* one was finished that no wait has seen */
      write_step(c, step);
    }
  }
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void a_signal_at_any_time_loses_nothing(void) {
  static const int signals[] = {SIGKILL, SIGTERM};
  uint64_t state = 7;
  make_folder();
  cycle_options = options_in_folder("run");
  cycle_options.keep_count = 2;
  cycle_options.thread_count = 2;
  atomic_store(finished, 0);
  CHECK(await(start(write_first_steps)) == 0);
  for (int i = 0; i < 40 * test_times(); i++) {
    const struct timespec pause = {0, (long)random_below(&state, 30000000)};
    cycle_options.recycle = i % 4 >= 2;
    cycle_options.device = i % 8 >= 6 ? host_device : cpu_device;
    cycle_options.state_nbytes = i % 8 >= 6 ? 1 << 20 : 0;
    cycle_options.shard_count = i % 3 == 2 ? 3 : 0;
    const pid_t child = start(many_cycles);
    nanosleep(&pause, NULL);
    const int number = signals[i % 2];
    CHECK(kill(child, number) == 0);
    CHECK(await(child) == -number);
    check_after_end();
  }
  remove_folder();
}

/* --- exit() ---------------------------------------------------------------------- */

/* While the writer is in the middle of a write. */
static void exit_while_writing(void) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 5);
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  atomic_store(&gate_is_shut, true);
  commit_tensor(c, 3, &u);
  while (!atomic_load(&is_in_gate)) {
    sched_yield();
  }
  atomic_store(&gate_is_shut, false);
  exit(7);
}

/* Between begin and commit. */
static void exit_before_the_commit(void) {
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  CHECK_OK(gpuf_checkpoint_begin(c, 3, NULL, &err));
  exit(7);
}

static void exit_after_the_end(void) {
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  write_step(c, 3);
  exit(7);
}

/* As HDF5 does on the library's threads, within its calls, where memory runs out. */
static const char *name_of_exiting_thread;

static void write_until_exit(void) {
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  gpuf_tensor u = state_of(3);
  atomic_store(&exiting_thread, name_of_exiting_thread);
  commit_tensor(c, 3, &u);
  gpuf_checkpoint_wait(c, -1, NULL, &err);
}

static void exit_on_the_writers_own_thread_ends_the_process(void) {
  make_folder();
  cycle_options = options_in_folder("run");
  CHECK(await(start(write_first_steps)) == 0);
  name_of_exiting_thread = "gpufetch-ckpt";
  CHECK(await(start(write_until_exit)) == 9);
  CHECK(check_after_end() == 2);
  cycle_options.shard_count = 2;
  name_of_exiting_thread = "gpufetch-shard";
  CHECK(await(start(write_until_exit)) == 9);
  CHECK(check_after_end() == 2);
  remove_folder();
}

static void exit_without_close_leaves_what_is_finished(void) {
  make_folder();
  cycle_options = options_in_folder("run");
  CHECK(await(start(write_first_steps)) == 0);
  for (int i = 0; i < 10; i++) {
    CHECK(await(start(exit_while_writing)) == 7);
    CHECK(count_files(".tmp", false) == 0);
    CHECK(check_after_end() == 2);
  }
  CHECK(await(start(exit_before_the_commit)) == 7);
  CHECK(check_after_end() == 2);
  CHECK(await(start(exit_after_the_end)) == 7);
  CHECK(check_after_end() == 3);
  remove_folder();
}

/* --- A full disk ------------------------------------------------------------------ */

/* The system refuses to let files grow: one checkpoint fails, and says why; the next is written
 * once there is room; and the process ends in good order. */
static void fill_the_disk(void) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  struct rlimit limit;
  gpuf_tensor u = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 5);
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlim_t all = limit.rlim_cur;
  for (rlim_t nbytes = 1; nbytes < ((rlim_t)1 << 24); nbytes *= 4) {
    limit.rlim_cur = nbytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    commit_tensor(c, 3, &u);
    const gpuf_status status = gpuf_checkpoint_wait(c, -1, &report, &err);
    limit.rlim_cur = all;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    if (status == GPUF_OK) {
      break;
    }
    CHECK(status == GPUF_ERR_IO && report.status == GPUF_ERR_IO && report.system_error == EFBIG);
    CHECK(report.step == 3 && strstr(report.message, "run-000000000003.h5"));
    CHECK(strstr(report.path, "/run-000000000003.h5") && err.native_code == EFBIG);
    CHECK(count_files(".tmp", false) == 0 && count_files(".h5", false) == 2);
    CHECK_OK(gpuf_checkpoint_begin(c, 4, &report, &err)); /* which reports it, too */
    CHECK(report.step == 3 && report.status == GPUF_ERR_IO);
    CHECK_OK(gpuf_checkpoint_abort(c, &err));
  }
  CHECK(report.status != GPUF_OK);
  CHECK(gpuf_checkpoint_close(c, NULL, &err) == GPUF_ERR_IO);
  gpuf_checkpoint *const again = open_writer(&cycle_options);
  write_step(again, 5);
  CHECK_OK(gpuf_checkpoint_close(again, NULL, &err));
  exit(7);
}

/* Not even the lock file's note may be written, on the program's own thread. */
static void open_without_room(void) {
  const struct rlimit none = {0, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_DFL);
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  open_and_close();
}

static void a_limit_of_no_bytes_does_not_end_the_process(void) {
  make_folder();
  CHECK(await(start(open_without_room)) == 0);
  remove_folder();
}

static void a_full_disk_costs_one_checkpoint(void) {
  make_folder();
  for (int i = 0; i < 2; i++) {
    count_files("", true);
    cycle_options = options_in_folder("run");
    cycle_options.uncompressed = i == 1;
    atomic_store(finished, 0);
    CHECK(await(start(write_first_steps)) == 0);
    CHECK(await(start(fill_the_disk)) == 7);
    CHECK(check_after_end() == 5);
  }
  remove_folder();
}

/* --- Two processes ---------------------------------------------------------------- */

static int ready[2]; /* a pipe */

static void hold_the_prefix(void) {
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  CHECK_OK(gpuf_checkpoint_begin(c, 3, NULL, &err));
  CHECK(write(ready[1], "", 1) == 1);
  pause();
}

static void find_the_prefix_held(void) {
  gpuf_checkpoint *c = NULL;
  CHECK_FAILS(gpuf_checkpoint_open(&cycle_options, &c, NULL, &err), GPUF_ERR_STATE, "process");
  CHECK(newest_step() == 2); /* reading needs no lock */
}

static void a_prefix_has_one_writing_process(void) {
  char byte;
  make_folder();
  cycle_options = options_in_folder("run");
  atomic_store(finished, 0);
  CHECK(pipe(ready) == 0);
  CHECK(await(start(write_first_steps)) == 0);
  const pid_t holder = start(hold_the_prefix);
  CHECK(read(ready[0], &byte, 1) == 1);
  CHECK(await(start(find_the_prefix_held)) == 0);
  CHECK(kill(holder, SIGKILL) == 0 && await(holder) == -SIGKILL);
  CHECK(check_after_end() == 2);
  close(ready[0]);
  close(ready[1]);
  remove_folder();
}

/* --- Forks ----------------------------------------------------------------------- */

static void use_in_child(gpuf_checkpoint *c, gpuf_restart *r, const gpuf_tensor *u) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_tensor found = *u;
  int64_t value;
  CHECK_FAILS(gpuf_checkpoint_begin(c, 9, &report, &err), GPUF_ERR_STATE, "forked");
  CHECK(strstr(err.message, "checkpoints"));
  CHECK_FAILS(gpuf_checkpoint_add(c, "v", u, NULL, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_checkpoint_add_int64(c, "v", 1, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_checkpoint_abort(c, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_checkpoint_close(c, &report, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_restart_read(r, "u", &found, NULL, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_restart_describe(r, "u", &found, &err), GPUF_ERR_STATE, "forked");
  CHECK_FAILS(gpuf_restart_get_int64(r, "n", &value, &err), GPUF_ERR_STATE, "forked");
  gpuf_restart_close(r);
}

/* After the fork has begun, unless the fork does not wait for the writer. */
static void *open_gate_later(void *arg) {
  const struct timespec pause = {0, 50000000};
  nanosleep(&pause, NULL);
  atomic_store(&gate_is_shut, false);
  return arg;
}

/* Step 3 of a large tensor, whose writer is within HDF5, in a write; `opener` lets it go on. */
static gpuf_checkpoint *commit_up_to_gate(pthread_t *opener) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 5);
  gpuf_checkpoint *const c = open_writer(&cycle_options);
  atomic_store(&gate_is_shut, true);
  commit_tensor(c, 3, &u);
  while (!atomic_load(&is_in_gate)) {
    sched_yield();
  }
  CHECK(pthread_create(opener, NULL, open_gate_later, NULL) == 0);
  return c;
}

/* The writer is within HDF5, in a write, when the process forks: the child finds HDF5's locks free
 * all the same, in its own calls and at its exit. */
static void fork_within_a_write(void) {
  pthread_t opener;
  gpuf_checkpoint *const c = commit_up_to_gate(&opener);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS_MAX / 2);
    exit(H5Fopen(path_in_folder("run-000000000002.h5"), H5F_ACC_RDONLY, H5P_DEFAULT) >= 0 ? 5 : 1);
  }
  CHECK(await(child) == 5);
  CHECK(pthread_join(opener, NULL) == 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(unlink(path_in_folder("run-000000000003.h5")) == 0);
}

/* A child that was forked while the file was written lives on, with its descriptor: the finished
 * file can be opened all the same, by HDF5 too, which locks it. */
static void fork_a_survivor_within_a_write(void) {
  pthread_t opener;
  gpuf_checkpoint *const c = commit_up_to_gate(&opener);
  const pid_t survivor = start((void (*)(void))pause);
  CHECK(pthread_join(opener, NULL) == 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  const int fd = open(path_in_folder("run-000000000003.h5"), O_RDONLY);
  const bool is_free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
  CHECK(close(fd) == 0);
  CHECK(kill(survivor, SIGKILL) == 0 && await(survivor) == -SIGKILL);
  CHECK(is_free);
  gpuf_restart_close(open_restart("run", 3));
  CHECK(unlink(path_in_folder("run-000000000003.h5")) == 0);
}

static int is_closed[2]; /* a pipe, from which a byte comes once the writer is closed */

static void restart_once_closed(void) {
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  gpuf_restart *r = NULL;
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 5);
  gpuf_tensor found = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 6);
  char byte;
  CHECK(TEMP_FAILURE_RETRY(read(is_closed[0], &byte, 1)) == 1);
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.step == 3 && report.skipped_count == 0);
  CHECK_OK(gpuf_restart_read(r, "u", &found, NULL, &err));
  CHECK(memcmp(found.data, expected.data, gpuf_tensor_nbytes(&expected)) == 0);
  gpuf_restart_close(r);
}

/* A child that was forked while the file was written has it open in HDF5 as it was then: a restart
 * there has the finished one. */
static void fork_a_reader_within_a_write(void) {
  pthread_t opener;
  CHECK(pipe(is_closed) == 0);
  gpuf_checkpoint *const c = commit_up_to_gate(&opener);
  const pid_t reader = start(restart_once_closed);
  CHECK(pthread_join(opener, NULL) == 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(write(is_closed[1], "x", 1) == 1);
  CHECK(await(reader) == 0);
  CHECK(close(is_closed[0]) == 0 && close(is_closed[1]) == 0);
  CHECK(unlink(path_in_folder("run-000000000003.h5")) == 0);
}

/* Children are made while the writer works. One ends by exit(), whose handlers HDF5 and the library
 * have theirs among; it must touch nothing. */
static void fork_while_writing(void) {
  gpuf_restart *r = NULL;
  gpuf_tensor u = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 5);
  gpuf_checkpoint *c = open_writer(&cycle_options);
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, NULL, &err));
  for (int64_t step = 3; step < 6; step++) {
    commit_tensor(c, step, &u);
    for (int i = 0; i < 4; i++) {
      fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        alarm(SECONDS_MAX);
        const bool failed = setjmp(test_exit);
        if (!failed) {
          use_in_child(c, r, &u);
        }
        exit(failed ? 1 : 5);
      }
      CHECK(await(child) == 5);
    }
    CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  }
  gpuf_restart_close(r);
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, NULL, &err));
  gpuf_tensor found = create_cpu(GPUF_DTYPE_UINT8, 2, large_shape, 6);
  CHECK_OK(gpuf_restart_read(r, "u", &found, NULL, &err));
  CHECK(memcmp(found.data, u.data, gpuf_tensor_nbytes(&u)) == 0);
  gpuf_restart_close(r);
  /* A child that lives on does not hold the lock. */
  const pid_t survivor = start((void (*)(void))pause);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  c = open_writer(&cycle_options);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(kill(survivor, SIGKILL) == 0 && await(survivor) == -SIGKILL);
}

static void forked_children_touch_nothing(void) {
  make_folder();
  cycle_options = options_in_folder("run");
  CHECK(await(start(write_first_steps)) == 0);
  CHECK(await(start(fork_within_a_write)) == 0);
  CHECK(await(start(fork_a_survivor_within_a_write)) == 0);
  CHECK(await(start(fork_a_reader_within_a_write)) == 0);
  CHECK(await(start(fork_while_writing)) == 0);
  remove_folder();
}

int main(void) {
  test_device = host_device;
  parent = getpid();
  finished = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TEST(a_kill_at_any_call_loses_nothing);
  TEST(a_signal_at_any_time_loses_nothing);
  TEST(exit_on_the_writers_own_thread_ends_the_process);
  TEST(exit_without_close_leaves_what_is_finished);
  TEST(a_full_disk_costs_one_checkpoint);
  TEST(a_limit_of_no_bytes_does_not_end_the_process);
  TEST(a_prefix_has_one_writing_process);
  TEST(forked_children_touch_nothing);
  return test_finish();
}
