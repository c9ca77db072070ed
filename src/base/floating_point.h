/* The floating-point environment of a thread: how it rounds, whether it flushes subnormal numbers
 * to zero, which exceptions end the program (traps), and which have been raised (flags). It is the
 * program's, which may have changed any of it: by fesetround, by feenableexcept, or by being linked
 * with -ffast-math, which flushes. The library's results must not depend on it, it must not raise a
 * trap for an element that is NaN, and it must leave the program's flags alone. So whatever
 * computes with elements or other numbers of the caller's does it between two calls:
 *
 *   const gpufi_floating_point callers = gpufi_floating_point_begin();
 *   const gpuf_status status = decode(...);
 *   gpufi_floating_point_end(callers);
 *
 * where decode is a GPUFI_NOT_INLINED function: compilers do not know that arithmetic depends on
 * the environment, and may move it beyond these calls where they see both. Pairs may be nested.
 * Code of others, such as callbacks, does not run in between.
 *
 * Threads of the library have the default environment from their start (base/thread.h).
 *
 * Thread-safety: any thread; each has an environment of its own. */
#ifndef GPUFI_BASE_FLOATING_POINT_H
#define GPUFI_BASE_FLOATING_POINT_H

#include <stdint.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||           \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error                                                                                             \
    "built with -ffast-math, -Ofast or a part of them, files would be read with wrong bits: remove it"
#endif

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <fenv.h>
#endif

#define GPUFI_NOT_INLINED __attribute__((noinline))

/* NOLINTBEGIN(portability-no-assembler): the registers have no other names in C. */

#if defined(__x86_64__)

/* What they hold at a program's start: all exceptions masked, no flags, rounding to nearest. */
#define GPUFI_MXCSR_DEFAULT 0x1f80
#define GPUFI_X87_CONTROL_DEFAULT 0x037f

typedef struct gpufi_floating_point {
  uint32_t mxcsr;       /* for all arithmetic but that of long double, of which there is none */
  uint16_t x87_control; /* by which glibc rounds where it turns numbers into text and back */
} gpufi_floating_point;

static inline void gpufi_x87_control_change(uint16_t from, uint16_t to) {
  if (from != to) { /* seldom; takes longer than the comparison */
    __asm__ volatile("fldcw %0" ::"m"(to));
  }
}

static inline gpufi_floating_point gpufi_floating_point_begin(void) {
  gpufi_floating_point callers = {.mxcsr = _mm_getcsr()};
  __asm__ volatile("fnstcw %0" : "=m"(callers.x87_control));
  gpufi_x87_control_change(callers.x87_control, GPUFI_X87_CONTROL_DEFAULT);
  _mm_setcsr(GPUFI_MXCSR_DEFAULT);
  __asm__ volatile("" ::: "memory");
  return callers;
}

static inline void gpufi_floating_point_end(gpufi_floating_point callers) {
  __asm__ volatile("" ::: "memory");
  _mm_setcsr(callers.mxcsr);
  gpufi_x87_control_change(GPUFI_X87_CONTROL_DEFAULT, callers.x87_control);
}

#elif defined(__aarch64__)

typedef struct gpufi_floating_point {
  uint64_t control; /* FPCR; 0 at a program's start */
  uint64_t status;  /* FPSR: the flags */
} gpufi_floating_point;

static inline void gpufi_floating_point_set(gpufi_floating_point registers) {
  __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" ::"r"(registers.control), "r"(registers.status)
                   : "memory");
}

static inline gpufi_floating_point gpufi_floating_point_begin(void) {
  gpufi_floating_point callers;
  __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr"
                   : "=r"(callers.control), "=r"(callers.status)::"memory");
  gpufi_floating_point_set((gpufi_floating_point){0, 0});
  return callers;
}

static inline void gpufi_floating_point_end(gpufi_floating_point callers) {
  gpufi_floating_point_set(callers);
}

#else

typedef fenv_t gpufi_floating_point;

static inline gpufi_floating_point gpufi_floating_point_begin(void) {
  gpufi_floating_point callers;
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  return callers;
}

static inline void gpufi_floating_point_end(gpufi_floating_point callers) {
  fesetenv(&callers);
}

#endif
/* NOLINTEND(portability-no-assembler) */

#endif
