#include "core/workers.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/thread.h"

#define PARKED_MAX 64
#define PARKED_NS GPUFI_NS_PER_S
/* Plenty for what runs here, and much less address space than the default takes. */
#define STACK_NBYTES ((size_t)512 << 10)

typedef struct worker {
  struct worker *next;  /* while parked */
  pthread_cond_t wake;  /* has work again */
  gpufi_workers *owner; /* the call's; NULL while parked */
  void (*run)(void *arg);
  void *arg;
} worker;

/* Guards all below, and the running_count of every gpufi_workers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER; /* the last thread of a call is done */
static worker *parked; /* the one that was parked last comes first */
static int32_t parked_count;

static void fork_prepare(void) {
  pthread_mutex_lock(&lock);
}
static void fork_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* The parked threads are not in the child; their records stay as they are. */
static void fork_child(void) {
  parked = NULL;
  parked_count = 0;
  pthread_cond_init(&finished, NULL);
  pthread_mutex_unlock(&lock);
}

GPUFI_AT_FORK(GPUFI_FORK_WORKERS, fork_prepare, fork_parent, fork_child);

static void take_out(worker *w) {
  worker **link = &parked;
  while (*link != w) {
    link = &(*link)->next;
  }
  *link = w->next;
  parked_count--;
}

/* Wait for work. False when the thread is to end instead. Called with the lock held. */
static bool park(worker *w) {
  const struct timespec deadline = gpufi_deadline_after(PARKED_NS);
  int code = 0;
  if (parked_count == PARKED_MAX) {
    return false;
  }
  w->owner = NULL;
  w->next = parked;
  parked = w;
  parked_count++;
  while (!w->owner && code == 0) {
    code = pthread_cond_timedwait(&w->wake, &lock, &deadline);
  }
  if (!w->owner) {
    take_out(w);
  }
  return w->owner != NULL;
}

static void *worker_main(void *arg) {
  worker *const w = arg;
  bool goes_on = true;
  while (goes_on) {
    w->run(w->arg);
    pthread_mutex_lock(&lock);
    if (--w->owner->running_count == 0) {
      pthread_cond_broadcast(&finished);
    }
    goes_on = park(w);
    pthread_mutex_unlock(&lock);
  }
  pthread_cond_destroy(&w->wake);
  free(w);
  return NULL;
}

static bool start_new(const worker *work) {
  pthread_t thread;
  worker *const w = malloc(sizeof(*w));
  if (!w) {
    return false;
  }
  *w = *work;
  gpufi_condition_init(&w->wake);
  if (gpufi_thread_start(&thread, "gpufetch-worker", STACK_NBYTES, worker_main, w) != 0) {
    pthread_cond_destroy(&w->wake);
    free(w);
    return false;
  }
  pthread_detach(thread);
  return true;
}

/* Hand the work to up to `count` parked threads. Called with the lock held. */
static int32_t wake_parked(const worker *work, int32_t count) {
  int32_t woken = 0;
  for (; woken < count && parked; woken++) {
    worker *const w = parked;
    take_out(w);
    w->owner = work->owner;
    w->run = work->run;
    w->arg = work->arg;
    pthread_cond_signal(&w->wake);
  }
  return woken;
}

int32_t gpufi_workers_start(gpufi_workers *workers, int32_t count, void (*run)(void *arg),
                            void *arg) {
  const worker work = {.owner = workers, .run = run, .arg = arg};
  if (count <= 0) {
    return 0;
  }
  pthread_mutex_lock(&lock);
  workers->running_count += count;
  int32_t started = wake_parked(&work, count);
  pthread_mutex_unlock(&lock);
  while (started < count && start_new(&work)) {
    started++;
  }
  if (started < count) {
    pthread_mutex_lock(&lock);
    workers->running_count -= count - started;
    pthread_mutex_unlock(&lock);
  }
  return started;
}

void gpufi_workers_wait(gpufi_workers *workers) {
  pthread_mutex_lock(&lock);
  while (workers->running_count > 0) {
    pthread_cond_wait(&finished, &lock);
  }
  pthread_mutex_unlock(&lock);
}

/* --- One call for each of many -------------------------------------------------- */

typedef struct turns {
  gpuf_status (*act)(void *arg, size_t index, gpuf_error *err);
  void *arg;
  size_t count;
  size_t next;           /* atomic */
  pthread_mutex_t mutex; /* guards what follows */
  gpuf_status status;    /* the first failure */
  gpuf_error error;
} turns;

/* Each thread does this. */
static void take_turns(void *arg) {
  turns *const t = arg;
  size_t i;
  while ((i = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->count) {
    gpuf_error error = {0};
    const gpuf_status status = t->act(t->arg, i, &error);
    pthread_mutex_lock(&t->mutex);
    if (status != GPUF_OK && t->status == GPUF_OK) {
      t->status = status;
      t->error = error;
    }
    pthread_mutex_unlock(&t->mutex);
  }
}

gpuf_status gpufi_workers_each(size_t count, int32_t thread_max,
                               gpuf_status (*act)(void *arg, size_t index, gpuf_error *err),
                               void *arg, gpuf_error *err) {
  gpufi_workers workers = {0};
  turns t = {.act = act, .arg = arg, .count = count};
  const int32_t threads = count < (size_t)thread_max ? (int32_t)count : thread_max;
  pthread_mutex_init(&t.mutex, NULL);
  gpufi_workers_start(&workers, threads - 1, take_turns, &t);
  take_turns(&t);
  gpufi_workers_wait(&workers);
  pthread_mutex_destroy(&t.mutex);
  if (t.status != GPUF_OK && err) {
    *err = t.error;
  }
  return t.status;
}
