/* Reading whole chunks into a tensor on a device: they cross the link encoded, a batch at a time,
 * are decoded there and copied to their elements' places. While one batch is decoded the next one
 * is read, by threads where the file is a plain one, else through HDF5. */
#include "base/error.h"
#include "core/crew.h"
#include "core/overlap.h"
#include "hdf5/batches.h"
#include "hdf5/coding.h"

#include <pthread.h>
#include <stdlib.h>

/* The chunks of a batch, which several threads read from the file. */
typedef struct loader {
  const gpufi_h5_transfer *transfer;
  gpufi_h5_chunk *chunks; /* of the batch; `encoded` lies in its pinned memory */
  size_t count;
  size_t next; /* atomic: the chunk that the next thread takes */
  gpufi_job job;
  pthread_mutex_t mutex; /* guards what follows */
  gpuf_status status;    /* the first failure */
  gpuf_error error;
} loader;

typedef struct reader {
  gpufi_h5_batches all;
  loader loaders[GPUFI_H5_BATCH_COUNT]; /* one for each batch in flight */
  gpufi_crew crew;                      /* which loads them */
  int32_t thread_count;
  gpufi_h5_chunk *chunks; /* of all of them */
  void *raw;              /* a chunk that the device does not decode */
} reader;

static loader *loader_of(reader *r, const gpufi_h5_batch *b) {
  return &r->loaders[b - r->all.batches];
}

/* --- From the file ----------------------------------------------------------- */

/* Load one chunk after another, until one fails or all are taken. Each thread does this. */
static void load_chunks(void *arg) {
  loader *l = arg;
  gpuf_error error = {0};
  size_t i;
  while ((i = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED)) < l->count) {
    const gpuf_status status = gpufi_h5_chunk_load(l->transfer, &l->chunks[i], &error);
    if (status != GPUF_OK) {
      __atomic_store_n(&l->next, l->count, __ATOMIC_RELAXED);
      pthread_mutex_lock(&l->mutex);
      if (l->status == GPUF_OK) {
        l->status = status;
        l->error = error;
      }
      pthread_mutex_unlock(&l->mutex);
    }
  }
}

/* Copy the elements at chunk->raw to the tensor. */
static gpuf_status place_elements(const reader *r, const gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor in_chunk, in_tensor;
  const gpuf_status status = gpufi_h5_transfer_views(r->all.transfer, chunk->index, chunk->raw, cpu,
                                                     &in_chunk, &in_tensor, err);
  return status == GPUF_OK ? gpuf_copy(&in_tensor, &in_chunk, NULL, err) : status;
}

/* Find the batch's chunks, whose bytes will lie end to end where they cross the link from, and let
 * the crew load them. Chunks of which HDF5 gives the elements go to the tensor at once. */
static gpuf_status fill_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  reader *r = by;
  loader *l = loader_of(r, b);
  gpufi_h5_session *session = r->all.session;
  gpuf_status status = GPUF_OK;
  l->count = l->next = 0;
  b->encoded_nbytes = 0;
  for (size_t i = 0; i < b->chunks.count && status == GPUF_OK; i++) {
    gpufi_h5_chunk *chunk = &l->chunks[i];
    chunk->raw = r->raw;
    chunk->encoded = b->bytes + b->encoded_nbytes;
    status = gpufi_h5_chunk_get(session, r->all.transfer, chunk, b->first + (int64_t)i, err);
    if (status == GPUF_OK && chunk->has_elements) {
      gpufi_h5_leave(session);
      status = place_elements(r, chunk, err);
    }
    if (status == GPUF_OK) {
      const bool is_filtered = !(chunk->filter_mask & GPUFI_H5_FILTER_SKIPPED);
      b->places[i] =
          (gpufi_chunk_place){b->encoded_nbytes, is_filtered ? chunk->encoded_nbytes : 0};
      b->encoded_nbytes += gpufi_round_up_16(chunk->encoded_nbytes);
    }
  }
  gpufi_h5_leave(session);
  if (status == GPUF_OK && r->all.transfer->direct.fd >= 0) {
    l->count = b->chunks.count;
    l->job = (gpufi_job){.run = load_chunks, .arg = l, .thread_max = r->thread_count};
    gpufi_crew_post(&r->crew, &l->job);
  }
  return status;
}

/* Load what no thread has taken yet, and wait for those that have. */
static gpuf_status await_batch(reader *r, loader *l, gpuf_error *err) {
  gpufi_crew_finish(&r->crew, &l->job);
  if (l->status != GPUF_OK && err) {
    *err = l->error;
  }
  return l->status;
}

/* --- On the device ----------------------------------------------------------- */

static gpuf_status scatter_chunk(const reader *r, const gpufi_h5_batch *b, size_t i,
                                 gpuf_error *err) {
  uint8_t *const d_raw = b->d_raw + i * r->all.chunks.raw_pitch_nbytes;
  gpuf_tensor in_chunk, in_tensor;
  const gpuf_status status =
      gpufi_h5_transfer_views(r->all.transfer, b->first + (int64_t)i, d_raw, b->channel->device,
                              &in_chunk, &in_tensor, err);
  return status == GPUF_OK ? gpufi_h5_batch_copy(&r->all, b, &in_tensor, &in_chunk, err) : status;
}

/* Enqueue the transfer, decoding, and the copy of what may be the chunks' elements to the tensor,
 * if they are not decoded there: where they are not right, end_batch copies them again. */
static gpuf_status decode_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  reader *r = by;
  gpuf_status status = await_batch(r, loader_of(r, b), err);
  if (status != GPUF_OK || b->encoded_nbytes == 0) {
    return status;
  }
  status = gpufi_h5_batches_find_chunks(&r->all, b, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_batch_decode(b, err);
  }
  const size_t scattered = b->d_chunks == b->d_raw ? b->chunks.count : 0;
  for (size_t i = 0; i < scattered && status == GPUF_OK; i++) {
    status = b->places[i].nbytes != 0 ? scatter_chunk(r, b, i, err) : GPUF_OK;
  }
  return status == GPUF_OK ? gpufi_h5_batch_mark(b, err) : status;
}

/* Chunks that the device did not decode are for the CPU: it decodes all forms, and says what is
 * wrong with a chunk. */
static gpuf_status end_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  reader *r = by;
  gpuf_status status = gpufi_h5_batch_wait(b, err);
  for (size_t i = 0; i < b->chunks.count && status == GPUF_OK; i++) {
    gpufi_h5_chunk *chunk = &loader_of(r, b)->chunks[i];
    if (b->places[i].nbytes != 0 && b->verdicts[i] == GPUFI_CHUNK_DONE) {
      continue;
    }
    ++*left_count;
    if (!chunk->has_elements) {
      status = gpufi_h5_chunk_decode(r->all.transfer, chunk, NULL, err);
      status = status == GPUF_OK ? place_elements(r, chunk, err) : status;
    }
  }
  return status;
}

/* --- The whole --------------------------------------------------------------- */

static gpuf_status reader_init(reader *r, gpuf_error *err) {
  const size_t batch_count = r->all.chunks.count;
  const size_t count = (size_t)r->all.count * batch_count;
  r->chunks = calloc(count, sizeof(*r->chunks));
  r->raw = malloc(r->all.chunks.raw_nbytes);
  if (!r->chunks || !r->raw) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu chunks in flight", count);
  }
  for (int i = 0; i < r->all.count; i++) {
    r->loaders[i].transfer = r->all.transfer;
    r->loaders[i].chunks = r->chunks + (size_t)i * batch_count;
  }
  return GPUF_OK;
}

/* No thread may be loading when the batches' memory is freed. */
static void reader_fini(reader *r) {
  for (int i = 0; i < GPUFI_H5_BATCH_COUNT; i++) {
    gpufi_crew_finish(&r->crew, &r->loaders[i].job);
    pthread_mutex_destroy(&r->loaders[i].mutex);
  }
  gpufi_crew_fini(&r->crew);
  gpufi_h5_batches_fini(&r->all);
  free(r->chunks);
  free(r->raw);
}

/* No more than there are chunks. */
static int32_t threads_for(const gpufi_h5_session *session, const gpufi_h5_transfer *transfer) {
  const int32_t most = gpufi_h5_session_thread_count(session);
  return transfer->grid.total < most ? (int32_t)transfer->grid.total : most;
}

gpuf_status gpufi_h5_batches_read(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                  int64_t *done, gpuf_error *err) {
  static const gpufi_h5_batch_steps steps = {fill_batch, decode_batch, end_batch};
  reader r = {.raw = NULL};
  gpuf_status status;
  *done = 0;
  if (!gpufi_h5_batches_suit(transfer) || gpufi_tensor_repeats_elements(transfer->tensor)) {
    return GPUF_OK;
  }
  for (int i = 0; i < GPUFI_H5_BATCH_COUNT; i++) {
    pthread_mutex_init(&r.loaders[i].mutex, NULL);
  }
  r.thread_count = threads_for(session, transfer);
  gpufi_crew_init(&r.crew, transfer->direct.fd >= 0 ? r.thread_count : 0);
  status = gpufi_h5_batches_init(&r.all, session, transfer, err);
  if (status == GPUF_OK) {
    status = reader_init(&r, err);
  }
  status = gpufi_h5_batches_run(&r.all, status, &steps, &r, done, err);
  reader_fini(&r);
  return status;
}
