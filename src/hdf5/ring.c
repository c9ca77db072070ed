#include "hdf5/ring.h"

#include "base/error.h"
#include "core/workers.h"
#include "hdf5/coding.h"
#include "hdf5/slot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_PER_WORKER 3
/* Slots hold this much together, or two chunks and their encodings where that is more. */
#define MEMORY_NBYTES ((size_t)256 << 20)
#define NOTHING ((int64_t)-1)

/* Chunk i uses slot i % slot_count, so chunks pass through in order. A slot goes back and forth
 * between the calling thread, which reads a chunk from the file or writes one, and the workers.
 * When reading, the calling thread has the first turn; when writing, a worker. */
typedef struct ring {
  const gpufi_h5_transfer *transfer;
  gpufi_h5_slot *slots;
  int64_t slot_count;
  gpufi_workers workers;
  int32_t worker_count;
  pthread_mutex_t mutex; /* guards the slots' turns and what follows */
  pthread_cond_t changed;
  /* The calling thread's: it has passed the slots of the chunks before `passed` on, and begun to
   * write those before `begun`. */
  int64_t passed, begun;
  int64_t next;       /* the chunk that the next worker takes */
  int64_t left_count; /* chunks that no worker has finished */
  bool stop;
  gpuf_status status; /* of the first failure in a worker */
  gpuf_error error;
} ring;

static gpufi_h5_slot *slot_of(const ring *r, int64_t index) {
  return &r->slots[index % r->slot_count];
}

static void pass(ring *r, gpufi_h5_slot *slot, gpufi_h5_turn turn) {
  pthread_mutex_lock(&r->mutex);
  r->left_count -= slot->turn == GPUFI_H5_TURN_TAKEN;
  slot->turn = turn;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->mutex);
}

/* --- Workers ----------------------------------------------------------------- */

/* The next chunk for a worker; NOTHING when there is none, or none yet and `waits` is false. */
static int64_t claim(ring *r, bool waits) {
  int64_t index = NOTHING;
  pthread_mutex_lock(&r->mutex);
  while (!r->stop && r->next < r->transfer->grid.total) {
    gpufi_h5_slot *slot = slot_of(r, r->next);
    if (slot->turn == GPUFI_H5_TURN_WORKERS) {
      slot->turn = GPUFI_H5_TURN_TAKEN;
      slot->chunk.index = index = r->next++;
      break;
    }
    if (!waits) {
      break;
    }
    pthread_cond_wait(&r->changed, &r->mutex);
  }
  pthread_mutex_unlock(&r->mutex);
  return index;
}

static void record_failure(ring *r, gpuf_status status, const gpuf_error *error) {
  pthread_mutex_lock(&r->mutex);
  if (r->status == GPUF_OK) {
    r->status = status;
    r->error = *error;
  }
  r->stop = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->mutex);
}

/* Take one chunk after another, as long as there are any, or, without `waits`, any yet. While the
 * device copies one, another is encoded or decoded. */
static void work(ring *r, bool waits) {
  const gpufi_h5_transfer *transfer = r->transfer;
  int64_t held = NOTHING;
  gpuf_error error = {0};
  gpuf_status status = GPUF_OK;
  void *scratch = gpufi_h5_scratch_create(transfer->dataset);
  if (!scratch) {
    status = gpufi_fail(&error, GPUF_ERR_NO_MEMORY, 0, "no memory for the codec's scratch");
  }
  while (status == GPUF_OK) {
    const int64_t next = claim(r, waits && held == NOTHING);
    if (next == NOTHING && held == NOTHING) {
      break;
    }
    if (next != NOTHING) {
      status = gpufi_h5_slot_begin(slot_of(r, next), transfer, scratch, &error);
    }
    if (status == GPUF_OK && held != NOTHING) {
      status = gpufi_h5_slot_end(slot_of(r, held), transfer, scratch, &error);
      if (status == GPUF_OK) {
        pass(r, slot_of(r, held), GPUFI_H5_TURN_CALLER);
      }
    }
    held = next;
  }
  if (status != GPUF_OK) {
    record_failure(r, status, &error);
  }
  free(scratch);
}

static void worker(void *arg) {
  work(arg, true);
}

/* --- The calling thread ------------------------------------------------------ */

/* Whether it is the caller's turn, now or, with `waits`, in the end. False after a failure. */
static bool is_callers_turn(ring *r, int64_t index, bool waits) {
  const gpufi_h5_slot *const slot = slot_of(r, index);
  bool is_turn;
  if (waits && r->worker_count == 0) {
    work(r, false);
  }
  pthread_mutex_lock(&r->mutex);
  while (waits && !r->stop && slot->turn != GPUFI_H5_TURN_CALLER) {
    pthread_cond_wait(&r->changed, &r->mutex);
  }
  is_turn = !r->stop && slot->turn == GPUFI_H5_TURN_CALLER;
  pthread_mutex_unlock(&r->mutex);
  return is_turn;
}

/* The outcome, once workers have finished every chunk or one of them has failed. */
static gpuf_status await_workers(ring *r, gpuf_error *err) {
  gpuf_status status;
  if (r->worker_count == 0) {
    work(r, false);
  }
  pthread_mutex_lock(&r->mutex);
  while (!r->stop && r->left_count > 0) {
    pthread_cond_wait(&r->changed, &r->mutex);
  }
  status = r->status;
  if (status != GPUF_OK && err) {
    *err = r->error;
  }
  pthread_mutex_unlock(&r->mutex);
  return status;
}

static void pass_until(ring *r, int64_t end) {
  for (; r->passed < end; r->passed++) {
    pass(r, slot_of(r, r->passed), GPUFI_H5_TURN_WORKERS);
  }
}

/* Begin to write the chunks before `end` that HDF5 was given, and pass the slots of those on that
 * were begun before. Left. */
static gpuf_status begin_writes(ring *r, const gpufi_h5_session *session, int64_t end,
                                gpuf_error *err) {
  const gpuf_status status = gpufi_h5_chunks_begin(session, GPUF_OK, err);
  if (status == GPUF_OK) {
    pass_until(r, r->begun);
    r->begun = end;
  }
  return status;
}

/* Have the chunks before `end` written, and pass their slots on. Left. */
static gpuf_status settle(ring *r, const gpufi_h5_session *session, int64_t end, gpuf_status status,
                          gpuf_error *err) {
  status = gpufi_h5_chunks_settle(session, status, err);
  if (status == GPUF_OK) {
    pass_until(r, end);
    r->begun = end;
  }
  return status;
}

/* Whether chunk `index` has its slot, which is the caller's; not after a failure. The lock is kept
 * as long as the slot is the caller's already. A third of the slots is written at a time, while
 * HDF5 is given the next third and the workers have the rest. */
static bool await_slot(ring *r, gpufi_h5_session *session, int64_t index, gpuf_status *status,
                       gpuf_error *err) {
  if (3 * (index - r->begun) > r->slot_count) {
    gpufi_h5_leave(session);
    *status = begin_writes(r, session, index, err);
  }
  const bool is_passed = index - r->passed < r->slot_count; /* since its chunk before */
  if (*status == GPUF_OK && is_passed && is_callers_turn(r, index, false)) {
    return true;
  }
  gpufi_h5_leave(session);
  *status = settle(r, session, index, *status, err);
  return *status == GPUF_OK && is_callers_turn(r, index, true);
}

/* Read or write every chunk. Slots are passed on at once where no write is deferred. */
static gpuf_status transfer_file(ring *r, gpufi_h5_session *session, int64_t first,
                                 gpuf_error *err) {
  const gpufi_h5_transfer *transfer = r->transfer;
  gpuf_status status = GPUF_OK;
  int64_t index = first; /* those before it were put, or got */
  session->defers = transfer->writes && session->context && session->context->file;
  r->passed = r->begun = first;
  while (index < transfer->grid.total && status == GPUF_OK &&
         await_slot(r, session, index, &status, err)) {
    gpufi_h5_slot *const slot = slot_of(r, index);
    status = transfer->writes ? gpufi_h5_chunk_put(session, transfer, &slot->chunk, err)
                              : gpufi_h5_chunk_get(session, transfer, &slot->chunk, index, err);
    index += status == GPUF_OK;
    if (status == GPUF_OK && !session->defers) {
      pass(r, slot, GPUFI_H5_TURN_WORKERS);
      r->passed = r->begun = index;
    }
  }
  gpufi_h5_leave(session);
  status = settle(r, session, index, status, err);
  session->defers = false;
  return status == GPUF_OK ? await_workers(r, err) : status;
}

/* --- The ring ---------------------------------------------------------------- */

static gpuf_status init_slots(ring *r, int64_t chunk_count, int32_t thread_count, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = r->transfer->dataset;
  int64_t count =
      (int64_t)(MEMORY_NBYTES / (dataset->chunk_nbytes + gpufi_h5_encoded_bound(dataset)));
  if (count > (int64_t)thread_count * SLOTS_PER_WORKER) {
    count = (int64_t)thread_count * SLOTS_PER_WORKER;
  }
  if (count < 2) {
    count = 2;
  }
  if (count > chunk_count) {
    count = chunk_count;
  }
  r->slots = calloc((size_t)count, sizeof(*r->slots));
  while (r->slots && r->slot_count < count &&
         gpufi_h5_slot_init(&r->slots[r->slot_count], r->transfer)) {
    r->slot_count++;
  }
  if (r->slot_count == 0) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory for a chunk of %zu bytes and its encoding: choose smaller chunks",
                      dataset->chunk_nbytes);
  }
  return GPUF_OK;
}

static gpuf_status ring_init(ring *r, const gpufi_h5_session *session,
                             const gpufi_h5_transfer *transfer, int64_t first, gpuf_error *err) {
  const int64_t chunk_count = transfer->grid.total - first;
  const int32_t most = gpufi_h5_session_thread_count(session);
  const int32_t thread_count = chunk_count < most ? (int32_t)chunk_count : most;
  gpuf_status status;
  memset(r, 0, sizeof(*r));
  pthread_mutex_init(&r->mutex, NULL);
  pthread_cond_init(&r->changed, NULL);
  r->transfer = transfer;
  r->next = first;
  r->left_count = chunk_count;
  status = init_slots(r, chunk_count, thread_count, err);
  if (status == GPUF_OK) {
    /* One chunk is no work for two: the calling thread does all of it. */
    r->worker_count =
        chunk_count > 1 ? gpufi_workers_start(&r->workers, thread_count, worker, r) : 0;
  }
  return status;
}

static void ring_fini(ring *r) {
  pthread_mutex_lock(&r->mutex);
  r->stop = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->mutex);
  gpufi_workers_wait(&r->workers);
  for (int64_t i = 0; i < r->slot_count; i++) {
    gpufi_h5_slot_fini(&r->slots[i]);
  }
  free(r->slots);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->mutex);
}

gpuf_status gpufi_h5_ring_transfer(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                   int64_t first, gpuf_error *err) {
  ring r;
  gpuf_status status = ring_init(&r, session, transfer, first, err);
  if (status == GPUF_OK) {
    status = transfer_file(&r, session, first, err);
  }
  ring_fini(&r);
  return status;
}
