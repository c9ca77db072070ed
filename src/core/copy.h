/* A copy between a device and host memory: its plan, the two ways to carry it out, the future. */
#ifndef GPUFI_CORE_COPY_H
#define GPUFI_CORE_COPY_H

#include <pthread.h>

#include "core/lane.h"

#define GPUFI_COPY_THREADS_MAX 64

/* How the device side travels; plan.c chooses. */
typedef enum gpufi_route {
  GPUFI_ROUTE_FLAT,   /* contiguous: one range of bytes a piece */
  GPUFI_ROUTE_ROWS,   /* wide rows: 2-D copies */
  GPUFI_ROUTE_GATHER, /* a kernel packs (or unpacks) each piece in scratch, and casts if need be */
} gpufi_route;

/* What to copy. Constant once planned. */
typedef struct gpufi_copy {
  const gpufi_backend *backend;
  gpuf_device device;
  gpufi_direction direction;
  char *d_data; /* element 0 of the device side */
  char *h_data; /* element 0 of the host side */
  gpufi_strided device_layout;
  gpufi_strided host_layout; /* the same elements in the same order */
  gpuf_dtype device_dtype;
  gpuf_dtype host_dtype; /* what travels; another only in a copy that casts */
  gpufi_route route;
  bool host_pinned;     /* contiguous, and page-locked in one piece */
  size_t nbytes;        /* that travel in all, > 0 */
  size_t piece_nbytes;  /* a multiple of the size of the elements that travel */
  gpuf_stream producer; /* the copy starts after the work on it */
  int32_t thread_count; /* of a copy by threads */
  gpufi_chunks chunks;  /* of a coded copy: a batch */
} gpufi_copy;

/* Who carries a copy out. */
typedef enum gpufi_carrier {
  GPUFI_CARRIER_NONE,   /* there are no elements */
  GPUFI_CARRIER_CPU,    /* both sides are on the CPU */
  GPUFI_CARRIER_DIRECT, /* the device alone: the CPU side is pinned and contiguous */
  GPUFI_CARRIER_STAGED, /* the device and threads */
  GPUFI_CARRIER_CODED,  /* the same, by way of the codec */
} gpufi_carrier;

/* copy.c: the caller's options (NULL: the defaults), complete. Everything below takes those. */
gpuf_status gpufi_copy_options_read(gpuf_copy_options *own, const gpuf_copy_options *given,
                                    gpuf_error *err);
/* copy.c: check, and plan what a device takes part in; *copy is filled for that only. */
gpuf_status gpufi_copy_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, gpufi_carrier *carrier,
                            gpuf_error *err);

/* plan.c */

/* For checked tensors of equal shape with at least one element, one of them on the CPU. */
gpuf_status gpufi_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                       const gpuf_copy_options *options, gpuf_error *err);
/* Permute and reverse the axes of both tensors alike, so that `lead` ascends in memory as far as
 * it can: elements then lie in it in C order where any order makes them. */
void gpufi_plan_order(gpuf_tensor *lead, gpuf_tensor *other);

/* direct.c: every piece enqueued at once, no thread needed afterwards. */

#define GPUFI_DIRECT_LANES_MAX 3

/* On one stream; a gather needs the lane's scratch. */
gpuf_status gpufi_direct_enqueue(const gpufi_copy *copy, gpufi_lane *lane, gpuf_stream stream,
                                 gpuf_error *err);
/* A gather from several lanes in turns: one packs while another transfers. Takes as many more of
 * them, up to GPUFI_DIRECT_LANES_MAX, as there are pieces and scratch for; *count lanes are the
 * caller's afterwards, also on failure. */
gpuf_status gpufi_gather_enqueue(const gpufi_copy *copy, gpufi_lane **lanes, int32_t *count,
                                 gpuf_error *err);
/* Enqueue the transfer of bytes [offset, offset + nbytes) (as they travel) between the device side
 * and pinned `staging`, by the copy's route; a gather needs the lane's scratch. */
gpuf_status gpufi_piece_enqueue(const gpufi_copy *copy, gpufi_lane *lane, gpuf_stream stream,
                                size_t offset, size_t nbytes, void *staging, gpuf_error *err);
/* Enqueue packing `count` elements of the device side, cast if need be, at `d_packed`; or, to a
 * device, unpacking them. */
gpuf_status gpufi_repack_enqueue(const gpufi_copy *copy, void *d_packed, gpuf_stream stream,
                                 int64_t first, int64_t count, gpuf_error *err);

/* staged.c: threads that take the next piece each and move it between staging and host memory. */

/* Be one of the threads, to the end. */
void gpufi_staged_run(gpuf_future *future);

/* coded.c: the device encodes, and threads take the next chunk each and decode it into place. */

typedef struct gpufi_coded gpufi_coded;

/* Complete the plan of a copy to the host. `host_side` has its axes in the order of memory. */
gpuf_status gpufi_coded_plan(gpufi_copy *copy, const gpuf_tensor *host_side,
                             const gpuf_copy_options *options, gpuf_error *err);
/* Memory for the copy, in future->coded, until its last thread has ended. */
gpuf_status gpufi_coded_create(const gpufi_copy *copy, gpufi_coded **coded, gpuf_error *err);
/* Waits for the device first. NULL is allowed. */
void gpufi_coded_destroy(gpufi_coded *coded);
/* Be one of the threads, to the end. */
void gpufi_coded_run(gpuf_future *future);

/* future.c */

struct gpuf_future {
  gpufi_copy copy;
  pthread_mutex_t lock;   /* guards all below */
  pthread_cond_t changed; /* settled */
  bool settled;           /* status and error are final */
  gpuf_status status;     /* of a copy by threads: the first failure so far */
  gpuf_error error;
  /* Of a direct copy, until it is settled and no thread waits on them. */
  gpufi_lane *lanes[GPUFI_DIRECT_LANES_MAX];
  int32_t lane_count;
  int32_t waiter_count;             /* threads that wait on the lanes' events */
  size_t next_offset;               /* of a staged copy: the next piece to take */
  bool has_scratch_waiter;          /* of a staged gather */
  gpufi_coded *coded;               /* of a coded copy; constant, as is `run` */
  void (*run)(gpuf_future *future); /* what the threads do */
  int32_t running_count;            /* threads that have not finished */
  int32_t thread_count;             /* started, to be joined by fini; constant once started */
  pthread_t threads[GPUFI_COPY_THREADS_MAX];
};

void gpufi_future_init(gpuf_future *future);
/* Waits, then releases what the future holds. */
void gpufi_future_fini(gpuf_future *future);
/* Give a direct copy's lanes back; after a failure, once their work is done. */
void gpufi_future_release_lanes(gpuf_future *future, bool failed);
/* Start all threads of the plan but `own_share_count` (0 or 1), which the caller runs itself. If
 * none can be started and the caller runs none, the copy is done when this returns. */
void gpufi_future_start_threads(gpuf_future *future, int32_t own_share_count);
/* The first failure counts; GPUF_OK is none. Called with the lock held. */
void gpufi_future_fail(gpuf_future *future, gpuf_status status, const gpuf_error *error);
/* `count` threads have finished; with the last of them the outcome is final. */
void gpufi_future_leave(gpuf_future *future, int32_t count);

#endif
