/* Running operations while their calls fail (faults.h). `run_operations` is the whole of such a
 * test:
 *
 *   - cold: each call in turn, once and from there on, also with few threads; a portion takes each
 *     call in one of these ways (portion.h). Each case runs in a forked child, so that nothing is
 *     cached from the case before, and a crash or a hang is its own.
 *   - warm: operations and faults at random, one after another in one process, for 2 seconds or as
 *     many as the environment variable GPUFETCH_TEST_SECONDS says. In the end there must be as much
 *     of everything as in the beginning.
 *
 * Every outcome is right to the byte, or an error that names its cause; and what comes next works.
 * The parent must use no device. */
#ifndef GPUFI_TEST_FAULT_CASES_H
#define GPUFI_TEST_FAULT_CASES_H

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "devices.h"
#include "faults.h"
#include "portion.h"

#define CASE_SECONDS_MAX 20
#define CALLS_MAX 400
#define BAD_CASES_MAX 5 /* of a kind of fault, before the rest is left out */
#define WARM_SECONDS_DEFAULT 2

static gpuf_error err;

typedef struct device_access {
  void *d_ptr;
  void *bytes;
  size_t nbytes;
  bool writes;
} device_access;

static inline void device_access_kernel(const void *arg) {
  const device_access *const a = arg;
  void *const memory = gpuf_host_pointer(a->d_ptr);
  memcpy(a->writes ? memory : a->bytes, a->writes ? a->bytes : memory, a->nbytes);
}

/* Write or read device memory by a kernel, so that the library's own copies start cold. */
static inline void access_device(void *d_ptr, void *bytes, size_t nbytes, bool writes) {
  const device_access args = {d_ptr, bytes, nbytes, writes};
  gpuf_stream stream;
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_host_launch(host_device, stream, device_access_kernel, &args, sizeof(args), &err));
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
}

/* `run` carries the operation out and, where it gives GPUF_OK, sets *right to whether every byte of
 * its result is right. It calls faults_disarm before it looks, if looking takes calls of the
 * library's. */
typedef struct operation {
  const char *name;
  gpuf_status (*run)(bool *right);
  bool warm_only; /* too much like another operation for the time that each call in turn takes */
} operation;

/* What a child does before the calls that may fail; set by the test. */
static void (*prepare_case)(void);

enum { CASE_GOOD = 0, CASE_NOT_REACHED = 40, CASE_WRONG, CASE_NO_CAUSE, CASE_DAMAGED, CASE_KEPT };

static const char *const case_failures[] = {
    [CASE_WRONG - CASE_NOT_REACHED] = "GPUF_OK with wrong bytes",
    [CASE_NO_CAUSE - CASE_NOT_REACHED] = "an error that does not name its cause",
    [CASE_DAMAGED - CASE_NOT_REACHED] = "the next attempt fails",
    [CASE_KEPT - CASE_NOT_REACHED] = "something is kept",
};

/* What fails in a case. */
typedef struct fault {
  fault_kind kind;
  int64_t nth;
  bool and_later;
  bool few_threads; /* besides, only one thread can be started */
} fault;

/* An error of whatever was injected says one of these. */
static inline bool names_cause(gpuf_status status) {
  static const char *const causes[] = {"injected", "memory",     "thread",       "buffer",
                                       "No space", "put/output", "Too many open"};
  for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
    if (err.status == status && strstr(err.message, causes[i])) {
      return true;
    }
  }
  return false;
}

static inline size_t pool_used_nbytes(void) {
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  CHECK_OK(gpuf_pool_get_stats(&stats, &err));
  return stats.used_nbytes;
}

/* Carry the operation out, and judge its outcome. */
static inline int attempt(const operation *op) {
  bool right = false;
  memset(&err, 0, sizeof(err));
  const gpuf_status status = op->run(&right);
  faults_disarm();
  if (status == GPUF_OK && !right) {
    return CASE_WRONG;
  }
  if (status != GPUF_OK && !names_cause(status)) {
    printf("# %s: %s\n", gpuf_status_name(status), err.message);
    return CASE_NO_CAUSE;
  }
  return CASE_GOOD;
}

/* Without a fault it succeeds, and gives every buffer back. */
static inline int attempt_unharmed(const operation *op) {
  bool right = false;
  const gpuf_status status = op->run(&right);
  if (status != GPUF_OK || !right) {
    printf("# without a fault: %s: %s\n", gpuf_status_name(status), status ? err.message : "wrong");
    return CASE_DAMAGED;
  }
  if (pool_used_nbytes() != 0) {
    printf("# %zu bytes of the pool are still in use\n", pool_used_nbytes());
    return CASE_KEPT;
  }
  return CASE_GOOD;
}

static inline void arm(const fault *f) {
  if (f->few_threads) {
    faults_arm(FAULT_THREAD, 2, true);
  }
  faults_arm(f->kind, f->nth, f->and_later);
}

/* In a child. */
static inline int run_case(const operation *op, const fault *f) {
  prepare_case();
  arm(f);
  int outcome = attempt(op);
  const bool hit = faults_hit(f->kind);
  if (outcome == CASE_GOOD) {
    outcome = attempt_unharmed(op);
  }
  fflush(stdout);
  return outcome == CASE_GOOD && !hit ? CASE_NOT_REACHED : outcome;
}

static inline int wait_for_child(pid_t child) {
  int outcome;
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  return WIFSIGNALED(outcome) ? -WTERMSIG(outcome) : WEXITSTATUS(outcome);
}

static inline int run_in_child(const operation *op, const fault *f) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(CASE_SECONDS_MAX);
    const int failed = setjmp(test_exit);
    const int outcome = failed ? CASE_DAMAGED : run_case(op, f);
    fflush(stdout);
    _exit(outcome);
  }
  return wait_for_child(child);
}

static inline void tell(const operation *op, const fault *f, int outcome) {
  printf("# %s, %s number %d%s%s: %s (%d)\n", op->name, fault_kind_names[f->kind], (int)f->nth,
         f->and_later ? " and all later" : "", f->few_threads ? ", one thread" : "",
         outcome < 0 ? strsignal(-outcome) : case_failures[outcome - CASE_NOT_REACHED], outcome);
  fflush(stdout);
}

/* --- Cold ------------------------------------------------------------------------ */

static const operation *current;
static int64_t reached[FAULT_KIND_COUNT]; /* calls of each kind that failed in some case */

/* Each call of a kind in turn, or a portion of them, until there is none so late. Gives the number
 * of bad cases. */
static inline int fail_each(fault f, int way) {
  const portion p = portion_of_cases(way);
  int bad = 0;
  int outcome = CASE_GOOD;
  for (f.nth = p.first; outcome != CASE_NOT_REACHED && bad < BAD_CASES_MAX; f.nth += p.step) {
    CHECK(f.nth < CALLS_MAX);
    outcome = run_in_child(current, &f);
    reached[f.kind] += outcome != CASE_NOT_REACHED;
    if (outcome != CASE_GOOD && outcome != CASE_NOT_REACHED) {
      bad++;
      tell(current, &f, outcome);
    }
  }
  return bad;
}

static inline void every_failure_is_reported_or_harmless(void) {
  int bad = 0;
  for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
    bad += fail_each((fault){.kind = (fault_kind)kind}, 0);
    bad += fail_each((fault){.kind = (fault_kind)kind, .and_later = true}, 1);
    if (kind != FAULT_THREAD) {
      const fault f = {.kind = (fault_kind)kind, .and_later = true, .few_threads = true};
      bad += fail_each(f, 2);
    }
  }
  CHECK(bad == 0);
}

/* A call that is not sent to faults.c any more, because it has another name, would go unnoticed. */
static inline void every_kind_of_call_has_failed(void) {
  for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
    CHECK(reached[kind] > 0);
  }
}

/* --- Warm ------------------------------------------------------------------------ */

static const operation *warm_operations;
static size_t warm_operation_count;

/* What must not grow. */
typedef struct holdings {
  fault_balance balance;
  int descriptor_count;
  int thread_count;
} holdings;

static inline int count_folder(const char *path) {
  DIR *const listing = opendir(path);
  int count = 0;
  CHECK(listing);
  while (readdir(listing)) {
    count++;
  }
  closedir(listing);
  return count;
}

/* After what is kept for later is given back, and the threads that are parked have ended; those of
 * streams stay. */
static inline holdings take_stock(void) {
  const struct timespec pause = {0, 10000000};
  int threads = count_folder("/proc/self/task"), settled = 0;
  gpuf_pool_trim(0);
  gpuf_device_trim();
  for (int i = 0; i < 1000 && settled < 150; i++) { /* threads stay parked for a second */
    const int now = count_folder("/proc/self/task");
    settled = now == threads ? settled + 1 : 0;
    threads = now;
    nanosleep(&pause, NULL);
  }
  return (holdings){faults_balance(), count_folder("/proc/self/fd"), threads};
}

static inline int64_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

/* An operation at random with one or two faults at random, and then without. */
static inline int random_case(uint64_t *state) {
  const operation *const op = &warm_operations[random_below(state, warm_operation_count)];
  const int count = 1 + (int)random_below(state, 2);
  fault f = {0};
  for (int i = 0; i < count; i++) {
    f.kind = (fault_kind)random_below(state, FAULT_KIND_COUNT);
    f.nth = 1 + (int64_t)random_below(state, UINT64_C(1) << random_below(state, 7));
    f.and_later = random_below(state, 2);
    f.few_threads = random_below(state, 4) == 0;
    arm(&f);
  }
  int outcome = attempt(op);
  if (outcome == CASE_GOOD) {
    outcome = attempt_unharmed(op);
  }
  if (outcome != CASE_GOOD) {
    tell(op, &f, outcome);
  }
  if (random_below(state, 16) == 0) {
    gpuf_pool_trim(0);
    gpuf_device_trim();
  }
  return outcome;
}

/* Channels and records of scratch are kept, as many as were in use at once. */
#define KEPT_ALLOCATIONS_MAX 400
#define KEPT_THREADS_MAX 40
#define KEPT_MAPPED_NBYTES_MAX ((int64_t)128 << 20)

static inline int check_kept(holdings before, holdings after, int64_t rounds) {
  const int64_t more = after.balance.allocation_count - before.balance.allocation_count;
  const int64_t more_nbytes = after.balance.mapped_nbytes - before.balance.mapped_nbytes;
  printf("# %jd faults: %jd allocations, %jd mapped bytes, %d descriptors, %d threads more\n",
         (intmax_t)rounds, (intmax_t)more, (intmax_t)more_nbytes,
         after.descriptor_count - before.descriptor_count,
         after.thread_count - before.thread_count);
  fflush(stdout);
  return more > KEPT_ALLOCATIONS_MAX || more_nbytes > KEPT_MAPPED_NBYTES_MAX ||
                 after.descriptor_count > before.descriptor_count ||
                 after.thread_count > before.thread_count + KEPT_THREADS_MAX
             ? CASE_KEPT
             : CASE_GOOD;
}

static inline int warm_seconds(void) {
  const char *const text = getenv("GPUFETCH_TEST_SECONDS");
  const int seconds = text ? atoi(text) : 0;
  return seconds > 0 ? seconds : WARM_SECONDS_DEFAULT;
}

/* In a child. */
static inline int run_warm(void) {
  uint64_t state = 11;
  int64_t rounds = 0;
  prepare_case();
  for (size_t i = 0; i < warm_operation_count; i++) {
    CHECK(attempt_unharmed(&warm_operations[i]) == CASE_GOOD);
  }
  const holdings before = take_stock();
  const int64_t end = seconds_now() + warm_seconds();
  while (seconds_now() < end) {
    const int outcome = random_case(&state);
    if (outcome != CASE_GOOD) {
      printf("# in round %jd\n", (intmax_t)rounds);
      return outcome;
    }
    alarm(CASE_SECONDS_MAX);
    rounds++;
  }
  return check_kept(before, take_stock(), rounds);
}

static inline void random_failures_one_after_another_leave_nothing(void) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(2 * CASE_SECONDS_MAX);
    const int failed = setjmp(test_exit);
    const int outcome = failed ? CASE_DAMAGED : run_warm();
    fflush(stdout);
    _exit(outcome);
  }
  const int outcome = wait_for_child(child);
  if (outcome != CASE_GOOD) {
    printf("# outcome %d\n", outcome);
  }
  CHECK(outcome == CASE_GOOD);
}

/* --- Both ------------------------------------------------------------------------ */

/* With GPUFETCH_TEST_SECONDS set, warm only. */
static inline int run_operations(const operation *operations, size_t count, void (*prepare)(void)) {
  prepare_case = prepare;
  warm_operations = operations;
  warm_operation_count = count;
  if (!getenv("GPUFETCH_TEST_SECONDS")) {
    for (size_t i = 0; i < count; i++) {
      char name[128];
      if (operations[i].warm_only) {
        continue;
      }
      current = &operations[i];
      snprintf(name, sizeof(name), "every failure is reported or harmless: %s", current->name);
      test_run(name, every_failure_is_reported_or_harmless);
    }
    TEST(every_kind_of_call_has_failed);
  }
  TEST(random_failures_one_after_another_leave_nothing);
  return test_finish();
}

#endif
