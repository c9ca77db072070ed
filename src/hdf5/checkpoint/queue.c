#include "hdf5/checkpoint/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void gpufi_checkpoint_queue_init(gpufi_checkpoint_queue *queue) {
  pthread_mutex_init(&queue->mutex, NULL);
  pthread_cond_init(&queue->changed, NULL);
  gpufi_checkpoint_queue_reset(queue);
}

static void free_batches(gpufi_checkpoint_queue *queue) {
  gpufi_checkpoint_batch *next;
  for (gpufi_checkpoint_batch *batch = queue->first; batch; batch = next) {
    next = batch->next;
    free(batch);
  }
  queue->first = NULL;
  queue->last = &queue->first;
}

void gpufi_checkpoint_queue_fini(gpufi_checkpoint_queue *queue) {
  free_batches(queue);
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->mutex);
}

void gpufi_checkpoint_queue_reset(gpufi_checkpoint_queue *queue) {
  pthread_mutex_lock(&queue->mutex);
  free_batches(queue);
  for (int place = 0; place < GPUFI_CHECKPOINT_PLACE_COUNT; place++) {
    queue->rings[place].head = queue->rings[place].used_nbytes = 0;
  }
  queue->taken_count = 0;
  queue->is_ended = false;
  queue->status = GPUF_OK;
  pthread_mutex_unlock(&queue->mutex);
}

/* The failure of either side. Called with the mutex held. */
static gpuf_status failure(const gpufi_checkpoint_queue *queue, gpuf_error *err) {
  if (queue->status != GPUF_OK && err) {
    *err = queue->error;
  }
  return queue->status;
}

static void wake(gpufi_checkpoint_queue *queue) {
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
}

/* --- The rings ---------------------------------------------------------------- */

/* Take a contiguous range; false if there is none now. Ranges are given back in the order in which
 * they were taken, so the free part begins at the head and goes round the end. */
static bool take_range(gpufi_checkpoint_ring *ring, gpufi_checkpoint_batch *batch) {
  const size_t free_nbytes = ring->nbytes - ring->used_nbytes;
  size_t at = ring->used_nbytes == 0 ? 0 : ring->head;
  size_t skipped_nbytes = 0;
  if (ring->nbytes - at < batch->nbytes) { /* it goes to the begin, behind what is left here */
    skipped_nbytes = ring->nbytes - at;
    at = 0;
  }
  if (free_nbytes < skipped_nbytes || free_nbytes - skipped_nbytes < batch->nbytes) {
    return false;
  }
  batch->bytes = ring->base + at;
  batch->taken_nbytes = skipped_nbytes + batch->nbytes;
  ring->head = at + batch->nbytes;
  ring->used_nbytes += batch->taken_nbytes;
  return true;
}

/* In the first ring that has room. */
static bool find_range(gpufi_checkpoint_queue *queue, gpufi_checkpoint_batch *batch) {
  for (int place = 0; place < GPUFI_CHECKPOINT_PLACE_COUNT; place++) {
    if (take_range(&queue->rings[place], batch)) {
      batch->place = (gpufi_checkpoint_place)place;
      return true;
    }
  }
  return false;
}

/* --- The committer ------------------------------------------------------------ */

bool gpufi_checkpoint_queue_holds(const gpufi_checkpoint_queue *queue, size_t nbytes) {
  return nbytes <= queue->rings[GPUFI_CHECKPOINT_ON_DEVICE].nbytes ||
         nbytes <= queue->rings[GPUFI_CHECKPOINT_ON_HOST].nbytes;
}

gpuf_status gpufi_checkpoint_queue_get(gpufi_checkpoint_queue *queue, size_t count, size_t nbytes,
                                       bool waits, gpufi_checkpoint_batch **batch,
                                       gpuf_error *err) {
  bool is_found = false;
  *batch = NULL;
  gpufi_checkpoint_batch *const b = malloc(sizeof(*b) + count * sizeof(*b->chunks));
  if (!b) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note %zu chunks", count);
  }
  memset(b, 0, sizeof(*b));
  b->count = count;
  b->nbytes = nbytes;
  pthread_mutex_lock(&queue->mutex);
  while (queue->status == GPUF_OK && !(is_found = find_range(queue, b)) && waits) {
    pthread_cond_wait(&queue->changed, &queue->mutex);
  }
  const gpuf_status status = failure(queue, err);
  pthread_mutex_unlock(&queue->mutex);
  if (is_found) {
    *batch = b;
  } else {
    free(b);
  }
  return status;
}

void gpufi_checkpoint_queue_put(gpufi_checkpoint_queue *queue, gpufi_checkpoint_batch *batch) {
  pthread_mutex_lock(&queue->mutex);
  batch->next = NULL;
  batch->tensor = queue->taken_count;
  *queue->last = batch;
  queue->last = &batch->next;
  wake(queue);
}

void gpufi_checkpoint_queue_end_tensor(gpufi_checkpoint_queue *queue) {
  pthread_mutex_lock(&queue->mutex);
  queue->taken_count++;
  wake(queue);
}

void gpufi_checkpoint_queue_end(gpufi_checkpoint_queue *queue) {
  pthread_mutex_lock(&queue->mutex);
  queue->is_ended = true;
  wake(queue);
}

/* --- The writer --------------------------------------------------------------- */

gpuf_status gpufi_checkpoint_queue_take(gpufi_checkpoint_queue *queue, size_t index,
                                        gpufi_checkpoint_batch **batch, gpuf_error *err) {
  pthread_mutex_lock(&queue->mutex);
  while (queue->status == GPUF_OK && !queue->first && queue->taken_count <= index) {
    pthread_cond_wait(&queue->changed, &queue->mutex);
  }
  const gpuf_status status = failure(queue, err);
  *batch = NULL;
  if (status == GPUF_OK && queue->first && queue->first->tensor == index) {
    *batch = queue->first;
    queue->first = (*batch)->next;
    if (!queue->first) {
      queue->last = &queue->first;
    }
  }
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

gpuf_status gpufi_checkpoint_queue_await_end(gpufi_checkpoint_queue *queue, gpuf_error *err) {
  pthread_mutex_lock(&queue->mutex);
  while (!queue->is_ended) {
    pthread_cond_wait(&queue->changed, &queue->mutex);
  }
  const gpuf_status status = failure(queue, err);
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

/* --- Both --------------------------------------------------------------------- */

void gpufi_checkpoint_queue_drop(gpufi_checkpoint_queue *queue, gpufi_checkpoint_batch *batch) {
  if (batch) {
    pthread_mutex_lock(&queue->mutex);
    queue->rings[batch->place].used_nbytes -= batch->taken_nbytes;
    wake(queue);
    free(batch);
  }
}

void gpufi_checkpoint_queue_fail(gpufi_checkpoint_queue *queue, gpuf_status status,
                                 const gpuf_error *error) {
  pthread_mutex_lock(&queue->mutex);
  if (queue->status == GPUF_OK) {
    queue->status = status;
    queue->error = *error;
  }
  wake(queue);
}
