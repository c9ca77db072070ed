/* The system calls of the program under test that change or read files, which fail, are
 * interrupted or do less than they were asked to, on demand. They stand before libc's for
 * what is linked into the program, not for a libhdf5 that it loads. Thread-safety: any thread. */
#ifndef GPUFI_TEST_REFUSED_CALLS_H
#define GPUFI_TEST_REFUSED_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum call_kind {
  CALL_PWRITE,
  CALL_PREAD,
  CALL_FTRUNCATE,
  CALL_OPEN,
  CALL_FLOCK,
  CALL_KIND_COUNT,
} call_kind;

static const char *const call_names[] = {"pwrite", "pread", "ftruncate", "open", "flock"};

/* Of each kind: calls so far, the number from which on they fail (0 = none does), with what, and
 * whether those after it fail too. */
static atomic_long call_counts[CALL_KIND_COUNT];
static atomic_long refused_from[CALL_KIND_COUNT];
static atomic_int refused_with[CALL_KIND_COUNT];
static atomic_bool refused_later[CALL_KIND_COUNT], was_refused[CALL_KIND_COUNT];
/* Calls do a part of what they were asked to, or are interrupted, in turns. */
static atomic_bool calls_are_cut;

static inline void refuse_none(void) {
  for (int kind = 0; kind < CALL_KIND_COUNT; kind++) {
    atomic_store(&refused_from[kind], 0);
    atomic_store(&was_refused[kind], false);
    atomic_store(&call_counts[kind], 0);
  }
}

/* The nth call of the kind from now on fails with `code`. */
static inline void refuse_calls(call_kind kind, long nth, int code, bool and_later) {
  refuse_none();
  atomic_store(&refused_with[kind], code);
  atomic_store(&refused_later[kind], and_later);
  atomic_store(&refused_from[kind], nth);
}

/* With errno if so. */
static inline bool is_refused(call_kind kind) {
  const long number = atomic_fetch_add(&call_counts[kind], 1) + 1;
  const long from = atomic_load(&refused_from[kind]);
  if (from == 0 || number < from || (number > from && !atomic_load(&refused_later[kind]))) {
    return false;
  }
  atomic_store(&was_refused[kind], true);
  errno = atomic_load(&refused_with[kind]);
  return true;
}

/* With errno if so. */
static inline bool is_interrupted(void) {
  static atomic_uint turn;
  const bool is_so = atomic_load(&calls_are_cut) && atomic_fetch_add(&turn, 1) % 3 == 0;
  errno = is_so ? EINTR : errno;
  return is_so;
}

static inline size_t cut(size_t nbytes) {
  static atomic_uint turn;
  const unsigned by = atomic_fetch_add(&turn, 1) % 4;
  return atomic_load(&calls_are_cut) && nbytes > 1 && by ? nbytes / by / 2 + 1 : nbytes;
}

/* A libhdf5 that is loaded would find them otherwise. */
#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN ssize_t pwrite64(int fd, const void *bytes, size_t nbytes, off64_t offset) {
  if (is_refused(CALL_PWRITE) || is_interrupted()) {
    return -1;
  }
  return syscall(SYS_pwrite64, fd, bytes, cut(nbytes), offset);
}

HIDDEN ssize_t pread64(int fd, void *bytes, size_t nbytes, off64_t offset) {
  if (is_refused(CALL_PREAD) || is_interrupted()) {
    return -1;
  }
  return syscall(SYS_pread64, fd, bytes, cut(nbytes), offset);
}

HIDDEN int ftruncate64(int fd, off64_t nbytes) {
  const bool fails = is_refused(CALL_FTRUNCATE) || is_interrupted();
  return fails ? -1 : (int)syscall(SYS_ftruncate, fd, nbytes);
}

HIDDEN int open64(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
  va_end(args);
  const bool fails = is_refused(CALL_OPEN) || is_interrupted();
  return fails ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

HIDDEN int flock(int fd, int operation) {
  const bool fails = is_refused(CALL_FLOCK) || is_interrupted();
  return fails ? -1 : (int)syscall(SYS_flock, fd, operation);
}

#endif
