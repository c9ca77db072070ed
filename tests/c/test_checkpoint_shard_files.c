/* Which files of sharded checkpoints are kept, removed, overwritten and left alone. */
#include <fcntl.h>
#include <sys/syscall.h>

#include "checkpoint_states.h"

/* Somebody opens the file of this name just before it is renamed. */
static const char *opened_at_rename;
static int opened = -1;

/* It stands before libc's for what is linked into the program. */
__attribute__((visibility("hidden"))) int rename(const char *from, const char *to) {
  if (opened_at_rename && strstr(from, opened_at_rename)) {
    opened = open(from, O_RDONLY);
  }
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static const gpuf_checkpoint_mode modes[] = {
    GPUF_CHECKPOINT_DEVICE_COPY, GPUF_CHECKPOINT_DEVICE_ENCODED, GPUF_CHECKPOINT_PINNED};

static void shards_expire_with_their_masters(void) {
  static const char *const others[] = {
      "run-000000000099.0123456789abcdef.0.h5.old", "run2-000000000099.0123456789abcdef.0.h5",
      "run-000000000099.123456789abcdef.0.h5", "run-000000000099.0123456789abcdef.00.h5"};
  make_folder();
  for (int i = 0; i < 4; i++) {
    CHECK(close(creat(path_in_folder(others[i]), 0666)) == 0);
  }
  gpuf_checkpoint_options options = options_in_folder("run");
  state s = huge_state();
  options.keep_count = 2;
  for (int64_t step = 1; step < 7; step++) {
    options.shard_count = step == 3 ? 0 : 2 + (size_t)step % 2; /* one of them is one file */
    write_state(&options, &s, step);
    const int files = step == 3 ? 0 : (int)options.shard_count;
    CHECK(count_shards("run", step) == files);
    CHECK(step < 3 || count_files("run-", false) - 3 ==
                          2 + count_shards("run", step) + count_shards("run", step - 1));
  }
  check_state("run", &s, 6);
  for (int i = 0; i < 4; i++) {
    CHECK(access(path_in_folder(others[i]), F_OK) == 0);
  }
  destroy_state(&s);
  remove_folder();
}

/* What a writer left that ended before its master had a name, and what is left of a replaced step.
 */
static void shards_without_a_master_are_removed(void) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.shard_count = 2;
  state s = two_steps(&options);
  CHECK(close(creat(path_in_folder("run-000000000002.0123456789abcdef.0.h5"), 0666)) == 0);
  CHECK(close(creat(path_in_folder("run-000000000009.0123456789abcdef.7.h5"), 0666)) == 0);
  CHECK(unlink(path_in_folder("run-000000000001.h5")) == 0);
  CHECK_OK(gpuf_checkpoint_close(open_writer(&options), NULL, &err));
  CHECK(count_files("run-", false) == 3 && count_shards("run", 2) == 2);
  check_state("run", &s, 2);
  destroy_state(&s);
  remove_folder();
}

static void a_step_is_replaced_by_one_of_another_number_of_shards(void) {
  static const size_t counts[] = {2, 0, 5, 3, 1};
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.replace = true;
  state s = huge_state();
  for (int i = 0; i < 5; i++) {
    options.shard_count = counts[i];
    write_state(&options, &s, 4);
    CHECK(count_shards("run", 4) == (int)(counts[i] > 1 ? counts[i] : 0));
    check_state("run", &s, 4);
  }
  destroy_state(&s);
  remove_folder();
}

static ino_t inode_of(const char *name) {
  struct stat file;
  CHECK(stat(path_in_folder(name), &file) == 0);
  return file.st_ino;
}

/* What each step has: the file that the next but one is written over. */
static ino_t first_inode_of(int64_t step, size_t shard_count) {
  char name[60];
  snprintf(name, sizeof(name), "run-%012d.h5", (int)step);
  return inode_of(shard_count ? shard_name("run", step, 0) : name);
}

/* The shards of what has expired become those of the next one. */
static void shards_of_expired_checkpoints_are_overwritten(void) {
  for (int m = 0; m < 3; m++) {
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    state s = huge_state();
    ino_t inodes[10];
    options.keep_count = 1;
    options.recycle = true;
    options.device = host_device;
    options.state_nbytes = (size_t)20 << 20;
    options.mode = modes[m];
    options.shard_count = 3;
    options.thread_count = 5;
    gpuf_checkpoint *const c = open_writer(&options);
    gpuf_tensor d_u = copy_to_device(&s.tensors[0]);
    for (int64_t step = 1; step < 9; step++) {
      gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
      CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add_int64(c, "step", step, &err));
      CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
      CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
      inodes[step] = first_inode_of(step, 3);
      CHECK((report.recycled_nbytes > 0) == (step > 2));
      CHECK(step < 3 || inodes[step] == inodes[step - 2]);
      CHECK(step < 3 || report.recycled_nbytes == report.file_nbytes);
      CHECK(count_files("run-", false) == (step < 2 ? 4 : 8));
      check_state("run", &s, step);
    }
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    destroy(&d_u);
    destroy_state(&s);
    remove_folder();
  }
}

/* Between steps of other numbers of shards. What is left of the older one is removed. */
static void an_expired_checkpoint_of_another_number_of_shards_is_used(void) {
  static const size_t counts[] = {3, 2, 4, 0, 3};
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  state s = huge_state();
  options.keep_count = 1;
  options.recycle = true;
  for (int i = 0; i < 5; i++) {
    options.shard_count = counts[i];
    gpuf_checkpoint *const c = open_writer(&options);
    for (int64_t step = 2 * i + 1; step < 2 * i + 3; step++) {
      gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
      CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add(c, "u", &s.tensors[0], NULL, &err));
      CHECK_OK(gpuf_checkpoint_add_int64(c, "step", step, &err));
      CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
      CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
      /* A new writer takes none before it has finished one. */
      CHECK((report.recycled_nbytes > 0) == (i > 0 && step % 2 == 0));
      check_state("run", &s, step);
    }
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    CHECK(count_files("run-", false) == 2 * (1 + (int)counts[i]));
    CHECK(count_orphans() == 0);
  }
  destroy_state(&s);
  remove_folder();
}

/* Of two shards, which overwrites what is older than the newest. */
static gpuf_checkpoint *open_recycling_writer(void) {
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 1;
  options.recycle = true;
  options.shard_count = 2;
  return open_writer(&options);
}

/* Whoever has opened a checkpoint that has expired goes on reading it. */
static void shards_that_are_read_are_left_alone(void) {
  make_folder();
  state s = huge_state();
  gpuf_restart *r = NULL;
  gpuf_checkpoint *const c = open_recycling_writer();
  for (int64_t step = 1; step < 4; step++) {
    gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
    CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
    CHECK_OK(gpuf_checkpoint_add(c, "u", &s.tensors[0], NULL, &err));
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
    if (step == 1) {
      CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, NULL, &err));
    }
    CHECK(report.recycled_nbytes == 0 && count_orphans() == 0);
  }
  check_restarted(r, "u", &s.tensors[0]);
  gpuf_restart_close(r);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  destroy_state(&s);
  remove_folder();
}

/* A master that is opened while it is taken over is not overwritten, and its shards are removed. */
static void a_master_that_is_opened_at_the_last_moment_is_left_alone(void) {
  make_folder();
  state s = huge_state();
  gpuf_checkpoint *const c = open_recycling_writer();
  opened_at_rename = "run-000000000001.h5";
  for (int64_t step = 1; step < 4; step++) {
    gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
    CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
    CHECK_OK(gpuf_checkpoint_add(c, "u", &s.tensors[0], NULL, &err));
    CHECK_OK(gpuf_checkpoint_add_int64(c, "step", step, &err));
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
    CHECK(report.recycled_nbytes == 0);
  }
  opened_at_rename = NULL;
  CHECK(opened >= 0 && close(opened) == 0);
  CHECK(count_files("run-000000000001", false) == 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  check_state("run", &s, 3);
  destroy_state(&s);
  remove_folder();
}

int main(void) {
  test_device = host_device;
  TEST(shards_expire_with_their_masters);
  TEST(shards_without_a_master_are_removed);
  TEST(a_step_is_replaced_by_one_of_another_number_of_shards);
  TEST(shards_of_expired_checkpoints_are_overwritten);
  TEST(an_expired_checkpoint_of_another_number_of_shards_is_used);
  TEST(shards_that_are_read_are_left_alone);
  TEST(a_master_that_is_opened_at_the_last_moment_is_left_alone);
  return test_finish();
}
