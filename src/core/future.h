/* A copy in flight: its outcome, and those who wait for it.
 *
 * A direct copy is done when the events of its channels are. A copy by threads is done when the
 * last of its threads has ended; it is a failure unless all its bytes have arrived by then. */
#ifndef GPUFI_CORE_FUTURE_H
#define GPUFI_CORE_FUTURE_H

#include <pthread.h>

#include "core/direct.h"
#include "core/workers.h"

struct gpuf_future {
  gpufi_copy copy;
  pthread_mutex_t lock;   /* guards all below */
  pthread_cond_t changed; /* settled */
  bool settled;           /* status and error are final */
  gpuf_status status;     /* of a copy by threads: the first failure so far */
  gpuf_error error;       /* of `status`; while that is GPUF_OK, why a thread took no part */
  /* Of a direct copy, until it is settled and no thread waits for them. */
  gpufi_channel *channels[GPUFI_DIRECT_CHANNELS_MAX];
  int32_t channel_count;
  int32_t waiter_count; /* threads that wait on the channels' events */
  /* Of a copy by threads. `run` is what each of them does, once, ending with gpufi_future_leave;
   * `release` (may be NULL) follows the last of them. Both are constant. */
  void (*run)(gpuf_future *future);
  void (*release)(gpuf_future *future);
  int32_t running_count;   /* threads that have not left */
  size_t arrived_nbytes;   /* are at their destination */
  size_t next_offset;      /* of a staged copy: the next piece to take */
  bool has_scratch_waiter; /* of a staged gather */
  gpufi_channel *keeper;   /* of copy.producer (gpufi_channel_keep_stream), until it is settled */
  gpufi_workers workers;
};

void gpufi_future_init(gpuf_future *future);
/* Waits, then releases what the future holds. */
void gpufi_future_fini(gpuf_future *future);
/* Make GPUF_OK the outcome of a copy that is done or that never started. */
void gpufi_future_settle(gpuf_future *future);
/* Release a direct copy's channels; after a failure, once their work is done. */
void gpufi_future_release_channels(gpuf_future *future, bool failed);

/* Start all threads of the plan but `own_share_count` (0 or 1), which the caller runs itself. If
 * none can be started and the caller runs none, the copy is done when this returns. */
void gpufi_future_start_threads(gpuf_future *future, int32_t own_share_count);
/* Record a failure, unless there is an earlier one; GPUF_OK records nothing. Called with the lock
 * held. */
void gpufi_future_fail(gpuf_future *future, gpuf_status status, const gpuf_error *error);
/* A thread cannot take part and leaves the bytes to the others. If none of them takes these, the
 * copy fails with this error. Called with the lock held. */
void gpufi_future_abstain(gpuf_future *future, const gpuf_error *error);
/* The first failure so far, with its error in `err` (may be NULL); GPUF_OK if there is none. */
gpuf_status gpufi_future_failure(gpuf_future *future, gpuf_error *err);
/* Stop the copy: what is with the device already ends, and nothing more is begun. False if the
 * copy was done. Otherwise its result is not to be used, whatever its status: a copy by threads
 * becomes a failure, while a direct one is with the device as a whole and ends as usual. Does not
 * wait; the memories are in use until the future is done. Thread-safety: any thread. */
bool gpufi_future_cancel(gpuf_future *future);
/* `count` threads have finished; with the last of them the outcome is final. Called without the
 * lock. */
void gpufi_future_leave(gpuf_future *future, int32_t count);

#endif
