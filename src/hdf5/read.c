/* Reading whole chunks: file → decoder → chunk buffer → device or host memory. Where the file is a
 * plain one that nobody writes to, workers read it; else the calling thread does, by H5Dread_chunk.
 */
#include "core/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bit of the filter mask that says that the first filter was skipped. */
#define FILTER_SKIPPED 1u

static const gpuf_copy_options one_thread = {.thread_count = 1};

/* "(1, 2)" of a chunk's place in the grid, for messages. */
typedef struct position {
  char text[160];
} position;

static position position_of(const gpufi_h5_ring *ring, int64_t index) {
  position at = {""};
  int64_t start[GPUF_NDIM_MAX];
  size_t used = 0;
  gpufi_h5_grid_origin(&ring->grid, index, start);
  for (int32_t axis = 0; axis < ring->grid.ndim && used < sizeof(at.text); axis++) {
    const int length = snprintf(at.text + used, sizeof(at.text) - used, "%s%" PRId64,
                                axis ? ", " : "(", start[axis]);
    used += length > 0 ? (size_t)length : 0;
  }
  if (used < sizeof(at.text)) {
    snprintf(at.text + used, sizeof(at.text) - used, ")");
  }
  return at;
}

/* --- In the workers ------------------------------------------------------------ */

/* H5Dwrite through the filter knows HDF5's types only, to which our one-byte types without one of
 * their own are integers. */
static bool dtype_fits(gpuf_dtype stored, gpuf_dtype wanted) {
  const bool is_byte = stored == GPUF_DTYPE_UINT8 || stored == GPUF_DTYPE_INT8;
  return stored == wanted ||
         (is_byte && (wanted == GPUF_DTYPE_BOOL || gpufi_h5_dtype_is_named_byte(wanted)));
}

static bool shape_fits(const gpufi_chunk_shape *stored, const gpufi_chunk_shape *wanted) {
  return dtype_fits(stored->dtype, wanted->dtype) && stored->ndim == wanted->ndim &&
         !memcmp(stored->dims, wanted->dims, (size_t)wanted->ndim * sizeof(*wanted->dims));
}

/* Check what a chunk of ours says of itself, and decode it. */
static gpuf_status decode_gpufetch(const gpufi_h5_ring *ring, gpufi_h5_slot *slot,
                                   gpuf_error *err) {
  const gpufi_h5_dataset *dataset = ring->dataset;
  gpufi_chunk_shape stored;
  size_t raw_nbytes = 0;
  const gpuf_status status =
      gpufi_codec_inspect(slot->encoded, slot->encoded_nbytes, &stored, &raw_nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!shape_fits(&stored, &dataset->chunk_shape)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "it holds %s elements of another shape (%zu bytes) than the dataset's %s "
                      "chunks (%zu bytes): the file is damaged",
                      gpuf_dtype_name(stored.dtype), raw_nbytes, gpuf_dtype_name(dataset->dtype),
                      dataset->chunk_nbytes);
  }
  return gpufi_codec_decode(slot->encoded, slot->encoded_nbytes, slot->raw, dataset->chunk_nbytes,
                            err);
}

static gpuf_status decode_chunk(const gpufi_h5_ring *ring, gpufi_h5_slot *slot, void *scratch,
                                gpuf_error *err) {
  const gpufi_h5_dataset *dataset = ring->dataset;
  gpuf_error cause = {0};
  const gpuf_status status =
      dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE
          ? gpufi_bitshuffle_decode(gpuf_dtype_nbytes(dataset->dtype), slot->encoded,
                                    slot->encoded_nbytes, slot->raw, dataset->chunk_nbytes, scratch,
                                    &cause)
          : decode_gpufetch(ring, slot, &cause);
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, 0, "chunk at %s of dataset '%s': %s",
                      position_of(ring, slot->index).text, dataset->name, cause.message);
  }
  return GPUF_OK;
}

/* A chunk that was stored past the filter. */
static gpuf_status copy_chunk(const gpufi_h5_ring *ring, gpufi_h5_slot *slot, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = ring->dataset;
  if (slot->encoded_nbytes != dataset->chunk_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at %s of dataset '%s' is stored unfiltered in %zu bytes instead of "
                      "%zu: the file is damaged",
                      position_of(ring, slot->index).text, dataset->name, slot->encoded_nbytes,
                      dataset->chunk_nbytes);
  }
  memcpy(slot->raw, slot->encoded, dataset->chunk_nbytes);
  return GPUF_OK;
}

static gpuf_status load_chunk(const gpufi_h5_ring *ring, const gpufi_h5_slot *slot,
                              gpuf_error *err) {
  gpuf_error cause = {0};
  const gpuf_status status =
      gpufi_h5_direct_read(ring->fd, slot->file_offset, slot->encoded ? slot->encoded : slot->raw,
                           slot->encoded_nbytes, &cause);
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, cause.native_code, "chunk at %s of dataset '%s': %s",
                      position_of(ring, slot->index).text, ring->dataset->name, cause.message);
  }
  return GPUF_OK;
}

static gpuf_status begin_chunk(const gpufi_h5_ring *ring, gpufi_h5_slot *slot, void *scratch,
                               gpuf_error *err) {
  gpuf_tensor part;
  gpuf_tensor view;
  gpuf_status status = GPUF_OK;
  if (slot->file_offset >= 0) {
    status = load_chunk(ring, slot, err);
  }
  if (status == GPUF_OK && slot->encoded && !slot->is_raw) {
    status = slot->filter_mask & FILTER_SKIPPED ? copy_chunk(ring, slot, err)
                                                : decode_chunk(ring, slot, scratch, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_chunk_parts(ring, slot, &part, &view, err);
  }
  return status == GPUF_OK ? gpuf_copy_async(&view, &part, &one_thread, &slot->future, err)
                           : status;
}

static gpuf_status end_chunk(const gpufi_h5_ring *ring, gpufi_h5_slot *slot, void *scratch,
                             gpuf_error *err) {
  const gpuf_status status = gpuf_future_wait(slot->future, -1, err);
  gpuf_future_destroy(slot->future);
  slot->future = NULL;
  return status;
}

static const gpufi_h5_work read_work = {begin_chunk, end_chunk, false};

/* --- In the calling thread, entered --------------------------------------------- */

static gpuf_status check_stored_nbytes(const gpufi_h5_ring *ring, const gpufi_h5_slot *slot,
                                       uint64_t stored_nbytes, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = ring->dataset;
  const size_t most = slot->encoded ? gpufi_h5_encoded_bound(dataset) : dataset->chunk_nbytes;
  if (stored_nbytes > most || (!slot->encoded && stored_nbytes != dataset->chunk_nbytes)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at %s of dataset '%s' takes %" PRIu64 " bytes in the file, which no "
                      "chunk of %zu bytes does: the file is damaged",
                      position_of(ring, slot->index).text, dataset->name, stored_nbytes,
                      dataset->chunk_nbytes);
  }
  return GPUF_OK;
}

/* Through HDF5's filters, which fill in a chunk that was never written, or say what is wrong. */
static gpuf_status get_elements(gpufi_h5_session *session, const gpufi_h5_ring *ring,
                                gpufi_h5_slot *slot, const int64_t *origin, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = ring->dataset;
  int64_t extent[GPUF_NDIM_MAX];
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    const int64_t left = dataset->shape[axis] - origin[axis];
    extent[axis] = left < dataset->chunk[axis] ? left : dataset->chunk[axis];
  }
  slot->is_raw = true;
  return gpufi_h5_transfer(session, dataset, origin, extent, slot->raw, dataset->chunk, false, err);
}

/* HDF5 before 2.0 is not told the size of the buffer. The size was checked by the same library
 * under the same lock, so it can differ only where another process rewrites the file meanwhile. */
static herr_t read_chunk(const gpufi_h5_api *api, hid_t dataset, const hsize_t *offset,
                         uint32_t *filter_mask, void *buffer, size_t buffer_nbytes) {
  if (api->Dread_chunk2) {
    return api->Dread_chunk2(dataset, H5P_DEFAULT, offset, filter_mask, buffer, &buffer_nbytes);
  }
  return api->Dread_chunk1(dataset, H5P_DEFAULT, offset, filter_mask, buffer);
}

/* Encoders elsewhere choose smaller blocks, and then noise takes more than our bound. */
static bool is_left_to_hdf5(const gpufi_h5_ring *ring, uint64_t stored_nbytes) {
  return stored_nbytes == 0 || (ring->dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE &&
                                stored_nbytes > gpufi_h5_encoded_bound(ring->dataset));
}

static gpuf_status get_chunk(gpufi_h5_session *session, const gpufi_h5_ring *ring,
                             gpufi_h5_slot *slot, int64_t index, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const gpufi_h5_dataset *dataset = ring->dataset;
  int64_t start[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  hsize_t stored_nbytes = 0;
  gpuf_status status;
  slot->index = index;
  slot->file_offset = -1;
  gpufi_h5_grid_origin(&ring->grid, index, start);
  for (int32_t axis = 0; axis < ring->grid.ndim; axis++) {
    offset[axis] = (hsize_t)start[axis];
  }
  /* A chunk that was never written has size 0, or is an error in older releases. */
  if (api->Dget_chunk_storage_size(dataset->id, offset, &stored_nbytes) < 0 ||
      is_left_to_hdf5(ring, stored_nbytes)) {
    return get_elements(session, ring, slot, start, err);
  }
  status = check_stored_nbytes(ring, slot, stored_nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  slot->is_raw = false;
  slot->filter_mask = 0;
  slot->encoded_nbytes = (size_t)stored_nbytes;
  if (read_chunk(api, dataset->id, offset, &slot->filter_mask,
                 slot->encoded ? slot->encoded : slot->raw, (size_t)stored_nbytes) < 0) {
    return gpufi_h5_fail(session, err, "reading the chunk at %s of dataset '%s' failed",
                         position_of(ring, index).text, dataset->name);
  }
  return GPUF_OK;
}

/* Leave the chunk to the worker if its place is known. */
static gpuf_status pass_place(const gpufi_h5_ring *ring, const gpufi_h5_place *place,
                              gpufi_h5_slot *slot, int64_t index, gpuf_error *err) {
  slot->index = index;
  slot->is_raw = false;
  slot->file_offset = place->offset;
  slot->filter_mask = place->filter_mask;
  slot->encoded_nbytes = place->nbytes;
  return check_stored_nbytes(ring, slot, place->nbytes, err);
}

/* Fill a free slot with chunk `index`, by the place of it or through HDF5. */
static gpuf_status produce(gpufi_h5_session *session, gpufi_h5_ring *ring,
                           const gpufi_h5_place *place, gpufi_h5_slot *slot, int64_t index,
                           gpuf_error *err) {
  gpuf_status status;
  if (place && !is_left_to_hdf5(ring, place->nbytes)) {
    status = pass_place(ring, place, slot, index, err);
  } else {
    gpufi_h5_enter(session);
    status = get_chunk(session, ring, slot, index, err);
  }
  if (status == GPUF_OK) {
    gpufi_h5_ring_pass(ring, slot, GPUFI_H5_SLOT_READY);
  }
  return status;
}

/* Wait until every chunk has left its slot. */
static gpuf_status drain(gpufi_h5_ring *ring, gpuf_error *err) {
  gpufi_h5_slot *slot;
  for (int i = 0; i < ring->slot_count; i++) {
    if (!gpufi_h5_ring_slot(ring, i, GPUFI_H5_SLOT_FREE, true, &slot)) {
      return gpufi_h5_ring_status(ring, err);
    }
  }
  return GPUF_OK;
}

static gpuf_status read_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                               const gpufi_h5_region *region, const gpuf_tensor *dst,
                               const gpufi_h5_direct *direct, gpuf_error *err) {
  gpufi_h5_ring ring;
  gpufi_h5_slot *slot;
  gpuf_status status = gpufi_h5_ring_init(&ring, dataset, region, dst, &read_work, 0, direct->fd,
                                          session->options.thread_count, err);
  for (int64_t index = 0; status == GPUF_OK && index < ring.grid.total; index++) {
    /* The lock is kept over slots that are free one after another. */
    if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_FREE, false, &slot)) {
      gpufi_h5_leave(session);
      if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_FREE, true, &slot)) {
        status = gpufi_h5_ring_status(&ring, err);
        break;
      }
    }
    status =
        produce(session, &ring, direct->places ? &direct->places[index] : NULL, slot, index, err);
  }
  gpufi_h5_leave(session);
  if (status == GPUF_OK) {
    status = drain(&ring, err);
  }
  gpufi_h5_ring_fini(&ring);
  return status;
}

gpuf_status gpufi_h5_read_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const gpufi_h5_region *region, const gpuf_tensor *dst,
                                 gpuf_error *err) {
  gpufi_h5_direct direct;
  gpufi_h5_grid grid;
  gpuf_status status;
  gpufi_h5_grid_init(&grid, dataset->ndim, region, dataset->chunk, dataset->chunk);
  gpufi_h5_enter(session);
  gpufi_h5_direct_init(&direct, session, dataset, &grid);
  gpufi_h5_leave(session);
  status = read_chunks(session, dataset, region, dst, &direct, err);
  gpufi_h5_direct_fini(&direct);
  return status;
}
