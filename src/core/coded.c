#include "core/coded.h"

#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/batch.h"
#include "core/coded_plan.h"

/* One batch is encoded, one crosses the link, and two are decoded. */
#define BATCH_COUNT 4
/* How many encodings, and how many transfers, are enqueued at a time. With two of them the device
 * goes on with the next before a thread notices the end of one. */
#define AHEAD_COUNT_MAX 2

typedef struct coded_batch {
  gpufi_batch batch;
  size_t offset;    /* in host memory's order of bytes, of its first chunk */
  size_t taken;     /* chunks that threads have begun to decode */
  size_t undecoded; /* chunks that are not decoded yet; at 0 the next round may begin */
} coded_batch;

/* Guarded by the future's lock, except that the thread whose turn it is uses a batch without it.
 * Round i is done with batches[i % batch_count]. */
struct gpufi_coded {
  const gpufi_copy *copy;
  pthread_cond_t changed; /* a thread that found nothing to do may find something */
  coded_batch batches[BATCH_COUNT];
  int64_t batch_count;
  size_t next_offset; /* of the first chunk that no round has yet */
  /* How many rounds have started to be encoded, have started their transfer, have arrived, and have
   * had all their chunks taken by threads. */
  int64_t encoded, sent, arrived, taken;
  bool driven; /* a thread is taking the device's next step */
};

typedef enum step { STEP_NONE, STEP_ENCODE, STEP_SEND, STEP_AWAIT } step;

static coded_batch *batch_of(gpufi_coded *c, int64_t round_index) {
  return &c->batches[round_index % c->batch_count];
}

/* What the device could do next. Called with the lock held. */
static step next_step(gpufi_coded *c) {
  if (c->next_offset < c->copy->nbytes && c->encoded - c->sent < AHEAD_COUNT_MAX &&
      batch_of(c, c->encoded)->undecoded == 0) {
    return STEP_ENCODE;
  }
  if (c->sent < c->encoded && c->sent - c->arrived < AHEAD_COUNT_MAX) {
    return STEP_SEND;
  }
  return c->arrived < c->sent ? STEP_AWAIT : STEP_NONE;
}

/* Choose the next chunks, up to a batch of whole ones; at the end, one chunk of fewer rows. */
static void choose_chunks(const gpufi_copy *copy, size_t offset, gpufi_chunks *chunks) {
  const size_t left = copy->nbytes - offset, whole = left / copy->chunks.raw_nbytes;
  *chunks = copy->chunks;
  if (whole > 0) {
    chunks->count = gpufi_min_nbytes(whole, chunks->count);
    return;
  }
  const size_t row_nbytes = chunks->raw_nbytes / chunks->shape.dims[0];
  chunks->count = 1;
  chunks->shape.dims[0] = (uint32_t)(left / row_nbytes);
  chunks->raw_nbytes = left;
  chunks->raw_pitch_nbytes = gpufi_round_up(left, GPUFI_CODED_ALIGN_NBYTES);
}

/* Whether the raw chunks can be encoded where they lie: contiguous and aligned as backends need. */
static bool can_stay(const gpufi_copy *copy, const gpufi_chunks *chunks) {
  return copy->route == GPUFI_ROUTE_FLAT &&
         (uintptr_t)copy->d_data % GPUFI_CODED_ALIGN_NBYTES == 0 &&
         chunks->raw_pitch_nbytes == chunks->raw_nbytes;
}

static gpuf_status start_encoding(const gpufi_copy *copy, coded_batch *cb, gpuf_error *err) {
  const int64_t element_nbytes = copy->host_layout.element_nbytes;
  const void *d_raw = copy->d_data + cb->offset;
  gpuf_status status = GPUF_OK;
  gpufi_chunks *const chunks = &cb->batch.chunks;
  choose_chunks(copy, cb->offset, chunks);
  if (!can_stay(copy, chunks)) {
    const int64_t first = (int64_t)cb->offset / element_nbytes;
    const int64_t count = (int64_t)(chunks->count * chunks->raw_nbytes) / element_nbytes;
    d_raw = cb->batch.d_chunks;
    status = gpufi_repack_enqueue(copy, cb->batch.d_chunks, cb->batch.channel->stream, first, count,
                                  err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_error inner;
  status = gpufi_batch_encode(&cb->batch, d_raw, &inner);
  const bool unable = status == GPUF_ERR_UNSUPPORTED;
  return status == GPUF_OK ? status
                           : gpufi_fail(err, status, inner.native_code, "%s%s", inner.message,
                                        unable ? "; or copy it over the link as it is" : "");
}

static gpuf_status take_step(const gpufi_copy *copy, coded_batch *cb, step what, gpuf_error *err) {
  switch (what) {
  case STEP_ENCODE:
    return start_encoding(copy, cb, err);
  case STEP_SEND:
    return gpufi_batch_send(&cb->batch, NULL, err);
  default:
    return gpufi_batch_wait(&cb->batch, err);
  }
}

/* Take the device's next step. A thread that has other work to do passes `may_wait` false; the
 * result is false if the step would have to wait for the device. Called with the lock held, which
 * is released meanwhile. */
static bool drive(gpuf_future *future, step what, bool may_wait) {
  gpufi_coded *const c = future->coded;
  int64_t *const counts[] = {NULL, &c->encoded, &c->sent, &c->arrived}; /* by step */
  coded_batch *const cb = batch_of(c, *counts[what]);
  gpuf_status status = GPUF_OK;
  gpuf_error error;
  bool ready = what == STEP_ENCODE || may_wait;
  c->driven = true;
  if (what == STEP_ENCODE) {
    cb->offset = c->next_offset;
    cb->taken = 0;
    cb->undecoded = 1; /* so that no other round begins; the count is known later */
  }
  pthread_mutex_unlock(&future->lock);
  if (!ready) {
    status = gpufi_batch_ready(&cb->batch, &ready, &error);
  }
  if (ready && status == GPUF_OK) {
    status = take_step(c->copy, cb, what, &error);
  }
  pthread_mutex_lock(&future->lock);
  c->driven = false;
  gpufi_future_fail(future, status, &error);
  if (!ready || status != GPUF_OK) {
    return status != GPUF_OK;
  }
  if (what == STEP_ENCODE) {
    cb->undecoded = cb->batch.chunks.count;
    c->next_offset += cb->batch.chunks.count * cb->batch.chunks.raw_nbytes;
  }
  ++*counts[what];
  pthread_cond_broadcast(&c->changed);
  return true;
}

/* Decode chunk `index` of a batch that has arrived into place. `*scratch` is the thread's own. */
static gpuf_status decode(const gpufi_copy *copy, const coded_batch *cb, size_t index,
                          void **scratch, gpuf_error *err) {
  const gpufi_batch *const b = &cb->batch;
  const gpufi_strided *const layout = &copy->host_layout;
  const size_t raw_nbytes = b->chunks.raw_nbytes, offset = cb->offset + index * raw_nbytes;
  const int64_t first = (int64_t)offset / layout->element_nbytes;
  const int64_t count = (int64_t)raw_nbytes / layout->element_nbytes;
  const uint8_t *const bytes = b->bytes + b->places[index].offset;
  const size_t nbytes = (size_t)b->places[index].nbytes;
  if (nbytes == 0) {
    gpufi_strided_unpack(layout, copy->h_data, first, count, bytes);
    return GPUF_OK;
  }
  if (gpufi_strided_is_contiguous(layout)) {
    return gpufi_codec_decode(bytes, nbytes, copy->h_data + offset, raw_nbytes, err);
  }
  if (!*scratch) {
    *scratch = malloc(copy->chunks.raw_nbytes);
  }
  if (!*scratch) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory for a chunk of %zu bytes; copy into a contiguous array, or choose "
                      "a smaller options.piece_nbytes",
                      copy->chunks.raw_nbytes);
  }
  const gpuf_status status = gpufi_codec_decode(bytes, nbytes, *scratch, raw_nbytes, err);
  if (status == GPUF_OK) {
    gpufi_strided_unpack(layout, copy->h_data, first, count, *scratch);
  }
  return status;
}

/* Take the next chunk that has arrived and decode it. Called with the lock held, which is released
 * meanwhile. */
static void decode_next(gpuf_future *future, void **scratch) {
  gpufi_coded *const c = future->coded;
  coded_batch *const cb = batch_of(c, c->taken);
  const size_t index = cb->taken++;
  c->taken += cb->taken == cb->batch.chunks.count;
  gpuf_error error;
  pthread_mutex_unlock(&future->lock);
  const gpuf_status status = decode(c->copy, cb, index, scratch, &error);
  pthread_mutex_lock(&future->lock);
  gpufi_future_fail(future, status, &error);
  future->arrived_nbytes += status == GPUF_OK ? cb->batch.chunks.raw_nbytes : 0;
  if (--cb->undecoded == 0 || status != GPUF_OK) {
    pthread_cond_broadcast(&c->changed);
  }
}

/* Waits for the device first. */
static void destroy(gpufi_coded *c) {
  for (int64_t i = 0; i < BATCH_COUNT; i++) {
    gpufi_batch_fini(&c->batches[i].batch);
  }
  pthread_cond_destroy(&c->changed);
  free(c);
}

static void release(gpuf_future *future) {
  destroy(future->coded);
}

/* What each thread of the copy does, to its end. */
static void run(gpuf_future *future) {
  gpufi_coded *const c = future->coded;
  void *scratch = NULL;
  pthread_mutex_lock(&future->lock);
  while (future->status == GPUF_OK && (c->next_offset < c->copy->nbytes || c->taken < c->encoded)) {
    const step next = c->driven ? STEP_NONE : next_step(c);
    if (next != STEP_NONE && drive(future, next, c->taken == c->arrived)) {
      continue;
    }
    if (c->taken < c->arrived) {
      decode_next(future, &scratch);
    } else if (next == STEP_NONE) {
      pthread_cond_wait(&c->changed, &future->lock);
    }
  }
  pthread_cond_broadcast(&c->changed); /* the others may end, too */
  pthread_mutex_unlock(&future->lock);
  free(scratch);
  gpufi_future_leave(future, 1);
}

static gpuf_status create(const gpufi_copy *copy, gpufi_coded **out, gpuf_error *err) {
  gpufi_coded *const c = calloc(1, sizeof(*c));
  if (!c) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a copy by way of the codec");
  }
  pthread_cond_init(&c->changed, NULL);
  c->copy = copy;
  const size_t d_chunk_count = can_stay(copy, &copy->chunks) ? 1 : copy->chunks.count;
  const size_t batch_nbytes = copy->chunks.count * copy->chunks.raw_nbytes;
  const int64_t wanted =
      (int64_t)gpufi_min_nbytes((copy->nbytes - 1) / batch_nbytes + 1, BATCH_COUNT);
  gpuf_status status = GPUF_OK;
  while (c->batch_count < wanted && status == GPUF_OK) {
    gpufi_batch *const b = &c->batches[c->batch_count].batch;
    status = gpufi_batch_init(b, copy->backend, copy->device, &copy->chunks, true,
                              d_chunk_count * copy->chunks.raw_pitch_nbytes, err);
    if (status == GPUF_OK) {
      status = gpufi_channel_join(b->channel, copy->producer, err);
    }
    c->batch_count += status == GPUF_OK;
  }
  if (c->batch_count == 0) {
    destroy(c);
    return status;
  }
  *out = c; /* fewer batches than wanted only cost speed */
  return GPUF_OK;
}

gpuf_status gpufi_coded_prepare(gpuf_future *future, gpuf_error *err) {
  const gpuf_status status = create(&future->copy, &future->coded, err);
  if (status == GPUF_OK) {
    future->run = run;
    future->release = release;
  }
  return status;
}
