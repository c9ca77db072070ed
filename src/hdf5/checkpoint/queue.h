/* Encoded batches of chunks on their way from a commit to the writers of the files, each of which
 * gets its own in order, and the memory that they wait in: a ring on the device and one of
 * page-locked memory. If both are full, the commit waits for the writers. */
#ifndef GPUFI_HDF5_CHECKPOINT_QUEUE_H
#define GPUFI_HDF5_CHECKPOINT_QUEUE_H

#include <pthread.h>

#include "backend/codec.h"

typedef enum gpufi_checkpoint_place {
  GPUFI_CHECKPOINT_ON_DEVICE,
  GPUFI_CHECKPOINT_ON_HOST,
  GPUFI_CHECKPOINT_PLACE_COUNT,
} gpufi_checkpoint_place;

/* Writer i is that of shard i, and the last one that of what no shard holds. */
#define GPUFI_CHECKPOINT_WRITERS_MAX ((size_t)257)
#define GPUFI_CHECKPOINT_WRITER_OF_MASTER (GPUFI_CHECKPOINT_WRITERS_MAX - 1)

/* Memory that is given out in order. What is given back is free once all that was given out before
 * it is. */
typedef struct gpufi_checkpoint_ring {
  uint8_t *base;
  size_t nbytes;
  size_t head; /* where the next range begins, if it fits there */
  size_t used_nbytes;
  struct gpufi_checkpoint_batch *oldest, *newest; /* whose ranges are not free */
} gpufi_checkpoint_ring;

typedef struct gpufi_checkpoint_batch {
  struct gpufi_checkpoint_batch *next;  /* for the same writer */
  struct gpufi_checkpoint_batch *newer; /* in the ring */
  bool is_dropped;
  size_t position; /* in the snapshot's order, of its tensor; set by put */
  int64_t first;   /* chunk of the tensor's grid */
  size_t count;    /* of chunks */
  gpufi_checkpoint_place place;
  uint8_t *bytes;
  size_t nbytes;
  size_t taken_nbytes; /* of the ring, with what was left free before it */
  /* From `bytes` on; 0 bytes: the chunk is raw. */
  gpufi_chunk_place chunks[];
} gpufi_checkpoint_batch;

/* The batches that a writer has not taken. */
typedef struct gpufi_checkpoint_batches {
  gpufi_checkpoint_batch *first, *last;
} gpufi_checkpoint_batches;

/* Between one thread that takes the snapshot, the committer, and the writers. */
typedef struct gpufi_checkpoint_queue {
  pthread_mutex_t mutex; /* guards what follows, but for the rings' constant base and nbytes */
  pthread_cond_t changed;
  gpufi_checkpoint_ring rings[GPUFI_CHECKPOINT_PLACE_COUNT];
  gpufi_checkpoint_batches batches[GPUFI_CHECKPOINT_WRITERS_MAX];
  size_t taken_count; /* tensors of which the snapshot is complete */
  bool is_ended;      /* the committer is done: the whole snapshot is taken, or has failed */
  gpuf_status status; /* of the first failure on either side */
  gpuf_error error;
} gpufi_checkpoint_queue;

/* The rings are the caller's memory, which may be none: base NULL. */
void gpufi_checkpoint_queue_init(gpufi_checkpoint_queue *queue);
void gpufi_checkpoint_queue_fini(gpufi_checkpoint_queue *queue);
/* Before each snapshot: empty, without failures. */
void gpufi_checkpoint_queue_reset(gpufi_checkpoint_queue *queue);

/* --- For the committer -------------------------------------------------------- */

/* The longer ring's. */
size_t gpufi_checkpoint_queue_nbytes(const gpufi_checkpoint_queue *queue);
/* Whether the rings hold batches of so many bytes at all. */
bool gpufi_checkpoint_queue_holds(const gpufi_checkpoint_queue *queue, size_t nbytes);
/* Get a batch with room for `count` chunks and `nbytes` of memory, on the device if it has some.
 * The rings hold so many bytes. Where there is no room now, the call with `waits` waits for the
 * writer, to which all batches have been put; without, *batch becomes NULL. Hand a batch on with
 * put, or with drop. */
gpuf_status gpufi_checkpoint_queue_get(gpufi_checkpoint_queue *queue, size_t count, size_t nbytes,
                                       bool waits, gpufi_checkpoint_batch **batch, gpuf_error *err);
/* Its bytes are there: the writer may take it. */
void gpufi_checkpoint_queue_put(gpufi_checkpoint_queue *queue, size_t writer,
                                gpufi_checkpoint_batch *batch);
/* The snapshot of the next tensor is complete: batches that are put from now on are those of the
 * one after it. */
void gpufi_checkpoint_queue_end_tensor(gpufi_checkpoint_queue *queue);
/* The snapshot is complete, or has failed. */
void gpufi_checkpoint_queue_end(gpufi_checkpoint_queue *queue);

/* --- For the writers ----------------------------------------------------------- */

/* Take the writer's next batch of the tensor at `position` of the snapshot's order; NULL once that
 * one is complete and there are no more. A writer takes all of its batches in that order, so that
 * the ring's oldest one can always be taken by somebody. */
gpuf_status gpufi_checkpoint_queue_take(gpufi_checkpoint_queue *queue, size_t writer,
                                        size_t position, gpufi_checkpoint_batch **batch,
                                        gpuf_error *err);
/* Whether gpufi_checkpoint_queue_take would not wait for the committer. */
bool gpufi_checkpoint_queue_has_next(gpufi_checkpoint_queue *queue, size_t writer, size_t position);
/* Wait until the committer is done. */
gpuf_status gpufi_checkpoint_queue_await_end(gpufi_checkpoint_queue *queue, gpuf_error *err);

/* --- For both ------------------------------------------------------------------ */

/* Free a batch that was taken, or that was got and not put. */
void gpufi_checkpoint_queue_drop(gpufi_checkpoint_queue *queue, gpufi_checkpoint_batch *batch);
/* Remember a failure, unless there was one before: both sides end with the first. */
void gpufi_checkpoint_queue_fail(gpufi_checkpoint_queue *queue, gpuf_status status,
                                 const gpuf_error *error);

#endif
