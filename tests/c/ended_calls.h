/* The system calls by which the program under test changes files: each is counted, and at one of
 * them the process ends by SIGKILL, or waits; opening (but with O_PATH) and reading may fail. They
 * stand before libc's for what is linked into the program. Thread-safety: any thread. */
#ifndef GPUFI_TEST_ENDED_CALLS_H
#define GPUFI_TEST_ENDED_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long call_count;
static atomic_long copy_count;   /* of those to mappings */
static atomic_long end_at;       /* the call that the process ends at; 0 = none */
static atomic_bool is_in_gate;   /* a write waits */
static atomic_bool gate_is_shut; /* writes wait */

/* errno of the next calls that open a checkpoint, read, remove a file, or copy to a mapping:
 * so many fail. */
typedef struct failing {
  atomic_int code, count;
} failing;
static failing failing_open, failing_read, failing_unlink, failing_copy;
static void (*before_open)(const char *path); /* of a checkpoint; NULL = nothing */
static void (*before_read)(void);             /* by position; NULL = nothing */
static void (*before_sync)(int fd);           /* NULL = nothing */

static inline bool fails_now(failing *f) {
  if (atomic_load(&f->count) <= 0 || atomic_fetch_sub(&f->count, 1) <= 0) {
    return false;
  }
  errno = atomic_load(&f->code);
  return true;
}

/* The thread of this name ends the process by exit(9) at its next call; NULL = none does. */
static const char *_Atomic exiting_thread;

static inline void exit_if_this_thread_does(void) {
  const char *const wanted = atomic_load(&exiting_thread);
  char name[16] = "";
  if (wanted && pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
      strcmp(name, wanted) == 0) {
    atomic_store(&exiting_thread, NULL);
    exit(9);
  }
}

/* Called before each call, and in the middle of writes. */
static inline void count_call(void) {
  exit_if_this_thread_does();
  if (atomic_fetch_add(&call_count, 1) + 1 == atomic_load(&end_at)) {
    kill(getpid(), SIGKILL);
  }
}

#define HIDDEN __attribute__((visibility("hidden")))

/* In two parts, between which the process may end. */
HIDDEN ssize_t pwrite64(int fd, const void *bytes, size_t nbytes, off64_t offset) {
  while (atomic_load(&gate_is_shut)) {
    atomic_store(&is_in_gate, true);
    sched_yield();
  }
  count_call();
  const size_t first_nbytes = nbytes / 2;
  if (first_nbytes > 0) {
    const ssize_t done = syscall(SYS_pwrite64, fd, bytes, first_nbytes, offset);
    if (done != (ssize_t)first_nbytes) {
      return done;
    }
    count_call();
  }
  const ssize_t done = syscall(SYS_pwrite64, fd, (const char *)bytes + first_nbytes,
                               nbytes - first_nbytes, offset + (off64_t)first_nbytes);
  return done < 0 ? done : (ssize_t)first_nbytes + done;
}

/* To a mapping of a file, in two parts as well. */
HIDDEN ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long to_count,
                                const struct iovec *from, unsigned long from_count,
                                unsigned long flags) {
  const size_t nbytes = to->iov_len > 1 ? to->iov_len / 2 : to->iov_len;
  const struct iovec half = {from->iov_base, nbytes};
  const struct iovec place = {to->iov_base, nbytes};
  if (fails_now(&failing_copy)) {
    return -1;
  }
  count_call();
  atomic_fetch_add(&copy_count, 1);
  return syscall(SYS_process_vm_readv, process, &place, to_count, &half, from_count, flags);
}

HIDDEN int ftruncate64(int fd, off64_t nbytes) {
  count_call();
  return (int)syscall(SYS_ftruncate, fd, nbytes);
}

HIDDEN int fsync(int fd) {
  if (before_sync) {
    before_sync(fd);
  }
  count_call();
  return (int)syscall(SYS_fsync, fd);
}

HIDDEN int rename(const char *from, const char *to) {
  count_call();
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

HIDDEN int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
  count_call();
  return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

HIDDEN int unlink(const char *path) {
  count_call();
  return fails_now(&failing_unlink) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

HIDDEN int open64(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
  va_end(args);
  count_call();
  const char *const suffix = strrchr(path, '.');
  if (suffix && strcmp(suffix, ".h5") == 0 && !(flags & O_PATH)) {
    if (before_open) {
      before_open(path);
    }
    if (fails_now(&failing_open)) {
      return -1;
    }
  }
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

HIDDEN ssize_t pread64(int fd, void *bytes, size_t nbytes, off64_t offset) {
  if (before_read) {
    before_read();
  }
  return fails_now(&failing_read) ? -1 : syscall(SYS_pread64, fd, bytes, nbytes, offset);
}

#endif
