#include "server/headroom.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A server opens 29 descriptors and has 4 threads, two of which libzmq starts, with CurveZMQ; fewer
 * without. More are asked for,
 * since the program's other threads need some at the same time, and since the system may count a
 * thread for a moment after it was joined. */
#define DESCRIPTOR_COUNT 40
#define THREAD_COUNT 8
#define MEMORY_NBYTES ((size_t)32 << 20)

#define LIMIT_TEXT_NBYTES 32
#define DESCRIPTORS_MOST 262144 /* what is beyond is not looked at */

static void limit_text(int resource, char text[LIMIT_TEXT_NBYTES]) {
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  getrlimit((__rlimit_resource_t)resource, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) {
    snprintf(text, LIMIT_TEXT_NBYTES, "unlimited");
  } else {
    snprintf(text, LIMIT_TEXT_NBYTES, "%" PRIu64, (uint64_t)limit.rlim_cur);
  }
}

static gpuf_status check_descriptors(gpuf_error *err) {
  int fds[DESCRIPTOR_COUNT], count = 0, code = 0;
  while (count < DESCRIPTOR_COUNT && code == 0) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    code = fd < 0 ? errno : 0;
    fds[count] = fd;
    count += fd >= 0;
  }
  for (int i = 0; i < count; i++) {
    close(fds[i]);
  }
  char limit[LIMIT_TEXT_NBYTES];
  limit_text(RLIMIT_NOFILE, limit);
  return code == 0 ? GPUF_OK
                   : gpufi_fail(err, GPUF_ERR_IO, code,
                                "a server needs %d free descriptors and there are %d (%s): raise "
                                "RLIMIT_NOFILE, which is %s (ulimit -n)",
                                DESCRIPTOR_COUNT, count, strerror(code), limit);
}

static void *wait_for_lock(void *lock) {
  pthread_mutex_lock(lock);
  pthread_mutex_unlock(lock);
  return NULL;
}

/* All of them at once. */
static gpuf_status check_threads(gpuf_error *err) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_t threads[THREAD_COUNT];
  int count = 0, code = 0;
  pthread_mutex_lock(&lock);
  while (count < THREAD_COUNT && code == 0) {
    code = gpufi_thread_start(&threads[count], "gpufetch-check", 0, wait_for_lock, &lock);
    count += code == 0;
  }
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
  }
  pthread_mutex_destroy(&lock);
  char processes[LIMIT_TEXT_NBYTES], memory[LIMIT_TEXT_NBYTES];
  limit_text(RLIMIT_NPROC, processes);
  limit_text(RLIMIT_AS, memory);
  return code == 0 ? GPUF_OK
                   : gpufi_fail(err, GPUF_ERR_NO_MEMORY, code,
                                "no threads for the server (%s): raise RLIMIT_NPROC, which is %s "
                                "(ulimit -u), RLIMIT_AS, which is %s (ulimit -v), or the cgroup's "
                                "pids.max",
                                strerror(code), processes, memory);
}

static gpuf_status check_memory(gpuf_error *err) {
  void *memory =
      mmap(NULL, MEMORY_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    char limit[LIMIT_TEXT_NBYTES];
    const int code = errno;
    limit_text(RLIMIT_AS, limit);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, code,
                      "a server needs %zu MiB of address space (%s): raise RLIMIT_AS, which is %s "
                      "(ulimit -v)",
                      MEMORY_NBYTES >> 20, strerror(code), limit);
  }
  munmap(memory, MEMORY_NBYTES);
  return GPUF_OK;
}

gpuf_status gpufi_headroom_check(gpuf_error *err) {
  gpuf_status status = check_descriptors(err);
  if (status == GPUF_OK) {
    status = check_threads(err);
  }
  return status == GPUF_OK ? check_memory(err) : status;
}

static int64_t descriptor_limit(void) {
  struct rlimit limit;
  const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
  return known && limit.rlim_cur < DESCRIPTORS_MOST ? (int64_t)limit.rlim_cur : DESCRIPTORS_MOST;
}

int32_t gpufi_headroom_connections(void) {
  return (int32_t)(descriptor_limit() / 4);
}

int64_t gpufi_headroom_first_reserved(void) {
  const int64_t limit = descriptor_limit();
  return limit - limit / 8;
}
