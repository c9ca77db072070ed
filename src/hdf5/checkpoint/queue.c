#include "hdf5/checkpoint/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void gpufi_checkpoint_queue_init(gpufi_checkpoint_queue *queue) {
  pthread_mutex_init(&queue->mutex, NULL);
  pthread_cond_init(&queue->changed, NULL);
  gpufi_checkpoint_queue_reset(queue);
}

/* Each batch that there is has a range of a ring. */
static void free_batches(gpufi_checkpoint_queue *queue) {
  for (int place = 0; place < GPUFI_CHECKPOINT_PLACE_COUNT; place++) {
    gpufi_checkpoint_ring *const ring = &queue->rings[place];
    gpufi_checkpoint_batch *newer;
    for (gpufi_checkpoint_batch *batch = ring->oldest; batch; batch = newer) {
      newer = batch->newer;
      free(batch);
    }
    ring->oldest = ring->newest = NULL;
    ring->head = ring->used_nbytes = 0;
  }
  memset(queue->batches, 0, sizeof(queue->batches));
}

void gpufi_checkpoint_queue_fini(gpufi_checkpoint_queue *queue) {
  free_batches(queue);
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->mutex);
}

void gpufi_checkpoint_queue_reset(gpufi_checkpoint_queue *queue) {
  pthread_mutex_lock(&queue->mutex);
  free_batches(queue);
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

/* Take a contiguous range; false if there is none now. Ranges become free in the order in which
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
  if (ring->newest) {
    ring->newest->newer = batch;
  } else {
    ring->oldest = batch;
  }
  ring->newest = batch;
  return true;
}

/* Free what is given back at the ring's end. */
static void free_ranges(gpufi_checkpoint_ring *ring) {
  while (ring->oldest && ring->oldest->is_dropped) {
    gpufi_checkpoint_batch *const batch = ring->oldest;
    ring->oldest = batch->newer;
    ring->used_nbytes -= batch->taken_nbytes;
    free(batch);
  }
  if (!ring->oldest) {
    ring->newest = NULL;
  }
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

size_t gpufi_checkpoint_queue_nbytes(const gpufi_checkpoint_queue *queue) {
  const size_t on_device = queue->rings[GPUFI_CHECKPOINT_ON_DEVICE].nbytes;
  const size_t on_host = queue->rings[GPUFI_CHECKPOINT_ON_HOST].nbytes;
  return on_device > on_host ? on_device : on_host;
}

bool gpufi_checkpoint_queue_holds(const gpufi_checkpoint_queue *queue, size_t nbytes) {
  return nbytes <= gpufi_checkpoint_queue_nbytes(queue);
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

void gpufi_checkpoint_queue_put(gpufi_checkpoint_queue *queue, size_t writer,
                                gpufi_checkpoint_batch *batch) {
  gpufi_checkpoint_batches *const batches = &queue->batches[writer];
  pthread_mutex_lock(&queue->mutex);
  batch->next = NULL;
  batch->position = queue->taken_count;
  if (batches->first) {
    batches->last->next = batch;
  } else {
    batches->first = batch;
  }
  batches->last = batch;
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

/* Whether the writer's next batch of the tensor at `position` is there, or will never be. Called
 * with the mutex held. */
static bool has_next(const gpufi_checkpoint_queue *queue, size_t writer, size_t position) {
  return queue->status != GPUF_OK || queue->batches[writer].first ||
         queue->taken_count > position || queue->is_ended;
}

bool gpufi_checkpoint_queue_has_next(gpufi_checkpoint_queue *queue, size_t writer,
                                     size_t position) {
  pthread_mutex_lock(&queue->mutex);
  const bool has = has_next(queue, writer, position);
  pthread_mutex_unlock(&queue->mutex);
  return has;
}

gpuf_status gpufi_checkpoint_queue_take(gpufi_checkpoint_queue *queue, size_t writer,
                                        size_t position, gpufi_checkpoint_batch **batch,
                                        gpuf_error *err) {
  gpufi_checkpoint_batches *const batches = &queue->batches[writer];
  pthread_mutex_lock(&queue->mutex);
  while (!has_next(queue, writer, position)) {
    pthread_cond_wait(&queue->changed, &queue->mutex);
  }
  const gpuf_status status = failure(queue, err);
  *batch = NULL;
  if (status == GPUF_OK && batches->first && batches->first->position == position) {
    *batch = batches->first;
    batches->first = (*batch)->next;
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
    batch->is_dropped = true;
    free_ranges(&queue->rings[batch->place]);
    wake(queue);
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
