/* Loaded by LD_PRELOAD, this lets calls of the program fail on request: allocations, mappings, and
 * of files whose path has a given text in it opening, reading, writing, flushing to the disk and
 * changes of names.
 *
 * failing_calls_set(kinds, first, count, native_code, path): of the calls of these kinds from now
 * on, those from number `first` (from 1) on fail, `count` of them. failing_calls_end ends that and
 * returns how many failed. Of a negative native_code, -9 say, the process gets the signal instead.
 * failing_calls_from(name): from now on, only allocations that are called by a loaded library whose
 * path has this text in it fail and count; "": those of all.
 * One thread uses these; calls of every thread fail, or with OWN_THREAD among the kinds, its own,
 * or with OTHER_THREADS, those of all but its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  ALLOCATION = 1,
  MAPPING = 2,
  READ = 4,
  OPEN = 8,
  WRITE = 16,
  SYNC = 32,
  NAME = 64,
  OWN_THREAD = 128,
  OTHER_THREADS = 256
};

static _Atomic int kinds;
static _Atomic long first, count, seen, failed;
static int code;
static pid_t thread;
static char path_part[256], caller_part[256];

void failing_calls_from(const char *name);
void failing_calls_set(int new_kinds, long new_first, long new_count, int native_code,
                       const char *path);
long failing_calls_end(void);

void failing_calls_set(int new_kinds, long new_first, long new_count, int native_code,
                       const char *path) {
  seen = failed = 0;
  first = new_first;
  count = new_count;
  code = native_code;
  thread = gettid();
  snprintf(path_part, sizeof(path_part), "%s", path);
  kinds = new_kinds;
}

long failing_calls_end(void) {
  kinds = 0;
  return failed;
}

void failing_calls_from(const char *name) {
  snprintf(caller_part, sizeof(caller_part), "%s", name);
}

/* Whether an allocation that is called from `address` counts. */
static bool counts(const void *address) {
  Dl_info found;
  return (kinds & ALLOCATION) && (!caller_part[0] || (dladdr(address, &found) && found.dli_fname &&
                                                      strstr(found.dli_fname, caller_part)));
}

/* Whether this call, which is of the kind, is to fail. */
static bool fails(int kind) {
  long number;
  if (!(kinds & kind) || ((kinds & OWN_THREAD) && gettid() != thread) ||
      ((kinds & OTHER_THREADS) && gettid() == thread)) {
    return false;
  }
  number = ++seen;
  if (number < first || number - first >= count) {
    return false;
  }
  failed++;
  if (code < 0) {
    raise(-code);
  }
  errno = code;
  return true;
}

static bool is_of_path(int descriptor) {
  char name[64], path[4096];
  const int old = errno;
  snprintf(name, sizeof(name), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(name, path, sizeof(path) - 1);
  errno = old;
  path[length > 0 ? length : 0] = '\0';
  return strstr(path, path_part) != NULL;
}

#define CALLER __builtin_return_address(0)

extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t n, size_t nbytes);
extern void *__libc_realloc(void *old, size_t nbytes);

void *malloc(size_t nbytes) {
  return counts(CALLER) && fails(ALLOCATION) ? NULL : __libc_malloc(nbytes);
}

void *calloc(size_t n, size_t nbytes) {
  return counts(CALLER) && fails(ALLOCATION) ? NULL : __libc_calloc(n, nbytes);
}

void *realloc(void *old, size_t nbytes) {
  return counts(CALLER) && fails(ALLOCATION) ? NULL : __libc_realloc(old, nbytes);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void *mmap(void *address, size_t nbytes, int protection, int flags, int descriptor, off_t offset) {
  return fails(MAPPING) ? MAP_FAILED
                        : REAL(mmap)(address, nbytes, protection, flags, descriptor, offset);
}

void *mmap64(void *address, size_t nbytes, int protection, int flags, int descriptor,
             off64_t offset) {
  return fails(MAPPING) ? MAP_FAILED
                        : REAL(mmap64)(address, nbytes, protection, flags, descriptor, offset);
}

ssize_t pread(int descriptor, void *data, size_t nbytes, off_t offset) {
  return (kinds & READ) && is_of_path(descriptor) && fails(READ)
             ? -1
             : REAL(pread)(descriptor, data, nbytes, offset);
}

ssize_t pread64(int descriptor, void *data, size_t nbytes, off64_t offset) {
  return (kinds & READ) && is_of_path(descriptor) && fails(READ)
             ? -1
             : REAL(pread64)(descriptor, data, nbytes, offset);
}

static mode_t mode_of(va_list arguments, int flags) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(arguments, flags);
  va_end(arguments);
  return (kinds & OPEN) && strstr(path, path_part) && fails(OPEN) ? -1
                                                                  : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(arguments, flags);
  va_end(arguments);
  return (kinds & OPEN) && strstr(path, path_part) && fails(OPEN) ? -1
                                                                  : REAL(open64)(path, flags, mode);
}

ssize_t pwrite(int descriptor, const void *data, size_t nbytes, off_t offset) {
  return (kinds & WRITE) && is_of_path(descriptor) && fails(WRITE)
             ? -1
             : REAL(pwrite)(descriptor, data, nbytes, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t nbytes, off64_t offset) {
  return (kinds & WRITE) && is_of_path(descriptor) && fails(WRITE)
             ? -1
             : REAL(pwrite64)(descriptor, data, nbytes, offset);
}

int ftruncate64(int descriptor, off64_t nbytes) {
  return (kinds & WRITE) && is_of_path(descriptor) && fails(WRITE)
             ? -1
             : REAL(ftruncate64)(descriptor, nbytes);
}

int fsync(int descriptor) {
  return (kinds & SYNC) && is_of_path(descriptor) && fails(SYNC) ? -1 : REAL(fsync)(descriptor);
}

int rename(const char *from, const char *to) {
  return (kinds & NAME) && strstr(to, path_part) && fails(NAME) ? -1 : REAL(rename)(from, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
  return (kinds & NAME) && strstr(to, path_part) && fails(NAME)
             ? -1
             : REAL(renameat2)(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path) {
  return (kinds & NAME) && strstr(path, path_part) && fails(NAME) ? -1 : REAL(unlink)(path);
}
