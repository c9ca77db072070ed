#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/host/memory.h"
#include "backend/host/stream.h"
#include "base/error.h"

const char *const fault_kind_names[FAULT_KIND_COUNT] = {"malloc", "mmap", "pthread_create",
                                                        "device call", "system call"};

/* Of each kind: how many calls there are until the one that fails, which is number 1; 0 or less =
 * it has been; and whether those after it fail too. INT64_MAX = none does. */
static atomic_int_least64_t calls_left[FAULT_KIND_COUNT] = {INT64_MAX, INT64_MAX, INT64_MAX,
                                                            INT64_MAX, INT64_MAX};
static atomic_bool later_too[FAULT_KIND_COUNT], was_hit[FAULT_KIND_COUNT];
static atomic_int_least64_t allocation_count, mapped_nbytes;

void faults_arm(fault_kind kind, int64_t nth, bool and_later) {
  atomic_store(&was_hit[kind], false);
  atomic_store(&later_too[kind], and_later);
  atomic_store(&calls_left[kind], nth);
}

void faults_disarm(void) {
  for (int kind = 0; kind < FAULT_KIND_COUNT; kind++) {
    atomic_store(&later_too[kind], false);
    atomic_store(&calls_left[kind], INT64_MAX);
  }
}

bool faults_hit(fault_kind kind) {
  return atomic_load(&was_hit[kind]);
}

fault_balance faults_balance(void) {
  return (fault_balance){atomic_load(&allocation_count), atomic_load(&mapped_nbytes)};
}

bool faults_fail(fault_kind kind) {
  const int64_t left = atomic_fetch_sub(&calls_left[kind], 1);
  const bool hit = left == 1 || (left < 1 && atomic_load(&later_too[kind]));
  if (hit) {
    atomic_store(&was_hit[kind], true);
  }
  return hit;
}

/* The call, unless it is to fail, which gives `failure`. */
#define WRAP(kind, type, name, parameters, arguments, failure)                                     \
  type __real_##name parameters;                                                                   \
  type __wrap_##name parameters;                                                                   \
  type __wrap_##name parameters {                                                                  \
    return faults_fail(kind) ? (failure) : __real_##name arguments;                                \
  }

/* --- Memory --------------------------------------------------------------------- */

static void *counted(void *allocated) {
  atomic_fetch_add(&allocation_count, allocated != NULL);
  return allocated;
}

#define WRAP_ALLOCATION(type, name, parameters, arguments)                                         \
  type *__real_##name parameters;                                                                  \
  type *__wrap_##name parameters;                                                                  \
  type *__wrap_##name parameters {                                                                 \
    return faults_fail(FAULT_MALLOC) ? (errno = ENOMEM, NULL) : counted(__real_##name arguments);  \
  }

WRAP_ALLOCATION(void, malloc, (size_t nbytes), (nbytes))
WRAP_ALLOCATION(void, calloc, (size_t count, size_t nbytes), (count, nbytes))
WRAP_ALLOCATION(void, aligned_alloc, (size_t alignment, size_t nbytes), (alignment, nbytes))
WRAP_ALLOCATION(char, strdup, (const char *text), (text))

void *__real_realloc(void *old, size_t nbytes);
void *__wrap_realloc(void *old, size_t nbytes);
void *__wrap_realloc(void *old, size_t nbytes) {
  if (faults_fail(FAULT_MALLOC)) {
    errno = ENOMEM;
    return NULL;
  }
  void *const moved = __real_realloc(old, nbytes);
  return old ? moved : counted(moved);
}

int __real_posix_memalign(void **out, size_t alignment, size_t nbytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t nbytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t nbytes) {
  const int code =
      faults_fail(FAULT_MALLOC) ? ENOMEM : __real_posix_memalign(out, alignment, nbytes);
  atomic_fetch_add(&allocation_count, code == 0);
  return code;
}

void __real_free(void *allocated);
void __wrap_free(void *allocated);
void __wrap_free(void *allocated) {
  atomic_fetch_sub(&allocation_count, allocated != NULL);
  __real_free(allocated);
}

void *__real_mmap64(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset) {
  if (faults_fail(FAULT_MMAP)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void *const mapped = __real_mmap64(at, nbytes, protection, flags, fd, offset);
  atomic_fetch_add(&mapped_nbytes, mapped == MAP_FAILED ? 0 : (int64_t)nbytes);
  return mapped;
}

int __real_munmap(void *mapped, size_t nbytes);
int __wrap_munmap(void *mapped, size_t nbytes);
int __wrap_munmap(void *mapped, size_t nbytes) {
  atomic_fetch_sub(&mapped_nbytes, (int64_t)nbytes);
  return __real_munmap(mapped, nbytes);
}

/* --- Threads --------------------------------------------------------------------- */

WRAP(FAULT_THREAD, int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     (thread, attributes, run, arg), EAGAIN)

/* --- System calls ---------------------------------------------------------------- */

#define WRAP_SYSTEM(type, name, parameters, arguments, code)                                       \
  WRAP(FAULT_SYSTEM, type, name, parameters, arguments, (errno = (code), -1))

WRAP_SYSTEM(int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE)
WRAP_SYSTEM(int, ftruncate64, (int fd, off_t nbytes), (fd, nbytes), ENOSPC)
WRAP_SYSTEM(ssize_t, pread64, (int fd, void *bytes, size_t nbytes, off_t offset),
            (fd, bytes, nbytes, offset), EIO)

/* To files alone: what wakes a thread up does not fail. */
ssize_t __real_write(int fd, const void *bytes, size_t nbytes);
ssize_t __wrap_write(int fd, const void *bytes, size_t nbytes);
ssize_t __wrap_write(int fd, const void *bytes, size_t nbytes) {
  struct stat file;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && faults_fail(FAULT_SYSTEM)) {
    errno = ENOSPC;
    return -1;
  }
  return __real_write(fd, bytes, nbytes);
}

WRAP_SYSTEM(ssize_t, getrandom, (void *bytes, size_t nbytes, unsigned flags),
            (bytes, nbytes, flags), EIO)
WRAP_SYSTEM(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE)
WRAP_SYSTEM(int, bind, (int fd, const struct sockaddr *address, socklen_t nbytes),
            (fd, address, nbytes), ENOMEM)
WRAP_SYSTEM(int, listen, (int fd, int backlog), (fd, backlog), ENOMEM)
WRAP_SYSTEM(int, connect, (int fd, const struct sockaddr *address, socklen_t nbytes),
            (fd, address, nbytes), ENOMEM)
WRAP_SYSTEM(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *nbytes),
            (fd, level, name, value, nbytes), ENOMEM)
WRAP_SYSTEM(ssize_t, send, (int fd, const void *bytes, size_t nbytes, int flags),
            (fd, bytes, nbytes, flags), ENOMEM)
WRAP_SYSTEM(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
            (fd, message, flags), ENOMEM)
WRAP_SYSTEM(ssize_t, recv, (int fd, void *bytes, size_t nbytes, int flags),
            (fd, bytes, nbytes, flags), ENOMEM)
WRAP_SYSTEM(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags),
            ENOMEM)
WRAP_SYSTEM(int, epoll_create1, (int flags), (flags), EMFILE)
WRAP_SYSTEM(int, epoll_ctl, (int fd, int what, int other, struct epoll_event *event),
            (fd, what, other, event), ENOMEM)

/* --- The host backend -------------------------------------------------------------- */

#define DEVICE_FAILURE gpufi_fail(err, GPUF_ERR_DEVICE, 700, "injected: this device call fails")

WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_alloc,
     (int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err), (device, nbytes, d_ptr, err),
     gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, 2, "injected: no device memory"))
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_stream_create,
     (int32_t device, bool is_urgent, gpuf_stream *stream, gpuf_error *err),
     (device, is_urgent, stream, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_stream_synchronize,
     (int32_t device, gpuf_stream stream, gpuf_error *err), (device, stream, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_create,
     (int32_t device, gpufi_event **event, gpuf_error *err), (device, event, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_record,
     (int32_t device, gpufi_event *event, gpuf_stream stream, gpuf_error *err),
     (device, event, stream, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_wait,
     (int32_t device, gpufi_event *event, gpuf_error *err), (device, event, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_event_query,
     (int32_t device, gpufi_event *event, bool *done, gpuf_error *err), (device, event, done, err),
     DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_stream_wait_event,
     (int32_t device, gpuf_stream stream, gpufi_event *event, bool inherits, gpuf_error *err),
     (device, stream, event, inherits, err), DEVICE_FAILURE)
WRAP(FAULT_DEVICE, gpuf_status, gpufi_host_enqueue,
     (int32_t device, gpuf_stream stream, gpufi_host_work work, const void *args,
      size_t args_nbytes, gpuf_error *err),
     (device, stream, work, args, args_nbytes, err), DEVICE_FAILURE)
