/* Floating-point environments that programs have, and whether a call leaves them as they are. */
#ifndef GPUFI_TEST_ENVIRONMENTS_H
#define GPUFI_TEST_ENVIRONMENTS_H

#include <fenv.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "test.h"

#define COMMON_TRAPS (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW)

typedef struct environment {
  const char *name;
  int rounding;
  int traps;
  bool flushes; /* subnormal numbers to zero, as a program does that is linked with -ffast-math */
} environment;

/* The first is the default one. */
static const environment environments[] = {
    {"to nearest", FE_TONEAREST, 0, false},
    {"upward", FE_UPWARD, 0, false},
    {"downward", FE_DOWNWARD, 0, false},
    {"toward zero", FE_TOWARDZERO, 0, false},
    {"flushing", FE_TONEAREST, 0, true},
    {"trapping", FE_TONEAREST, COMMON_TRAPS, false},
    {"upward, flushing, trapping", FE_UPWARD, COMMON_TRAPS, true},
};
enum { ENVIRONMENT_COUNT = sizeof(environments) / sizeof(environments[0]) };

static inline void set_flushing(bool flushes) {
#if defined(__x86_64__)
  const unsigned bits = 0x8040; /* flush to zero, denormals are zeros */
  _mm_setcsr(flushes ? _mm_getcsr() | bits : _mm_getcsr() & ~bits);
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  control = flushes ? control | UINT64_C(1) << 24 : control & ~(UINT64_C(1) << 24);
  __asm__ volatile("msr fpcr, %0" ::"r"(control));
#endif
}

static inline bool is_flushing(void) {
#if defined(__x86_64__)
  return (_mm_getcsr() & 0x8040) == 0x8040;
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control >> 24 & 1;
#else
  return false;
#endif
}

/* What the program sees of its environment. */
typedef struct environment_state {
  int rounding, traps, flags;
  bool flushes;
} environment_state;

static inline environment_state environment_now(void) {
  return (environment_state){fegetround(), fegetexcept(), fetestexcept(FE_ALL_EXCEPT),
                             is_flushing()};
}

static inline void leave_environment(void) {
  fesetenv(FE_DFL_ENV);
  set_flushing(false);
}

/* Also raises flags, which a call must not clear. Where the machine cannot trap it does not. */
static inline environment_state enter_environment(const environment *e) {
  leave_environment();
  feraiseexcept((FE_UNDERFLOW | FE_INEXACT) & ~e->traps);
  fesetround(e->rounding);
  feenableexcept(e->traps);
  set_flushing(e->flushes);
  return environment_now();
}

#define CHECK_ENVIRONMENT(expected)                                                                \
  do {                                                                                             \
    const environment_state now_ = environment_now();                                              \
    CHECK(now_.rounding == (expected).rounding && now_.traps == (expected).traps);                 \
    CHECK(now_.flags == (expected).flags && now_.flushes == (expected).flushes);                   \
  } while (0)

/* The same but for the flags, after calls of HDF5, which computes with numbers of its own. */
#define CHECK_ENVIRONMENT_BUT_FLAGS(expected)                                                      \
  do {                                                                                             \
    const environment_state now_ = environment_now();                                              \
    CHECK(now_.rounding == (expected).rounding && now_.traps == (expected).traps);                 \
    CHECK(now_.flushes == (expected).flushes);                                                     \
  } while (0)

/* --- In a process of its own ----------------------------------------------------- */

/* What calls gave, in the order of the calls: a sum of its bytes each. */
typedef struct outcomes {
  size_t count;
  struct {
    char name[60];
    uint64_t sum;
  } each[4096];
} outcomes;

static outcomes *recorded; /* those of this process */

static inline void record(const char *name, const void *data, size_t nbytes) {
  const unsigned char *bytes = data;
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  CHECK(recorded->count < sizeof(recorded->each) / sizeof(recorded->each[0]));
  for (size_t i = 0; i < nbytes; i++) {
    sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
  }
  snprintf(recorded->each[recorded->count].name, sizeof(recorded->each[0].name), "%s", name);
  recorded->each[recorded->count++].sum = sum;
}

/* Run a function in a forked process, so that the threads of the library, too, begin in the
 * environment. The process that calls this has called nothing of the library. */
static inline void run_in_environment(void (*function)(const environment *e), const environment *e,
                                      outcomes *to) {
  int status = -1;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    recorded = to;
    if (setjmp(test_exit) == 0) {
      function(e);
      leave_environment();
      fflush(stdout);
      _exit(0);
    }
    fflush(stdout);
    _exit(1);
  }
  CHECK(child > 0 && TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) == child);
  if (status != 0) {
    printf("# %s: %s %d, after %s\n", e->name, WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
           to->count ? to->each[to->count - 1].name : "nothing");
  }
  CHECK(status == 0);
}

/* Run it in each of the environments, and compare what it records. */
static inline void run_in_environments(void (*function)(const environment *e)) {
  outcomes *const all = mmap(NULL, ENVIRONMENT_COUNT * sizeof(*all), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(all != MAP_FAILED);
  for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
    int differing = 0;
    run_in_environment(function, &environments[i], &all[i]);
    CHECK(all[i].count > 0 && all[i].count == all[0].count);
    for (size_t k = 0; k < all[i].count; k++) {
      if (all[i].each[k].sum != all[0].each[k].sum && differing++ < 5) {
        printf("# %s: %s differs\n", environments[i].name, all[i].each[k].name);
      }
    }
    CHECK(differing == 0);
  }
  munmap(all, ENVIRONMENT_COUNT * sizeof(*all));
}

#endif
