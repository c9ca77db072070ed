/* Tests that take each case of a kind in turn, such as each system call that may fail, take a
 * portion of the cases where GPUFETCH_TEST_PORTION is K/N: the K-th, and every N-th after it.
 * tests/c/meson.build has the portions of everyday runs. With GPUFETCH_TEST_ALL set, or from a
 * shell, a test takes all. */
#ifndef GPUFI_TEST_PORTION_H
#define GPUFI_TEST_PORTION_H

#include <stdio.h>
#include <stdlib.h>

typedef struct portion {
  long first; /* from 1 */
  long step;
} portion;

/* `turn` numbers, from 0, the loops over cases of one kind: each begins at another case, so that N
 * of them take each case once. */
static inline portion portion_of_cases(int turn) {
  const char *const text = getenv("GPUFETCH_TEST_PORTION");
  portion p = {1, 1};
  if (!text || getenv("GPUFETCH_TEST_ALL")) {
    return p;
  }
  if (sscanf(text, "%ld/%ld", &p.first, &p.step) != 2 || p.step < 1 || p.first < 1) {
    printf("Bail out! GPUFETCH_TEST_PORTION is '%s', not as 1/4\n", text);
    exit(1); /* NOLINT(concurrency-mt-unsafe) */
  }
  p.first = (p.first - 1 + turn) % p.step + 1;
  return p;
}

#endif
