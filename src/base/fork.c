#include "base/fork.h"

#include <unistd.h>

#include "base/error.h"

#define MUTEXES_MAX 8

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static pthread_mutex_t *mutexes[MUTEXES_MAX];
static int mutex_count;

static void hold(void) {
  pthread_mutex_lock(&list_lock);
  for (int i = 0; i < mutex_count; i++) {
    pthread_mutex_lock(mutexes[i]);
  }
}

static void release(void) {
  for (int i = mutex_count - 1; i >= 0; i--) {
    pthread_mutex_unlock(mutexes[i]);
  }
  pthread_mutex_unlock(&list_lock);
}

static void watch_fork(void) {
  pthread_atfork(hold, release, release);
}

void gpufi_hold_at_fork(pthread_mutex_t *mutex) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_fork);
  pthread_mutex_lock(&list_lock);
  if (mutex_count < MUTEXES_MAX) {
    mutexes[mutex_count++] = mutex;
  }
  pthread_mutex_unlock(&list_lock);
}

gpuf_status gpufi_refuse_after_fork(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "devices, and copies, shares, servers and connections of the parent, cannot be "
                    "used in a process that was forked: start workers with spawn or forkserver");
}

gpuf_status gpufi_check_process(int64_t process_id, gpuf_error *err) {
  return process_id == getpid() ? GPUF_OK : gpufi_refuse_after_fork(err);
}
