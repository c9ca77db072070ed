/* A copy between a device and host memory: its plan, the two ways to carry it out, the future. */
#ifndef GPUFI_CORE_COPY_H
#define GPUFI_CORE_COPY_H

#include <pthread.h>

#include "core/lane.h"

#define GPUFI_COPY_THREADS_MAX 64

/* What to copy. Constant once planned. */
typedef struct gpufi_copy {
  const gpufi_backend *backend;
  gpuf_device device;
  gpufi_direction direction;
  char *d_data; /* element 0 of the device side */
  char *h_data; /* element 0 of the host side */
  gpufi_strided device_layout;
  gpufi_strided host_layout;
  bool device_contiguous;
  bool host_contiguous;
  bool host_pinned;     /* contiguous, and pinned by the pool */
  size_t nbytes;        /* in all, > 0 */
  size_t piece_nbytes;  /* a multiple of the element's size */
  gpuf_stream producer; /* the copy starts after the work on it */
  int32_t thread_count; /* of a staged copy */
} gpufi_copy;

/* copy.c: check and plan. *direct false = not for a lane: no elements, or a CPU side that is not
 * pinned and contiguous, so that gpuf_copy must do it. */
gpuf_status gpufi_copy_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, bool *direct, gpuf_error *err);

/* direct.c: every piece enqueued at once on one stream, no thread needed afterwards. */

gpuf_status gpufi_direct_enqueue(const gpufi_copy *copy, gpufi_lane *lane, gpuf_stream stream,
                                 gpuf_error *err);
/* Enqueue the transfer of bytes [offset, offset + nbytes) (in packed order) between the device
 * side and pinned `staging`, through the lane's scratch if the device side is strided. */
gpuf_status gpufi_piece_enqueue(const gpufi_copy *copy, gpufi_lane *lane, gpuf_stream stream,
                                size_t offset, size_t nbytes, void *staging, gpuf_error *err);

/* staged.c: threads that take the next piece each and move it between staging and host memory. */

/* Start all threads of the plan but `own_share_count` (0 or 1), which the caller runs itself. */
gpuf_status gpufi_staged_start(gpuf_future *future, int32_t own_share_count, gpuf_error *err);
/* Be one of the threads, to the end. */
void gpufi_staged_run(gpuf_future *future);

/* future.c */

struct gpuf_future {
  gpufi_copy copy;
  pthread_mutex_t lock;   /* guards all below */
  pthread_cond_t changed; /* settled */
  bool settled;           /* status and error are final */
  gpuf_status status;     /* of a staged copy: the first failure so far */
  gpuf_error error;
  gpufi_lane *lane;      /* of a direct copy, until it is settled and no thread waits on it */
  int32_t waiter_count;  /* threads that wait on the lane's event */
  size_t next_offset;    /* of a staged copy: the next piece to take */
  int32_t running_count; /* threads of a staged copy that have not finished */
  int32_t thread_count;  /* started, to be joined by fini; constant once started */
  pthread_t threads[GPUFI_COPY_THREADS_MAX];
};

void gpufi_future_init(gpuf_future *future);
/* Waits, then releases what the future holds. */
void gpufi_future_fini(gpuf_future *future);
/* The outcome is final. Called with the lock held. */
void gpufi_future_settle(gpuf_future *future);

#endif
