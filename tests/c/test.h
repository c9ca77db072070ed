/* A minimal test runner that speaks TAP 13, which `meson test` reads.
 *
 *   static void a_closed_thing_is_refused(void) { CHECK(x == 1); }
 *   int main(void) { TEST(a_closed_thing_is_refused); return test_finish(); }
 *
 * A failed CHECK ends its test (not the program). SKIP(reason) ends a test as skipped. CHECK may
 * be used only on the thread that runs the test. */
#ifndef GPUFI_TEST_H
#define GPUFI_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h> /* TEMP_FAILURE_RETRY */

static int test_count, test_failed_count;
static const char *test_skip_reason = "";
static jmp_buf test_exit;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      printf("# %s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);                       \
      longjmp(test_exit, 1);                                                                       \
    }                                                                                              \
  } while (0)

/* What `err` has while a call that is to succeed runs. */
#define CHECK_UNTOUCHED ((gpuf_status)0x5a)

/* `call` is a gpuf_ call whose last argument is &err, which it leaves alone. */
#define CHECK_OK(call)                                                                             \
  do {                                                                                             \
    const gpuf_status check_before_ = err.status;                                                  \
    const bool check_has_error_ = strstr(#call, "&err)") != NULL;                                  \
    err.status = check_has_error_ ? CHECK_UNTOUCHED : check_before_;                               \
    gpuf_status check_status_ = (call);                                                            \
    if (check_status_ != GPUF_OK) {                                                                \
      printf("# %s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call,                               \
             gpuf_status_name(check_status_), err.message);                                        \
      longjmp(test_exit, 1);                                                                       \
    }                                                                                              \
    if (check_has_error_ && err.status != CHECK_UNTOUCHED) {                                       \
      printf("# %s:%d: %s gave GPUF_OK, and the error '%s'\n", __FILE__, __LINE__, #call,          \
             err.message);                                                                         \
      longjmp(test_exit, 1);                                                                       \
    }                                                                                              \
    err.status = check_before_;                                                                    \
  } while (0)

/* `call` fails with `expected` and a message that contains `text`. */
#define CHECK_FAILS(call, expected, text)                                                          \
  do {                                                                                             \
    gpuf_status check_status_ = (call);                                                            \
    if (check_status_ != (expected) || !strstr(err.message, (text))) {                             \
      printf("# %s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call,                               \
             gpuf_status_name(check_status_), check_status_ ? err.message : "");                   \
      longjmp(test_exit, 1);                                                                       \
    }                                                                                              \
  } while (0)

#define SKIP(reason) (test_skip_reason = (reason), longjmp(test_exit, 2))

#define TEST(function) test_run(#function, function)

/* Descriptor 0 as it was: whoever closes a descriptor of a zeroed struct closes this one. */
static inline int test_keeps_stdin(const struct stat *before) {
  struct stat after;
  return fstat(STDIN_FILENO, &after) == 0 && after.st_dev == before->st_dev &&
         after.st_ino == before->st_ino;
}

/* GPUFETCH_TEST_NAME chooses the tests whose names contain it; with GPUFETCH_TEST_LIST, which may
 * have any value, the names are printed, and nothing runs. */
static inline bool test_is_wanted(const char *name) {
  const char *text = getenv("GPUFETCH_TEST_NAME");
  const bool wanted = !text || strstr(name, text);
  if (wanted && getenv("GPUFETCH_TEST_LIST")) {
    printf("# %s\n", name);
    return false;
  }
  return wanted;
}

static inline void test_run(const char *name, void (*function)(void)) {
  static struct stat stdin_before;
  if (!test_is_wanted(name)) {
    return;
  }
  if (test_count == 0 && fstat(STDIN_FILENO, &stdin_before) != 0) {
    test_failed_count++;
    printf("# run this with an open standard input\n");
  }
  int outcome = setjmp(test_exit);
  if (outcome == 0) {
    function();
  }
  if (!test_keeps_stdin(&stdin_before)) {
    printf("# descriptor 0 was closed\n");
    outcome = 1;
  }
  test_count++;
  if (outcome == 1) {
    test_failed_count++;
    printf("not ok %d - %s\n", test_count, name);
  } else if (outcome == 2) {
    printf("ok %d - %s # SKIP %s\n", test_count, name, test_skip_reason);
  } else {
    printf("ok %d - %s\n", test_count, name);
  }
  fflush(stdout);
}

static inline int test_finish(void) {
  printf("1..%d\n", test_count);
  return test_failed_count != 0;
}

#endif
