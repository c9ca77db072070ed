/* Calls on files that fail on demand, beside those of faults.c: for tests whose programs name them
 * to the linker. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include "faults.h"

#define WRAP_FILE(type, name, parameters, arguments, code)                                         \
  type __real_##name parameters;                                                                   \
  type __wrap_##name parameters;                                                                   \
  type __wrap_##name parameters {                                                                  \
    return faults_fail(FAULT_SYSTEM) ? (errno = (code), -1) : __real_##name arguments;             \
  }

WRAP_FILE(ssize_t, pwrite64, (int fd, const void *bytes, size_t nbytes, off_t offset),
          (fd, bytes, nbytes, offset), ENOSPC)
WRAP_FILE(int, fsync, (int fd), (fd), EIO)
WRAP_FILE(int, rename, (const char *from, const char *to), (from, to), ENOSPC)
WRAP_FILE(int, renameat2,
          (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
          (from_fd, from, to_fd, to, flags), ENOSPC)
WRAP_FILE(int, unlink, (const char *path), (path), EIO)
WRAP_FILE(int, flock, (int fd, int operation), (fd, operation), EIO)

WRAP_FILE(ssize_t, process_vm_readv,
          (pid_t process, const struct iovec *to, unsigned long to_count, const struct iovec *from,
           unsigned long from_count, unsigned long flags),
          (process, to, to_count, from, from_count, flags), EFAULT)

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  const long argument = va_arg(args, long);
  va_end(args);
  return faults_fail(FAULT_SYSTEM) ? (errno = EAGAIN, -1) : __real_fcntl64(fd, command, argument);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
  va_end(args);
  return faults_fail(FAULT_SYSTEM) ? (errno = EMFILE, -1) : __real_open64(path, flags, mode);
}
