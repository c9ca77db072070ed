/* A folder that is removed and made again, or a file that is replaced, by the writer of another job
 * while a checkpoint is written: nothing of that writer's is published, cut or removed. */
#include "ended_calls.h"

#include "checkpoint_steps.h"

#define THEIR_TEMPORARY ".run-000000000005.h5.tmp"

/* Another job's file, half written. */
static void put_theirs(const char *name) {
  const int fd = creat(path_in_folder(name), 0666);
  CHECK(fd >= 0 && write(fd, "theirs", 6) == 6 && close(fd) == 0);
}

static void make_again(void) {
  remove_folder();
  CHECK(mkdir(folder, 0777) == 0);
  put_theirs(THEIR_TEMPORARY);
}

/* Nothing but theirs is in the folder. */
static void check_theirs(void) {
  struct stat file;
  CHECK(stat(path_in_folder(THEIR_TEMPORARY), &file) == 0 && file.st_size == 6);
  CHECK(count_files("", false) == 1);
}

static atomic_bool is_awaited; /* the first flush of a file; shards are flushed side by side */

static void make_again_at_flush(int fd) {
  struct stat file;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && atomic_exchange(&is_awaited, false)) {
    make_again();
  }
}

static void check_refused(gpuf_checkpoint *c, const char *message, int code) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_IO, message);
  CHECK(report.system_error == code);
  CHECK_FAILS(gpuf_checkpoint_close(c, NULL, &err), GPUF_ERR_IO, message);
}

static void another_writers_temporary_is_not_published(void) {
  for (int recycles = 0; recycles < 2; recycles++) {
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.unsynced = false;
    options.keep_count = 1;
    options.recycle = recycles > 0;
    gpuf_checkpoint *const c = open_writer(&options);
    for (int64_t step = 1; step <= 3; step++) {
      write_step(c, step);
    }
    atomic_store(&is_awaited, true);
    commit_step(c, 5);
    check_refused(c, "was replaced by another program", ESTALE);
    CHECK(!atomic_load(&is_awaited));
    check_theirs();
    remove_folder();
  }
}

static void no_master_is_published_whose_shards_are_gone(void) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.unsynced = false;
  options.shard_count = 2;
  gpuf_checkpoint *const c = open_writer(&options);
  atomic_store(&is_awaited, true);
  commit_step(c, 5);
  check_refused(c, "was removed by another program", ENOENT);
  check_theirs();
  remove_folder();
}

/* The master is opened by its name once the shards are written. */
static void another_writers_master_is_not_cut(void) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.shard_count = 2;
  gpuf_checkpoint *const c = open_writer(&options);
  atomic_store(&gate_is_shut, true);
  commit_step(c, 5);
  while (!atomic_load(&is_in_gate)) {
    sched_yield();
  }
  CHECK(unlink(path_in_folder(THEIR_TEMPORARY)) == 0);
  put_theirs(THEIR_TEMPORARY);
  atomic_store(&gate_is_shut, false);
  check_refused(c, "was replaced by another program", ESTALE);
  CHECK(unlink(path_in_folder(".run.lock")) == 0);
  check_theirs();
  remove_folder();
}

static void a_folder_that_was_made_again_after_begin_is_left_alone(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 5, NULL, &err));
  make_again();
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_FAILS(gpuf_checkpoint_close(c, NULL, &err), GPUF_ERR_STATE, "open it again");
  check_theirs();
  remove_folder();
}

int main(void) {
  before_sync = make_again_at_flush;
  TEST(another_writers_temporary_is_not_published);
  TEST(no_master_is_published_whose_shards_are_gone);
  TEST(another_writers_master_is_not_cut);
  TEST(a_folder_that_was_made_again_after_begin_is_left_alone);
  return test_finish();
}
