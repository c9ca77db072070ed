#include "core/future.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "core/runtime.h"

#define POLL_NS 50000

void gpufi_future_init(gpuf_future *future) {
  pthread_mutex_init(&future->lock, NULL);
  gpufi_condition_init(&future->changed);
  future->settled = false;
  future->status = GPUF_OK;
  future->error.status = GPUF_OK;
  future->channel_count = 0;
  future->waiter_count = 0;
  future->run = NULL;
  future->release = NULL;
  future->running_count = 0;
  future->arrived_nbytes = 0;
  future->next_offset = 0;
  future->has_scratch_waiter = false;
  future->keeper = NULL;
  future->workers = (gpufi_workers){0};
}

/* The outcome is final. Called with the lock held. */
static void settle(gpuf_future *future) {
  future->settled = true;
  pthread_cond_broadcast(&future->changed);
}

void gpufi_future_settle(gpuf_future *future) {
  pthread_mutex_lock(&future->lock);
  settle(future);
  pthread_mutex_unlock(&future->lock);
}

void gpufi_future_fail(gpuf_future *future, gpuf_status status, const gpuf_error *error) {
  if (status != GPUF_OK && future->status == GPUF_OK) {
    future->status = status;
    future->error = *error;
  }
}

void gpufi_future_abstain(gpuf_future *future, const gpuf_error *error) {
  if (future->status == GPUF_OK) {
    future->error = *error;
  }
}

gpuf_status gpufi_future_failure(gpuf_future *future, gpuf_error *err) {
  pthread_mutex_lock(&future->lock);
  const gpuf_status status = future->status;
  if (status != GPUF_OK && err) {
    *err = future->error;
  }
  pthread_mutex_unlock(&future->lock);
  return status;
}

/* All threads have left: unless the bytes have arrived, say why. Called with the lock held. */
static void judge_threads(gpuf_future *future) {
  if (future->status != GPUF_OK || future->arrived_nbytes == future->copy.nbytes) {
    return;
  }
  if (future->error.status == GPUF_OK) {
    gpufi_fail(&future->error, GPUF_ERR_NO_MEMORY, 0,
               "no thread carried out the copy: %zu of %zu bytes are missing; free memory or "
               "threads and copy again",
               future->copy.nbytes - future->arrived_nbytes, future->copy.nbytes);
  }
  future->status = future->error.status;
}

void gpufi_future_leave(gpuf_future *future, int32_t count) {
  pthread_mutex_lock(&future->lock);
  future->running_count -= count;
  const bool last = future->running_count == 0;
  pthread_mutex_unlock(&future->lock);
  if (!last) {
    return;
  }
  pthread_mutex_lock(&future->lock);
  judge_threads(future);
  const bool failed = future->status != GPUF_OK;
  settle(future);
  pthread_mutex_unlock(&future->lock);
  /* May wait for streams that the copy has nothing to do with any more. Whoever destroys the future
   * waits for its threads. */
  gpufi_channel_release(future->keeper, failed);
  if (future->release) {
    future->release(future);
  }
}

static void run_share(void *arg) {
  gpuf_future *const future = arg;
  future->run(future);
}

void gpufi_future_start_threads(gpuf_future *future, int32_t own_share_count) {
  const int32_t wanted = future->copy.thread_count - own_share_count;
  future->running_count = future->copy.thread_count; /* nobody else sees the future yet */
  const int32_t started = gpufi_workers_start(&future->workers, wanted, run_share, future);
  if (started + own_share_count == 0) { /* the system has no thread left: the caller does it all */
    future->running_count = 1;
    future->run(future);
  } else if (started < wanted) { /* fewer threads only cost speed */
    gpufi_future_leave(future, wanted - started);
  }
}

static bool is_past(const struct timespec *deadline) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec > deadline->tv_sec ||
         (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

/* Wait for the event of a direct copy. Without a deadline the driver blocks; with one the event is
 * polled, because no driver call takes a time limit. *done is false if the time was up. */
static gpuf_status wait_for_event(const gpufi_copy *copy, gpufi_event *event,
                                  const struct timespec *deadline, bool *done, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  *done = !deadline;
  if (deadline) {
    const struct timespec pause = {0, POLL_NS};
    status = copy->backend->event_query(copy->device.index, event, done, err);
    while (status == GPUF_OK && !*done && !is_past(deadline)) {
      nanosleep(&pause, NULL);
      status = copy->backend->event_query(copy->device.index, event, done, err);
    }
  }
  if (status == GPUF_OK && *done) {
    status = copy->backend->event_wait(copy->device.index, event, err);
  }
  *done |= status != GPUF_OK;
  return status;
}

/* Wait for every channel, also after one has failed, because the others still write. The result is
 * the first failure. */
static gpuf_status wait_for_channels(const gpuf_future *future, int64_t timeout_ns, bool *done,
                                     gpuf_error *err) {
  const struct timespec deadline = gpufi_deadline_after(timeout_ns < 0 ? 0 : timeout_ns);
  gpuf_status status = GPUF_OK;
  *done = true;
  for (int32_t i = 0; i < future->channel_count && *done; i++) {
    gpuf_error *unfilled = status == GPUF_OK ? err : NULL;
    const gpuf_status outcome = wait_for_event(&future->copy, future->channels[i]->finished,
                                               timeout_ns < 0 ? NULL : &deadline, done, unfilled);
    status = status == GPUF_OK ? outcome : status;
  }
  return status;
}

void gpufi_future_release_channels(gpuf_future *future, bool failed) {
  for (int32_t i = 0; i < future->channel_count; i++) {
    gpufi_channel_release(future->channels[i], failed);
  }
  future->channel_count = 0;
}

/* Called with the lock held, which is released while the thread waits. */
static void wait_direct(gpuf_future *future, int64_t timeout_ns) {
  gpuf_error error;
  bool done;
  future->waiter_count++;
  pthread_mutex_unlock(&future->lock);
  const gpuf_status status = wait_for_channels(future, timeout_ns, &done, &error);
  pthread_mutex_lock(&future->lock);
  future->waiter_count--;
  if (done && !future->settled) {
    future->status = status;
    if (status != GPUF_OK) {
      future->error = error;
    }
    settle(future);
  }
  if (future->settled && future->waiter_count == 0) {
    gpufi_future_release_channels(future, future->status != GPUF_OK);
  }
}

/* Called with the lock held, which is released while the thread waits. */
static void wait_staged(gpuf_future *future, int64_t timeout_ns) {
  if (timeout_ns < 0) {
    while (!future->settled) {
      pthread_cond_wait(&future->changed, &future->lock);
    }
    return;
  }
  const struct timespec deadline = gpufi_deadline_after(timeout_ns);
  while (!future->settled && !is_past(&deadline)) {
    pthread_cond_timedwait(&future->changed, &future->lock, &deadline);
  }
}

/* The outcome of a settled copy. */
static gpuf_status report(gpuf_status status, const gpuf_error *error, gpuf_error *err) {
  return status == GPUF_OK ? GPUF_OK
                           : gpufi_fail(err, status, error->native_code, "%s", error->message);
}

static gpuf_status wait_for(gpuf_future *future, int64_t timeout_ns, gpuf_error *err) {
  /* In a forked child a thread that is not there may hold the lock. A settled future needs no lock;
   * one that is not settled never will be. A copy between two CPU sides is settled when it starts.
   */
  if (gpufi_forked()) {
    return future->settled ? report(future->status, &future->error, err)
                           : gpufi_refuse_after_fork(err);
  }
  pthread_mutex_lock(&future->lock);
  if (!future->settled) {
    if (future->channel_count > 0) {
      wait_direct(future, timeout_ns);
    } else {
      wait_staged(future, timeout_ns);
    }
  }
  const bool settled = future->settled;
  const gpuf_status status = future->status;
  const gpuf_error error = future->error;
  pthread_mutex_unlock(&future->lock);
  if (!settled) {
    return gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                      "a copy of %zu bytes was not done after %" PRId64
                      ".%03d ms and still runs; wait "
                      "again",
                      future->copy.nbytes, timeout_ns / 1000000, (int)(timeout_ns / 1000 % 1000));
  }
  return report(status, &error, err);
}

gpuf_status gpuf_future_wait(gpuf_future *future, int64_t timeout_ns, gpuf_error *err) {
  GPUFI_REQUIRE(future, err);
  return timeout_ns < 0 && gpufi_in_kernel() ? gpufi_refuse_in_kernel(err)
                                             : wait_for(future, timeout_ns, err);
}

bool gpuf_future_done(gpuf_future *future) {
  const gpuf_status status = gpuf_future_wait(future, 0, NULL);
  return status != GPUF_ERR_TIMEOUT;
}

bool gpufi_future_cancel(gpuf_future *future) {
  gpuf_error error;
  if (gpuf_future_done(future)) {
    return false;
  }
  gpufi_fail(&error, GPUF_ERR_STATE, 0, "the copy was cancelled");
  pthread_mutex_lock(&future->lock);
  const bool in_flight = !future->settled;
  if (in_flight && future->channel_count == 0) {
    gpufi_future_fail(future, GPUF_ERR_STATE, &error);
  }
  pthread_mutex_unlock(&future->lock);
  return in_flight;
}

void gpufi_future_fini(gpuf_future *future) {
  wait_for(future, -1, NULL);
  gpufi_workers_wait(&future->workers);
  pthread_mutex_destroy(&future->lock);
  pthread_cond_destroy(&future->changed);
}

void gpuf_future_destroy(gpuf_future *future) {
  if (!future) {
    return;
  }
  if (gpufi_in_kernel() && !gpuf_future_done(future)) {
    return; /* the copy may be behind this very kernel */
  }
  if (!gpufi_forked()) {
    gpufi_future_fini(future);
  } else if (!future->settled) {
    return; /* a forked child has neither its threads nor its device, and leaks it */
  }
  free(future);
}
