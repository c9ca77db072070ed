/* Ranks that end while they write a checkpoint together, at each system call, and one whose disk is
 * full: no master appears whose shards are not whole, the one before stands, and the other ranks
 * learn of it. */
#include "ended_calls.h"

#include <sys/resource.h>

#include "checkpoint_ranks.h"
#include "portion.h"

#define CALLS_MAX 500

static const int64_t shape[] = {300, 500};

/* How the last checkpoint ended on each rank: its status, or -1 while that is not known. */
typedef struct outcomes {
  atomic_int status[RANKS_MAX];
  char messages[RANKS_MAX][GPUF_ERROR_MESSAGE_NBYTES];
} outcomes;
static outcomes *shared;

static void share_outcomes(void) {
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
}

static gpuf_checkpoint *open_as_rank(void) {
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_checkpoint *c = NULL;
  options.unsynced = false;
  options.keep_count = 2;
  options.thread_count = 1;
  return gpuf_checkpoint_open(&options, &c, NULL, &err) == GPUF_OK ? c : NULL;
}

static gpuf_status write_step(gpuf_checkpoint *c, int64_t step) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, (uint64_t)step);
  gpuf_status status = gpuf_checkpoint_begin(c, step, NULL, &err);
  if (status == GPUF_OK) {
    add_rows(c, "u", &u);
    gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err);
    status = gpuf_checkpoint_wait(c, -1, NULL, &err);
  }
  destroy(&u);
  return status;
}

static void write_first_steps(void) {
  gpuf_checkpoint *const c = open_as_rank();
  CHECK(c);
  CHECK_OK(write_step(c, 1));
  CHECK_OK(write_step(c, 2));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void note_outcome(gpuf_status status) {
  snprintf(shared->messages[this_rank], sizeof(shared->messages[0]), "%s",
           status == GPUF_OK ? "" : err.message);
  atomic_store(&shared->status[this_rank], status);
}

/* --- What is there afterwards --------------------------------------------------- */

static atomic_llong *newest; /* shared: what check_newest has found */

static void check_newest(void) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.skipped_count == 0); /* nothing that is not whole has a checkpoint's name */
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, (uint64_t)report.step);
  gpuf_tensor found = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 77);
  CHECK_OK(gpuf_restart_read(r, "u", &found, NULL, &err));
  CHECK(memcmp(found.data, expected.data, gpuf_tensor_nbytes(&found)) == 0);
  gpuf_restart_close(r);
  atomic_store(newest, report.step);
}

static int64_t find_newest(void) {
  run_alone(check_newest);
  return atomic_load(newest);
}

/* The next writer, which is alone here, removes what was left. */
static void open_and_close(void) {
  const gpuf_checkpoint_options options = options_in_folder("run");
  CHECK_OK(gpuf_checkpoint_close(open_writer(&options), NULL, &err));
}

static void check_folder(int64_t step) {
  run_alone(open_and_close);
  CHECK(count_files(".tmp", false) == 0 && count_files(".part", false) == 0);
  CHECK(count_orphans() == 0 && count_files("run-", false) % 3 == 0);
  CHECK(find_newest() == step);
}

/* --- Kills ----------------------------------------------------------------------- */

static long ends_at;
static int ends_rank;

static void one_cycle(void) {
  if (this_rank == ends_rank) {
    atomic_store(&call_count, 0);
    atomic_store(&end_at, ends_at);
  }
  gpuf_checkpoint *const c = open_as_rank();
  if (!c) {
    note_outcome(GPUF_ERR_STATE);
    return;
  }
  note_outcome(write_step(c, 3));
  gpuf_checkpoint_close(c, NULL, &err);
}

/* Nobody says that a checkpoint is finished which is not; and whoever lives says something. */
static void check_outcomes(int64_t found, const int *ends) {
  CHECK(found == 2 || found == 3);
  for (int rank = 0; rank < 2; rank++) {
    const int status = atomic_load(&shared->status[rank]);
    CHECK(ends[rank] == -SIGKILL || status >= 0);
    CHECK(status != GPUF_OK || found == 3);
    CHECK(status <= 0 || *shared->messages[rank]);
  }
}

/* Until the rank has fewer calls in the cycle. */
static void end_at_each_call(void) {
  int ends[2] = {0, 0};
  int found_count[2] = {0, 0};
  const portion p = portion_of_cases(ends_rank);
  ends[ends_rank] = -SIGKILL;
  for (ends_at = p.first; ends[ends_rank] == -SIGKILL; ends_at += p.step) {
    CHECK(ends_at < CALLS_MAX);
    count_files("", true);
    atomic_store(&shared->status[0], -1);
    atomic_store(&shared->status[1], -1);
    run_ranks(2, write_first_steps, NULL);
    run_ranks(2, one_cycle, ends);
    CHECK(ends[!ends_rank] == 0 && (ends[ends_rank] == 0 || ends[ends_rank] == -SIGKILL));
    const int64_t found = find_newest();
    check_outcomes(found, ends);
    check_folder(found);
    found_count[found - 2]++;
  }
  CHECK(atomic_load(&shared->status[0]) == GPUF_OK && atomic_load(&shared->status[1]) == GPUF_OK);
  CHECK(found_count[0] > 0 && found_count[1] > 0);
  printf("# rank %d: %d kills, after %d of which the one before stands\n", ends_rank,
         found_count[0] + found_count[1] - 1, found_count[0]);
}

static void a_rank_that_is_killed_at_any_call_takes_no_other_with_it(void) {
  make_folder();
  for (ends_rank = 0; ends_rank < 2; ends_rank++) {
    end_at_each_call();
  }
  remove_folder();
}

/* --- A full disk ------------------------------------------------------------------ */

static int full_rank;

/* Files of one rank may not grow past some bytes; then they may again. */
static void fill_disk(void) {
  struct rlimit limit, all;
  gpuf_checkpoint *const c = open_as_rank();
  CHECK(c && getrlimit(RLIMIT_FSIZE, &all) == 0);
  CHECK_OK(write_step(c, 1));
  CHECK_OK(write_step(c, 2));
  if (this_rank == full_rank) {
    signal(SIGXFSZ, SIG_IGN);
    limit = all;
    limit.rlim_cur = 5000;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_FAILS(write_step(c, 3), GPUF_ERR_IO, "File too large");
    CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
  } else {
    char message[60];
    snprintf(message, sizeof(message), "rank %d failed", full_rank);
    CHECK_FAILS(write_step(c, 3), GPUF_ERR_STATE, message);
  }
  meet();
  CHECK(count_files("run-000000000003", false) == 0);
  CHECK_OK(write_step(c, 4));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void a_full_disk_of_one_rank_costs_one_checkpoint(void) {
  make_folder();
  for (full_rank = 0; full_rank < 3; full_rank++) {
    count_files("", true);
    run_ranks(3, fill_disk, NULL);
    CHECK(count_files("run-000000000003", false) == 0 && count_files(".part", false) == 0);
    CHECK(count_files("run-000000000004", false) == 1 + 3 && find_newest() == 4);
  }
  remove_folder();
}

/* --- Processes that end without a word -------------------------------------------- */

/* The shards are whole, and nobody says so. */
static void end_without_close(void) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 3);
  gpuf_checkpoint *const c = open_as_rank();
  CHECK_OK(gpuf_checkpoint_begin(c, 3, NULL, &err));
  add_rows(c, "u", &u);
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  if (this_rank == 0) {
    exit(0); /* NOLINT(concurrency-mt-unsafe) */
  }
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, NULL, &err), GPUF_ERR_STATE, "the ranks could not agree");
  CHECK_FAILS(gpuf_checkpoint_begin(c, 4, NULL, &err), GPUF_ERR_STATE, "the ranks could not agree");
  CHECK_FAILS(gpuf_checkpoint_close(c, NULL, &err), GPUF_ERR_STATE, "the ranks could not agree");
}

static void a_rank_that_exits_leaves_the_one_before(void) {
  make_folder();
  run_ranks(2, write_first_steps, NULL);
  run_ranks(2, end_without_close, NULL);
  check_folder(2);
  remove_folder();
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  share_outcomes();
  newest = mmap(NULL, sizeof(*newest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TEST(a_rank_that_is_killed_at_any_call_takes_no_other_with_it);
  TEST(a_full_disk_of_one_rank_costs_one_checkpoint);
  TEST(a_rank_that_exits_leaves_the_one_before);
  return test_finish();
}
