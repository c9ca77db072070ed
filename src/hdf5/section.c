#include "hdf5/section.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/thread.h"

/* For how long a fork is held off at most. A thread that waits for HDF5's lock while the one that
 * forks has it, in a callback of HDF5's, would hold it off for ever. */
#define FORK_WAIT_NS (3 * GPUFI_NS_PER_S)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below; not held at forks */
static pthread_cond_t changed;
static int section_count; /* of all threads */
static bool is_forking;   /* no section begins; those that have begun end */
static bool is_cut_off;   /* this process's copy of HDF5 may be in the middle of a call */

static _Thread_local int thread_section_count;

static void fork_prepare(void) {
  const struct timespec deadline = gpufi_deadline_after(FORK_WAIT_NS);
  pthread_mutex_lock(&mutex);
  while (is_forking) { /* another thread forks, which ends */
    pthread_cond_wait(&changed, &mutex);
  }
  is_forking = true;
  int code = 0;
  while (section_count > thread_section_count && code != ETIMEDOUT) {
    code = pthread_cond_timedwait(&changed, &mutex, &deadline);
  }
  pthread_mutex_unlock(&mutex);
}

static void fork_parent(void) {
  pthread_mutex_lock(&mutex);
  is_forking = false;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

/* Other threads may have held the mutex, and are not here. */
static void fork_child(void) {
  pthread_mutex_init(&mutex, NULL);
  gpufi_condition_init(&changed);
  is_cut_off = is_cut_off || section_count > thread_section_count;
  section_count = thread_section_count;
  is_forking = false;
}

GPUFI_AT_FORK(GPUFI_FORK_HDF5, fork_prepare, fork_parent, fork_child);

__attribute__((constructor)) static void init_condition(void) {
  gpufi_condition_init(&changed);
}

gpuf_status gpufi_h5_sections_check(gpuf_error *err) {
  return is_cut_off
             ? gpufi_fail(err, GPUF_ERR_STATE, 0,
                          "this process was forked while another thread of its parent was in HDF5, "
                          "whose lock or data that thread had: start workers with spawn or "
                          "forkserver, or fork while no thread reads or writes HDF5 files")
             : GPUF_OK;
}

bool gpufi_h5_section_begin(void) {
  pthread_mutex_lock(&mutex);
  const bool begins = !is_forking || thread_section_count > 0;
  if (begins) {
    section_count++;
    thread_section_count++;
  }
  pthread_mutex_unlock(&mutex);
  return begins;
}

void gpufi_h5_sections_wait(void) {
  pthread_mutex_lock(&mutex);
  while (is_forking) {
    pthread_cond_wait(&changed, &mutex);
  }
  pthread_mutex_unlock(&mutex);
}

void gpufi_h5_section_end(void) {
  pthread_mutex_lock(&mutex);
  section_count--;
  thread_section_count--;
  if (is_forking) {
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&mutex);
}
