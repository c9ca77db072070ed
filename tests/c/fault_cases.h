/* Running operations with each of their calls failing in turn (faults.h). Each case runs in a
 * forked child, so that nothing is cached from the case before, and a crash or a hang is its own.
 * The parent must use no device. */
#ifndef GPUFI_TEST_FAULT_CASES_H
#define GPUFI_TEST_FAULT_CASES_H

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices.h"
#include "faults.h"

#define CASE_SECONDS_MAX 20
#define CALLS_MAX 400

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
} operation;

/* What a child does before the calls that may fail; set by the test. */
static void (*prepare_case)(void);

enum { CASE_GOOD = 0, CASE_NOT_REACHED = 40, CASE_WRONG, CASE_NO_MESSAGE, CASE_DAMAGED };

static const char *const case_failures[] = {
    [CASE_WRONG - CASE_NOT_REACHED] = "GPUF_OK with wrong bytes",
    [CASE_NO_MESSAGE - CASE_NOT_REACHED] = "a failure without a message",
    [CASE_DAMAGED - CASE_NOT_REACHED] = "the next attempt fails",
};

/* What fails in a case. */
typedef struct fault {
  fault_kind kind;
  int64_t nth;
  bool and_later;
  bool few_threads; /* besides, only one thread can be started */
} fault;

/* In a child. */
static inline int run_case(const operation *op, const fault *f) {
  bool right = false;
  prepare_case();
  memset(&err, 0, sizeof(err));
  if (f->few_threads) {
    faults_arm(FAULT_THREAD, 2, true);
  }
  faults_arm(f->kind, f->nth, f->and_later);
  const gpuf_status status = op->run(&right);
  const bool hit = faults_hit(f->kind);
  faults_disarm();
  if (status == GPUF_OK && !right) {
    return CASE_WRONG;
  }
  if (status != GPUF_OK && !err.message[0]) {
    return CASE_NO_MESSAGE;
  }
  right = false;
  if (op->run(&right) != GPUF_OK || !right) {
    printf("# after %s: %s\n", gpuf_status_name(status), err.message);
    fflush(stdout);
    return CASE_DAMAGED;
  }
  return hit ? CASE_GOOD : CASE_NOT_REACHED;
}

static inline int run_in_child(const operation *op, const fault *f) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(CASE_SECONDS_MAX);
    const int failed = setjmp(test_exit);
    _exit(failed ? CASE_DAMAGED : run_case(op, f));
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  return WIFSIGNALED(outcome) ? -WTERMSIG(outcome) : WEXITSTATUS(outcome);
}

static const operation *current;

static inline void tell(const fault *f, int outcome) {
  printf("# %s, %s number %d%s%s: %s (%d)\n", current->name, fault_kind_names[f->kind], (int)f->nth,
         f->and_later ? " and all later" : "", f->few_threads ? ", one thread" : "",
         outcome < 0 ? strsignal(-outcome) : case_failures[outcome - CASE_NOT_REACHED], outcome);
}

/* Each call of a kind in turn, until there is none so late. Gives the number of bad cases. */
static inline int fail_each(fault f) {
  int bad = 0;
  int outcome = CASE_GOOD;
  for (f.nth = 1; outcome != CASE_NOT_REACHED; f.nth++) {
    CHECK(f.nth < CALLS_MAX);
    outcome = run_in_child(current, &f);
    if (outcome != CASE_GOOD && outcome != CASE_NOT_REACHED) {
      bad++;
      tell(&f, outcome);
    }
  }
  return bad;
}

static inline void every_failure_is_reported_or_harmless(void) {
  int bad = 0;
  for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
    bad += fail_each((fault){.kind = (fault_kind)kind});
    bad += fail_each((fault){.kind = (fault_kind)kind, .and_later = true});
    if (kind != FAULT_THREAD) {
      bad += fail_each((fault){.kind = (fault_kind)kind, .and_later = true, .few_threads = true});
    }
  }
  CHECK(bad == 0);
}

static inline int run_operations(const operation *operations, size_t count, void (*prepare)(void)) {
  prepare_case = prepare;
  for (size_t i = 0; i < count; i++) {
    char name[128];
    current = &operations[i];
    snprintf(name, sizeof(name), "every failure is reported or harmless: %s", current->name);
    test_run(name, every_failure_is_reported_or_harmless);
  }
  return test_finish();
}

#endif
