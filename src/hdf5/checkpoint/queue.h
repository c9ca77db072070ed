/* Encoded batches of chunks on their way from a commit to the writer of the file, in order, and the
 * memory that they wait in: a ring on the device and one of page-locked memory. If both are full,
 * the commit waits for the writer. */
#ifndef GPUFI_HDF5_CHECKPOINT_QUEUE_H
#define GPUFI_HDF5_CHECKPOINT_QUEUE_H

#include <pthread.h>

#include "backend/codec.h"

typedef enum gpufi_checkpoint_place {
  GPUFI_CHECKPOINT_ON_DEVICE,
  GPUFI_CHECKPOINT_ON_HOST,
  GPUFI_CHECKPOINT_PLACE_COUNT,
} gpufi_checkpoint_place;

/* Memory that is given out and given back in one order. */
typedef struct gpufi_checkpoint_ring {
  uint8_t *base;
  size_t nbytes;
  size_t head; /* where the next range begins, if it fits there */
  size_t used_nbytes;
} gpufi_checkpoint_ring;

typedef struct gpufi_checkpoint_batch {
  struct gpufi_checkpoint_batch *next;
  size_t tensor; /* which one it is of; set by put */
  int64_t first; /* chunk of the tensor's grid */
  size_t count;  /* of chunks */
  gpufi_checkpoint_place place;
  uint8_t *bytes;
  size_t nbytes;
  size_t taken_nbytes; /* of the ring, with what was left free before it */
  /* From `bytes` on; 0 bytes: the chunk is raw. */
  gpufi_chunk_place chunks[];
} gpufi_checkpoint_batch;

/* Between one thread that takes the snapshot, the committer, and the writer. */
typedef struct gpufi_checkpoint_queue {
  pthread_mutex_t mutex; /* guards what follows, but for the rings' constant base and nbytes */
  pthread_cond_t changed;
  gpufi_checkpoint_ring rings[GPUFI_CHECKPOINT_PLACE_COUNT];
  gpufi_checkpoint_batch *first, **last; /* that the writer has not taken */
  size_t taken_count;                    /* tensors of which the snapshot is complete */
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

/* Whether the rings hold batches of so many bytes at all. */
bool gpufi_checkpoint_queue_holds(const gpufi_checkpoint_queue *queue, size_t nbytes);
/* Get a batch with room for `count` chunks and `nbytes` of memory, on the device if it has some.
 * The rings hold so many bytes. Where there is no room now, the call with `waits` waits for the
 * writer, to which all batches have been put; without, *batch becomes NULL. Hand a batch on with
 * put, or with drop. */
gpuf_status gpufi_checkpoint_queue_get(gpufi_checkpoint_queue *queue, size_t count, size_t nbytes,
                                       bool waits, gpufi_checkpoint_batch **batch, gpuf_error *err);
/* Its bytes are there: the writer may take it. */
void gpufi_checkpoint_queue_put(gpufi_checkpoint_queue *queue, gpufi_checkpoint_batch *batch);
/* The snapshot of the next tensor is complete: batches that are put from now on are those of the
 * one after it. */
void gpufi_checkpoint_queue_end_tensor(gpufi_checkpoint_queue *queue);
/* The snapshot is complete, or has failed. */
void gpufi_checkpoint_queue_end(gpufi_checkpoint_queue *queue);

/* --- For the writer ------------------------------------------------------------ */

/* Take the next batch of tensor `index`; NULL once its snapshot is complete and there are no more.
 */
gpuf_status gpufi_checkpoint_queue_take(gpufi_checkpoint_queue *queue, size_t index,
                                        gpufi_checkpoint_batch **batch, gpuf_error *err);
/* Wait until the committer is done. */
gpuf_status gpufi_checkpoint_queue_await_end(gpufi_checkpoint_queue *queue, gpuf_error *err);

/* --- For both ------------------------------------------------------------------ */

/* Free a batch that was taken, or that was got and not put. */
void gpufi_checkpoint_queue_drop(gpufi_checkpoint_queue *queue, gpufi_checkpoint_batch *batch);
/* Remember a failure, unless there was one before: both sides end with the first. */
void gpufi_checkpoint_queue_fail(gpufi_checkpoint_queue *queue, gpuf_status status,
                                 const gpuf_error *error);

#endif
