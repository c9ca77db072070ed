/* A server where memory and threads run out: starting one succeeds or leaves nothing behind, and no
 * answer to a request is lost. */
#include "server/answers.h"

#include <gpufetch/serve.h>

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entries.h"
#include "faults.h"

static gpuf_error err;
static char folder[] = "/tmp/gpufetch-test-XXXXXX";

/* Start and stop a server while calls of a kind fail. Returns whether one did. */
static bool start_with_fault(fault_kind kind, int nth, bool and_later) {
  gpuf_server *server = NULL;
  faults_arm(kind, nth, and_later);
  const gpuf_status status = gpuf_server_start(NULL, &server, &err);
  faults_disarm();
  CHECK((server != NULL) == (status == GPUF_OK));
  CHECK(status == GPUF_OK || status == GPUF_ERR_NO_MEMORY);
  CHECK_OK(gpuf_server_stop(server, &err));
  return faults_hit(kind);
}

static void a_start_without_memory_or_threads_leaves_nothing(void) {
  static const fault_kind kinds[] = {FAULT_MALLOC, FAULT_THREAD};
  start_with_fault(FAULT_MALLOC, 100000, false);
  const int files = count_entries(folder), descriptors = count_entries("/proc/self/fd");
  const int threads = count_entries("/proc/self/task");
  for (int i = 0; i < 4; i++) {
    int nth = 1;
    while (start_with_fault(kinds[i / 2], nth, i % 2)) {
      CHECK(count_entries(folder) == files);
      CHECK(count_entries("/proc/self/fd") == descriptors);
      CHECK(count_entries("/proc/self/task") == threads);
      nth++;
    }
    CHECK(nth > 2);
  }
}

static void an_answer_whose_memory_was_reserved_is_not_lost(void) {
  gpufi_answers answers;
  uint64_t count = 0;
  gpufi_answers_init(&answers);
  CHECK(gpufi_answers_reserve(&answers, 5));
  faults_arm(FAULT_MALLOC, 1, true);
  for (uint64_t tag = 0; tag < 5; tag++) {
    gpufi_answers_put(&answers, 7, tag, NULL);
  }
  CHECK(!gpufi_answers_reserve(&answers, 1));
  faults_disarm();
  gpufi_answer *first = gpufi_answers_take(&answers);
  for (gpufi_answer *next; first; first = next, count++) {
    CHECK(first->client == 7 && first->tag == count);
    next = first->next;
    free(first);
  }
  CHECK(count == 5);
  CHECK(!gpufi_answers_take(&answers));
  CHECK(gpufi_answers_reserve(&answers, 3) && answers.spare_count == 3);
  CHECK(gpufi_answers_reserve(&answers, 1) && answers.spare_count == 1);
  gpufi_answers_fini(&answers);
}

/* --- Limits of the process ------------------------------------------------------ */

typedef enum outcome { STARTED, REFUSED, ANOTHER } outcome;

/* In a child: start and stop a server under a limit, as a user whom limits on processes bind. */
static outcome start_limited(int resource, rlim_t value, const char *named) {
  const struct rlimit limit = {value, value};
  gpuf_server *server = NULL;
  if (setrlimit((__rlimit_resource_t)resource, &limit) != 0) {
    return ANOTHER;
  }
  if (resource == RLIMIT_NPROC && geteuid() == 0 && setuid(65534) != 0) {
    return ANOTHER;
  }
  if (gpuf_server_start(NULL, &server, &err) != GPUF_OK) {
    const bool says_remedy = strstr(err.message, "raise") || strstr(err.message, "set JUPYTER_");
    return strstr(err.message, named) && says_remedy ? REFUSED : ANOTHER;
  }
  return gpuf_server_stop(server, &err) == GPUF_OK ? STARTED : ANOTHER;
}

static outcome outcome_under(int resource, rlim_t value, const char *named) {
  int status = 0;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    _exit((int)start_limited(resource, value, named));
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == ANOTHER) {
    printf("# %s of %ju: %s %d\n", named, (uintmax_t)value, WIFEXITED(status) ? "exit" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) != ANOTHER);
  return (outcome)WEXITSTATUS(status);
}

static void too_few_descriptors_are_an_error_that_names_the_limit(void) {
  const rlim_t open_count = (rlim_t)count_entries("/proc/self/fd");
  CHECK(outcome_under(RLIMIT_NOFILE, 4, "RLIMIT_NOFILE") == REFUSED);
  for (rlim_t value = 5; value < open_count + 45; value++) {
    outcome_under(RLIMIT_NOFILE, value, "RLIMIT_NOFILE");
  }
  CHECK(outcome_under(RLIMIT_NOFILE, open_count + 45, "RLIMIT_NOFILE") == STARTED);
}

static void files_of_no_bytes_are_an_error(void) {
  CHECK(outcome_under(RLIMIT_FSIZE, 0, "File too large") == REFUSED);
}

static void too_few_threads_are_an_error_that_names_the_limit(void) {
  struct rlimit now;
  CHECK(chmod(folder, 0777) == 0 && getrlimit(RLIMIT_NPROC, &now) == 0);
  CHECK(outcome_under(RLIMIT_NPROC, 1, "RLIMIT_NPROC") == REFUSED);
  for (rlim_t value = 2; value < 16; value++) {
    outcome_under(RLIMIT_NPROC, value, "RLIMIT_NPROC");
  }
  CHECK(outcome_under(RLIMIT_NPROC, now.rlim_cur, "RLIMIT_NPROC") == STARTED);
}

static void too_little_memory_is_an_error_that_names_the_limit(void) {
  const rlim_t mib = 1 << 20;
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%lu", &pages) == 1);
  fclose(file);
  const rlim_t now = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
  CHECK(outcome_under(RLIMIT_AS, now + mib, "RLIMIT_AS") == REFUSED);
  for (rlim_t more = 2; more < 160; more += 2) {
    outcome_under(RLIMIT_AS, now + more * mib, "RLIMIT_AS");
  }
  CHECK(outcome_under(RLIMIT_AS, now + 4096 * mib, "RLIMIT_AS") == STARTED);
}

int main(void) {
  if (!mkdtemp(folder) || setenv("JUPYTER_RUNTIME_DIR", folder, 1) != 0) {
    return 1;
  }
  TEST(too_few_descriptors_are_an_error_that_names_the_limit);
  TEST(files_of_no_bytes_are_an_error);
  TEST(too_few_threads_are_an_error_that_names_the_limit);
  TEST(too_little_memory_is_an_error_that_names_the_limit);
  TEST(an_answer_whose_memory_was_reserved_is_not_lost);
  TEST(a_start_without_memory_or_threads_leaves_nothing);
  rmdir(folder);
  return test_finish();
}
