/* A lane: what one thread needs to run transfers on a device. Lanes are kept for reuse, because
 * making streams and events costs more than a small copy. */
#ifndef GPUFI_CORE_LANE_H
#define GPUFI_CORE_LANE_H

#include "core/scratch.h"

/* Bytes of a staging buffer. At 2 MiB a core finds what the device has just written in its cache:
 * 4 MiB and 1 MiB are slower. */
#define GPUFI_LANE_BUFFER_NBYTES ((size_t)2 << 20)
_Static_assert(GPUFI_LANE_BUFFER_NBYTES <= GPUFI_SCRATCH_NBYTES, "a staged piece fits the scratch");
#define GPUFI_LANE_SLOT_COUNT 2
/* A larger workspace is freed when the lane is given back. An overview of 2^21 cells needs 64 MiB
 * and its head at most, where no cell is split: 16 bytes, and two elements of 8, for each. */
#define GPUFI_LANE_WORKSPACE_KEPT_NBYTES ((size_t)96 << 20)

/* A pinned buffer and the event that says when the device is done with it. */
typedef struct gpufi_slot {
  void *staging; /* NULL until gpufi_lane_need_staging */
  gpufi_event *copied;
} gpufi_slot;

/* Used by one transfer, or one of its threads, at a time. */
typedef struct gpufi_lane {
  struct gpufi_lane *next; /* while unused */
  const gpufi_backend *backend;
  gpuf_device device;
  gpuf_stream stream;
  gpufi_event *joined;    /* recorded on a producer's stream */
  gpufi_event *finished;  /* recorded behind the last piece of a direct transfer */
  gpufi_scratch *scratch; /* NULL until gpufi_lane_need_scratch */
  void *d_scratch;        /* its memory */
  void *d_workspace;      /* of a reduction or a batch; NULL until gpufi_lane_need_workspace */
  size_t workspace_nbytes;
  gpufi_slot slots[GPUFI_LANE_SLOT_COUNT];
} gpufi_lane;

gpuf_status gpufi_lane_acquire(const gpufi_backend *backend, gpuf_device device, gpufi_lane **lane,
                               gpuf_error *err);
gpuf_status gpufi_lane_need_staging(gpufi_lane *lane, gpuf_error *err);
/* Scratch for the work that comes next on the lane's stream, kept until gpufi_lane_give_scratch or
 * the lane's release. `need` waits for it at the bound on scratch; a thread that has scratch for
 * one lane already may only `try`. */
gpuf_status gpufi_lane_need_scratch(gpufi_lane *lane, gpuf_error *err);
gpuf_status gpufi_lane_try_scratch(gpufi_lane *lane, gpuf_error *err);
/* No more work that uses the scratch will be enqueued; what is enqueued need not be done. */
void gpufi_lane_give_scratch(gpufi_lane *lane);
/* At least `nbytes` at d_workspace; its contents are lost where it has to grow. */
gpuf_status gpufi_lane_need_workspace(gpufi_lane *lane, size_t nbytes, gpuf_error *err);

/* Free the workspaces of lanes that nobody uses. */
void gpufi_lanes_trim(void);

/* Make later work on the lane's stream wait for what is on `producer` now. */
gpuf_status gpufi_lane_join(gpufi_lane *lane, gpuf_stream producer, gpuf_error *err);

/* Give the lane back; its stream must be idle, or `failed` true: then it is drained and
 * destroyed. NULL is allowed. */
void gpufi_lane_release(gpufi_lane *lane, bool failed);

#endif
