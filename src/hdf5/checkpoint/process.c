#include "hdf5/checkpoint/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static gpufi_checkpoint_member *members;
static bool is_watched; /* for the end of the process */

static void hold(void) {
  pthread_mutex_lock(&mutex);
}
static void release(void) {
  pthread_mutex_unlock(&mutex);
}

/* The parent's writers are none of the child's. */
static void forget(void) {
  for (const gpufi_checkpoint_member *m = members; m; m = m->next) {
    close(m->lock_fd);
    gpufi_checkpoint_leftovers_forget(m->leftovers);
  }
  members = NULL;
  pthread_mutex_unlock(&mutex);
}
GPUFI_AT_FORK(GPUFI_FORK_CHECKPOINT, hold, release, forget);

/* Whether this thread writes a checkpoint. */
static _Thread_local bool is_writing;

void gpufi_checkpoint_begin_writing(void) {
  is_writing = true;
}

/* HDF5 may end the process within a call, where memory runs out: the thread that made the call
 * would wait here for itself. */
static void give_up(void) {
  if (is_writing) {
    return;
  }
  pthread_mutex_lock(&mutex);
  for (gpufi_checkpoint_member *m = members; m; m = m->next) {
    m->give_up(m);
  }
  pthread_mutex_unlock(&mutex);
}

gpuf_status gpufi_checkpoint_watch_process(gpuf_error *err) {
  pthread_mutex_lock(&mutex);
  if (!is_watched) {
    is_watched = atexit(give_up) == 0;
  }
  const bool done = is_watched;
  pthread_mutex_unlock(&mutex);
  return done ? GPUF_OK
              : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to watch for the process's end");
}

void gpufi_checkpoint_member_add(gpufi_checkpoint_member *member) {
  pthread_mutex_lock(&mutex);
  member->next = members;
  members = member;
  pthread_mutex_unlock(&mutex);
}

void gpufi_checkpoint_member_remove(gpufi_checkpoint_member *member) {
  pthread_mutex_lock(&mutex);
  gpufi_checkpoint_member **link = &members;
  while (*link && *link != member) {
    link = &(*link)->next;
  }
  if (*link) {
    *link = member->next;
  }
  pthread_mutex_unlock(&mutex);
}
