/* Writing whole chunks of a tensor on a device: they are gathered and encoded there, a batch at a
 * time, cross the link encoded, and go to H5Dwrite_chunk. While one batch is written the next one
 * crosses and the one after that is encoded. */
#include "core/error.h"
#include "core/lane.h"
#include "core/runtime.h"
#include "hdf5/internal.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_COUNT 3
#define BATCH_NBYTES ((size_t)16 << 20)
/* Longer chunks would take too much of the device's memory. */
#define CHUNK_NBYTES_MAX ((size_t)32 << 20)
/* One chunk in so many may be left to this thread; where it is more, the workers do better. */
#define LEFT_RATIO 8

/* Chunks [first, first + count) of the grid. Its memory is in the lane's workspace. */
typedef struct batch {
  gpufi_lane *lane;
  uint8_t *d_raw, *d_encoded, *d_scratch, *d_spare;
  gpufi_chunk_place *d_places;
  gpufi_chunk_place *places; /* pinned, as is `encoded` */
  uint8_t *encoded;
  int64_t first;
  size_t count;
} batch;

typedef struct writer {
  gpufi_h5_session *session;
  const gpufi_h5_dataset *dataset;
  const gpufi_h5_region *region;
  const gpuf_tensor *src;
  const gpufi_backend *backend;
  gpufi_h5_grid grid;
  gpufi_chunks chunks; /* a full batch */
  batch batches[BATCH_COUNT];
  /* For chunks that the device leaves to the CPU; NULL until there is one. */
  uint8_t *raw, *encoded, *scratch;
} writer;

static bool suits(const gpufi_h5_dataset *dataset, const gpuf_tensor *src) {
  const size_t element_nbytes = gpuf_dtype_nbytes(src->dtype);
  bool aligned = (uintptr_t)src->data % element_nbytes == 0;
  for (int32_t axis = 0; axis < src->ndim; axis++) {
    aligned = aligned && src->strides_nbytes[axis] % (int64_t)element_nbytes == 0;
  }
  return aligned && src->device.kind != GPUF_DEVICE_CPU &&
         dataset->route == GPUFI_H5_ROUTE_GPUFETCH && dataset->chunk_nbytes <= CHUNK_NBYTES_MAX;
}

/* --- Memory -------------------------------------------------------------------- */

/* A part of `nbytes` of the workspace, whose parts begin at multiples of 256. */
static size_t take(size_t *at, size_t nbytes) {
  const size_t begin = *at;
  *at = gpufi_round_up(begin + nbytes, 256);
  return begin;
}

static gpuf_status batch_init(batch *b, const writer *w, gpuf_error *err) {
  const gpufi_chunks *const chunks = &w->chunks;
  const size_t places_nbytes = GPUFI_CHUNKS_PLACE_COUNT(chunks->count) * sizeof(*b->places);
  const size_t encoded_nbytes = gpufi_chunks_encoded_nbytes(chunks);
  size_t all = 0;
  const size_t raw_at = take(&all, chunks->count * chunks->raw_pitch_nbytes);
  const size_t encoded_at = take(&all, encoded_nbytes);
  const size_t places_at = take(&all, places_nbytes);
  const size_t scratch_at = take(&all, w->backend->encode_scratch_nbytes(chunks));
  const size_t spare_at = take(&all, chunks->raw_nbytes);
  void *places = NULL, *encoded = NULL;
  gpuf_status status = gpufi_lane_acquire(w->backend, w->src->device, &b->lane, err);
  if (status == GPUF_OK) {
    status = gpufi_lane_need_workspace(b->lane, all, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_pool_acquire(w->src->device, places_nbytes, &places, err);
    b->places = places;
  }
  if (status == GPUF_OK) {
    status = gpuf_pool_acquire(w->src->device, encoded_nbytes, &encoded, err);
    b->encoded = encoded;
  }
  if (status == GPUF_OK) {
    uint8_t *const d_base = b->lane->d_workspace;
    b->d_raw = d_base + raw_at;
    b->d_encoded = d_base + encoded_at;
    b->d_places = (gpufi_chunk_place *)(d_base + places_at);
    b->d_scratch = d_base + scratch_at;
    b->d_spare = d_base + spare_at;
  }
  return status;
}

static void batch_fini(batch *b) {
  gpufi_lane *const lane = b->lane;
  if (lane) {
    const bool failed =
        lane->backend->stream_synchronize(lane->device.index, lane->stream, NULL) != GPUF_OK;
    gpufi_lane_release(lane, failed);
  }
  gpuf_pool_release(b->places);
  gpuf_pool_release(b->encoded);
}

static gpuf_status writer_init(writer *w, gpuf_error *err) {
  gpuf_status status = gpufi_backend_for(w->src->device, &w->backend, err);
  if (status == GPUF_OK) {
    status = gpufi_chunks_init(&w->chunks, &w->dataset->chunk_shape, 1, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  const size_t fitting = BATCH_NBYTES / w->chunks.raw_pitch_nbytes;
  gpufi_h5_grid_init(&w->grid, w->dataset->ndim, w->region, w->dataset->chunk, w->dataset->chunk);
  w->chunks.count = fitting > 1 ? fitting : 1;
  if (w->chunks.count > (size_t)w->grid.total) {
    w->chunks.count = (size_t)w->grid.total;
  }
  for (int i = 0; i < BATCH_COUNT && status == GPUF_OK; i++) {
    status = batch_init(&w->batches[i], w, err);
  }
  return status;
}

static void writer_fini(writer *w) {
  for (int i = 0; i < BATCH_COUNT; i++) {
    batch_fini(&w->batches[i]);
  }
  free(w->raw);
  free(w->encoded);
  free(w->scratch);
}

/* --- On the device ----------------------------------------------------------------- */

/* The part of chunk `index` that lies inside the dataset, in the source. */
static gpuf_status view_of(const writer *w, int64_t index, int64_t *extent, gpuf_tensor *view,
                           gpuf_error *err) {
  int64_t start[GPUF_NDIM_MAX];
  gpufi_h5_grid_box(&w->grid, index, start, extent);
  for (int32_t axis = 0; axis < w->grid.ndim; axis++) {
    start[axis] -= w->region->start[axis];
  }
  *view = *w->src;
  return gpufi_h5_narrow(view, start, extent, err);
}

/* A whole chunk at `raw` narrowed to `extent` from its origin. */
static gpuf_status part_of(const writer *w, void *raw, gpuf_device device, const int64_t *extent,
                           gpuf_tensor *part, gpuf_error *err) {
  static const int64_t origin[GPUF_NDIM_MAX];
  const gpufi_h5_dataset *const dataset = w->dataset;
  const gpuf_status status =
      gpuf_tensor_init(part, raw, device, dataset->dtype, dataset->ndim, dataset->chunk, err);
  return status == GPUF_OK ? gpufi_h5_narrow(part, origin, extent, err) : status;
}

/* Chunk `index` of the grid to `d_raw`; what hangs over the dataset's edge is 0. */
static gpuf_status gather_chunk(const writer *w, const batch *b, int64_t index, void *d_raw,
                                gpuf_error *err) {
  const int32_t device = w->src->device.index;
  const gpuf_stream stream = b->lane->stream;
  int64_t extent[GPUF_NDIM_MAX];
  gpuf_tensor view, part;
  gpufi_strided layout;
  gpuf_status status = view_of(w, index, extent, &view, err);
  if (status != GPUF_OK) {
    return status;
  }
  const int64_t count = gpuf_tensor_count(&view);
  const bool whole = memcmp(extent, w->dataset->chunk, (size_t)w->grid.ndim * sizeof(*extent)) == 0;
  gpufi_strided_init(&layout, &view);
  status = w->backend->pack(device, &layout, view.data, 0, count, whole ? d_raw : b->d_spare,
                            stream, err);
  if (status != GPUF_OK || whole) {
    return status;
  }
  status = w->backend->clear(device, d_raw, w->chunks.raw_nbytes, stream, err);
  if (status == GPUF_OK) {
    status = part_of(w, d_raw, w->src->device, extent, &part, err);
  }
  if (status == GPUF_OK) {
    gpufi_strided_init(&layout, &part);
    status = w->backend->unpack(device, &layout, d_raw, 0, count, b->d_spare, stream, err);
  }
  return status;
}

/* Start encoding the batch that begins at chunk `first`. */
static gpuf_status start_batch(const writer *w, batch *b, int64_t first, gpuf_error *err) {
  const int32_t device = w->src->device.index;
  const int64_t left = w->grid.total - first;
  gpufi_chunks chunks = w->chunks;
  b->first = first;
  b->count = left < (int64_t)chunks.count ? (size_t)left : chunks.count;
  chunks.count = b->count;
  gpuf_status status = gpufi_lane_join(b->lane, w->src->stream, err);
  for (size_t i = 0; i < b->count && status == GPUF_OK; i++) {
    status = gather_chunk(w, b, first + (int64_t)i, b->d_raw + i * chunks.raw_pitch_nbytes, err);
  }
  if (status == GPUF_OK) {
    status = w->backend->encode(device, &chunks, b->d_raw, b->d_encoded, b->d_places, b->d_scratch,
                                b->lane->stream, err);
  }
  if (status == GPUF_OK) {
    status = w->backend->copy(device, b->places, b->d_places,
                              GPUFI_CHUNKS_PLACE_COUNT(b->count) * sizeof(*b->places),
                              GPUFI_TO_HOST, b->lane->stream, err);
  }
  return status == GPUF_OK
             ? w->backend->event_record(device, b->lane->finished, b->lane->stream, err)
             : status;
}

/* Once it is known how much there is: start the transfer of the encoded batch. */
static gpuf_status transfer_batch(const writer *w, const batch *b, gpuf_error *err) {
  const int32_t device = w->src->device.index;
  gpuf_status status = w->backend->event_wait(device, b->lane->finished, err);
  if (status == GPUF_OK && b->places[b->count].offset != 0) {
    status = w->backend->copy(device, b->encoded, b->d_encoded, (size_t)b->places[b->count].offset,
                              GPUFI_TO_HOST, b->lane->stream, err);
  }
  return status == GPUF_OK
             ? w->backend->event_record(device, b->lane->finished, b->lane->stream, err)
             : status;
}

/* --- On the host -------------------------------------------------------------------- */

static gpuf_status need_host_memory(writer *w, gpuf_error *err) {
  const size_t raw_nbytes = w->chunks.raw_nbytes;
  if (!w->raw) {
    w->raw = malloc(raw_nbytes);
    w->encoded = malloc(gpufi_codec_bound(raw_nbytes));
    w->scratch = aligned_alloc(64, gpufi_round_up(raw_nbytes, 64));
  }
  return w->raw && w->encoded && w->scratch
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                          "no memory for a chunk of %zu bytes and its encoding: choose smaller "
                          "chunks",
                          raw_nbytes);
}

/* A chunk in a form that the device does not encode. */
static gpuf_status encode_left(writer *w, int64_t index, size_t *nbytes, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  int64_t extent[GPUF_NDIM_MAX];
  gpuf_tensor view, part;
  gpuf_status status = need_host_memory(w, err);
  if (status == GPUF_OK) {
    memset(w->raw, 0, w->chunks.raw_nbytes);
    status = view_of(w, index, extent, &view, err);
  }
  if (status == GPUF_OK) {
    status = part_of(w, w->raw, cpu, extent, &part, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_copy(&part, &view, NULL, err);
  }
  return status == GPUF_OK
             ? gpufi_codec_encode(&w->chunks.shape, w->raw, w->encoded,
                                  gpufi_codec_bound(w->chunks.raw_nbytes), nbytes, w->scratch, err)
             : status;
}

/* Write the chunks of a batch. *left_count: of those that the device left. */
static gpuf_status put_batch(writer *w, const batch *b, size_t *left_count, gpuf_error *err) {
  gpuf_status status = w->backend->event_wait(w->src->device.index, b->lane->finished, err);
  *left_count = 0;
  for (size_t i = 0; i < b->count && status == GPUF_OK; i++) {
    const int64_t index = b->first + (int64_t)i;
    const uint8_t *bytes = b->encoded + b->places[i].offset;
    size_t nbytes = (size_t)b->places[i].nbytes;
    if (nbytes == 0) {
      gpufi_h5_leave(w->session);
      status = encode_left(w, index, &nbytes, err);
      bytes = w->encoded;
      ++*left_count;
    }
    if (status == GPUF_OK) {
      gpufi_h5_enter(w->session);
      status = gpufi_h5_put_chunk(w->session, w->dataset, &w->grid, index, bytes, nbytes, err);
    }
  }
  gpufi_h5_leave(w->session);
  return status;
}

/* All batches through the three stages. */
static gpuf_status write_all(writer *w, int64_t *done, gpuf_error *err) {
  const int64_t step_chunks = (int64_t)w->chunks.count;
  const int64_t batch_total = (w->grid.total + step_chunks - 1) / step_chunks;
  gpuf_status status = GPUF_OK;
  for (int64_t step = 0; step < batch_total + 2 && status == GPUF_OK; step++) {
    if (step < batch_total) {
      status = start_batch(w, &w->batches[step % BATCH_COUNT], step * step_chunks, err);
    }
    if (status == GPUF_OK && step >= 1 && step <= batch_total) {
      status = transfer_batch(w, &w->batches[(step - 1) % BATCH_COUNT], err);
    }
    if (status == GPUF_OK && step >= 2) {
      const batch *const b = &w->batches[(step - 2) % BATCH_COUNT];
      size_t left_count;
      status = put_batch(w, b, &left_count, err);
      *done = b->first + (int64_t)b->count;
      if (left_count > b->count / LEFT_RATIO) {
        break;
      }
    }
  }
  return status;
}

gpuf_status gpufi_h5_write_batches(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                   const gpufi_h5_region *region, const gpuf_tensor *src,
                                   int64_t *done, gpuf_error *err) {
  writer w = {.session = session, .dataset = dataset, .region = region, .src = src};
  *done = 0;
  if (!suits(dataset, src)) {
    return GPUF_OK;
  }
  gpuf_status status = writer_init(&w, err);
  if (status == GPUF_OK) {
    status = write_all(&w, done, err);
    if (status == GPUF_ERR_UNSUPPORTED && *done == 0) {
      status = GPUF_OK; /* the device is too small to encode: the CPU does */
    }
  } else if (status == GPUF_ERR_NO_DEVICE_MEMORY || status == GPUF_ERR_NO_MEMORY) {
    status = GPUF_OK; /* the other way takes less */
  }
  writer_fini(&w);
  return status;
}
