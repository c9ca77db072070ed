/* Chunks in flight between the calling thread, which alone enters HDF5, and worker threads, which
 * copy, encode and decode. */
#include "base/error.h"
#include "hdf5/internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_DEFAULT_MAX 16
#define THREADS_MAX 64
#define SLOTS_PER_THREAD 3
/* Slots hold this much together, or two chunks and their encodings where that is more. */
#define MEMORY_NBYTES ((size_t)256 << 20)
#define NOTHING ((int64_t)-1)

/* --- Slots ------------------------------------------------------------------- */

static void slot_fini(gpufi_h5_slot *slot) {
  gpuf_future_destroy(slot->future);
  if (slot->raw_pooled) {
    gpuf_pool_release(slot->raw);
  } else {
    free(slot->raw);
  }
  free(slot->encoded);
  memset(slot, 0, sizeof(*slot));
}

/* Pageable memory does where the pool is at its cap: copies are staged then. */
static bool slot_init(gpufi_h5_slot *slot, const gpufi_h5_ring *ring) {
  const gpufi_h5_dataset *dataset = ring->move->dataset;
  const gpuf_device device = ring->move->tensor->device;
  const size_t encoded_nbytes = gpufi_h5_encoded_bound(dataset);
  if (device.kind != GPUF_DEVICE_CPU) {
    slot->raw_pooled =
        gpuf_pool_acquire(device, dataset->chunk_nbytes, &slot->raw, NULL) == GPUF_OK;
  }
  if (!slot->raw_pooled) {
    slot->raw = NULL;
    if (posix_memalign(&slot->raw, 64, dataset->chunk_nbytes) != 0) {
      slot->raw = NULL;
    }
  }
  if (encoded_nbytes) {
    slot->encoded = malloc(encoded_nbytes);
  }
  if (!slot->raw || (encoded_nbytes && !slot->encoded)) {
    slot_fini(slot);
    return false;
  }
  return true;
}

static gpuf_status init_slots(gpufi_h5_ring *ring, gpuf_error *err) {
  const size_t chunk_nbytes = ring->move->dataset->chunk_nbytes;
  const size_t slot_nbytes = chunk_nbytes + gpufi_h5_encoded_bound(ring->move->dataset);
  size_t count = MEMORY_NBYTES / slot_nbytes;
  if (count > (size_t)ring->thread_count * SLOTS_PER_THREAD) {
    count = (size_t)ring->thread_count * SLOTS_PER_THREAD;
  }
  if (count < 2) {
    count = 2;
  }
  if (count > (size_t)ring->move->grid.total) {
    count = (size_t)ring->move->grid.total;
  }
  ring->slots = calloc(count, sizeof(*ring->slots));
  while (ring->slots && (size_t)ring->slot_count < count &&
         slot_init(&ring->slots[ring->slot_count], ring)) {
    ring->slot_count++;
  }
  if (ring->slot_count == 0) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory for a chunk of %zu bytes and its encoding: choose smaller chunks",
                      chunk_nbytes);
  }
  return GPUF_OK;
}

/* --- Workers ----------------------------------------------------------------- */

/* The next chunk for a worker whose slot is `from`; NOTHING when there is none, or none yet and
 * `wait` is false. */
static int64_t claim(gpufi_h5_ring *ring, gpufi_h5_slot_state from, bool wait) {
  int64_t index = NOTHING;
  pthread_mutex_lock(&ring->mutex);
  while (!ring->stop && ring->next_claim < ring->move->grid.total) {
    gpufi_h5_slot *slot = &ring->slots[ring->next_claim % ring->slot_count];
    /* A reader's slot is READY with the chunk that is next; a writer's is FREE for it. */
    if (slot->state == from) {
      index = ring->next_claim++;
      slot->state = GPUFI_H5_SLOT_BUSY;
      slot->index = index;
      break;
    }
    if (!wait) {
      break;
    }
    pthread_cond_wait(&ring->changed, &ring->mutex);
  }
  pthread_mutex_unlock(&ring->mutex);
  return index;
}

static void record_failure(gpufi_h5_ring *ring, gpuf_status status, const gpuf_error *error) {
  pthread_mutex_lock(&ring->mutex);
  if (ring->status == GPUF_OK) {
    ring->status = status;
    ring->error = *error;
  }
  ring->stop = true;
  pthread_cond_broadcast(&ring->changed);
  pthread_mutex_unlock(&ring->mutex);
}

/* A worker keeps one chunk's copy in flight while it codes another. */
static void *worker(void *arg) {
  gpufi_h5_ring *ring = arg;
  const gpufi_h5_slot_state from = ring->work->produces ? GPUFI_H5_SLOT_FREE : GPUFI_H5_SLOT_READY;
  const gpufi_h5_slot_state to = ring->work->produces ? GPUFI_H5_SLOT_READY : GPUFI_H5_SLOT_FREE;
  int64_t held = NOTHING;
  gpuf_error error = {0};
  gpuf_status status = GPUF_OK;
  void *scratch = NULL;
  if (posix_memalign(&scratch, 64, gpufi_h5_scratch_nbytes(ring->move->dataset) + 64)) {
    scratch = NULL;
    status = gpufi_fail(&error, GPUF_ERR_NO_MEMORY, 0, "no memory for the encoder's scratch");
  }
  while (status == GPUF_OK) {
    const int64_t next = claim(ring, from, held == NOTHING);
    if (next == NOTHING && held == NOTHING) {
      break;
    }
    if (next != NOTHING) {
      status =
          ring->work->begin(ring->move, &ring->slots[next % ring->slot_count], scratch, &error);
    }
    if (status == GPUF_OK && held != NOTHING) {
      gpufi_h5_slot *slot = &ring->slots[held % ring->slot_count];
      if (ring->work->end) {
        status = ring->work->end(ring->move, slot, scratch, &error);
      }
      if (status == GPUF_OK) {
        gpufi_h5_ring_pass(ring, slot, to);
      }
    }
    held = next;
  }
  if (status != GPUF_OK) {
    record_failure(ring, status, &error);
  }
  free(scratch);
  return NULL;
}

static int32_t default_thread_count(void) {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < 1 ? 1 : count > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX : count;
}

static gpuf_status start_threads(gpufi_h5_ring *ring, gpuf_error *err) {
  const int wanted = ring->thread_count;
  int failure = 0;
  ring->thread_count = 0;
  ring->threads = calloc((size_t)wanted, sizeof(*ring->threads));
  while (ring->threads && ring->thread_count < wanted) {
    failure = pthread_create(&ring->threads[ring->thread_count], NULL, worker, ring);
    if (failure) {
      break;
    }
    ring->thread_count++;
  }
  /* Fewer threads than wanted still do the work. */
  if (ring->thread_count == 0) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, failure, "no thread could be started (errno %d)",
                      failure);
  }
  return GPUF_OK;
}

/* --- The ring ---------------------------------------------------------------- */

gpuf_status gpufi_h5_ring_init(gpufi_h5_ring *ring, const gpufi_h5_move *move,
                               const gpufi_h5_work *work, int64_t first, int32_t thread_count,
                               gpufi_h5_slot *slots, int64_t slot_count, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  memset(ring, 0, sizeof(*ring));
  pthread_mutex_init(&ring->mutex, NULL);
  pthread_cond_init(&ring->changed, NULL);
  ring->move = move;
  ring->work = work;
  ring->next_claim = first;
  ring->thread_count = thread_count ? thread_count : default_thread_count();
  if (ring->thread_count > THREADS_MAX) {
    ring->thread_count = THREADS_MAX;
  }
  if (ring->thread_count > move->grid.total - first) {
    ring->thread_count = (int)(move->grid.total - first);
  }
  ring->slots = slots;
  ring->slot_count = slot_count;
  ring->has_own_slots = !slots;
  if (!slots) {
    ring->slot_count = 0;
    status = init_slots(ring, err);
  }
  return status == GPUF_OK ? start_threads(ring, err) : status;
}

bool gpufi_h5_ring_slot(gpufi_h5_ring *ring, int64_t index, gpufi_h5_slot_state state, bool wait,
                        gpufi_h5_slot **slot) {
  bool there;
  *slot = &ring->slots[index % ring->slot_count];
  pthread_mutex_lock(&ring->mutex);
  while (wait && !ring->stop && (*slot)->state != state) {
    pthread_cond_wait(&ring->changed, &ring->mutex);
  }
  there = !ring->stop && (*slot)->state == state;
  pthread_mutex_unlock(&ring->mutex);
  return there;
}

void gpufi_h5_ring_pass(gpufi_h5_ring *ring, gpufi_h5_slot *slot, gpufi_h5_slot_state state) {
  pthread_mutex_lock(&ring->mutex);
  slot->state = state;
  pthread_cond_broadcast(&ring->changed);
  pthread_mutex_unlock(&ring->mutex);
}

gpuf_status gpufi_h5_ring_status(gpufi_h5_ring *ring, gpuf_error *err) {
  gpuf_status status;
  pthread_mutex_lock(&ring->mutex);
  status = ring->status;
  if (status != GPUF_OK && err) {
    *err = ring->error;
  }
  pthread_mutex_unlock(&ring->mutex);
  return status;
}

void gpufi_h5_ring_fini(gpufi_h5_ring *ring) {
  pthread_mutex_lock(&ring->mutex);
  ring->stop = true;
  pthread_cond_broadcast(&ring->changed);
  pthread_mutex_unlock(&ring->mutex);
  for (int i = 0; i < ring->thread_count && ring->threads; i++) {
    pthread_join(ring->threads[i], NULL);
  }
  for (int64_t i = 0; ring->has_own_slots && i < ring->slot_count; i++) {
    slot_fini(&ring->slots[i]);
  }
  if (ring->has_own_slots) {
    free(ring->slots);
  }
  free(ring->threads);
  pthread_cond_destroy(&ring->changed);
  pthread_mutex_destroy(&ring->mutex);
}
