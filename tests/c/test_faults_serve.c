/* A server where memory and threads run out: starting one succeeds or leaves nothing behind, and no
 * answer to a request is lost. */
#include "server/answers.h"

#include <gpufetch/serve.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"
#include "test.h"

static gpuf_error err;
static char folder[] = "/tmp/gpufetch-test-XXXXXX";

static int count_entries(const char *path) {
  int count = 0;
  DIR *entries = opendir(path);
  CHECK(entries);
  while (readdir(entries)) {
    count++;
  }
  closedir(entries);
  return count;
}

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

int main(void) {
  if (!mkdtemp(folder) || setenv("JUPYTER_RUNTIME_DIR", folder, 1) != 0) {
    return 1;
  }
  TEST(an_answer_whose_memory_was_reserved_is_not_lost);
  TEST(a_start_without_memory_or_threads_leaves_nothing);
  rmdir(folder);
  return test_finish();
}
