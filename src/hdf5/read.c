/* Reading whole chunks: H5Dread_chunk → decoder → chunk buffer → device or host memory. */
#include "core/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bit of the filter mask that says that the first filter was skipped. */
#define FILTER_SKIPPED 1u

static const gpuf_copy_options one_thread = {.thread_count = 1};

/* "(1, 2)" of a chunk's place in the grid, for messages. */
typedef struct place {
  char text[160];
} place;

static place place_of(const gpufi_h5_ring *ring, int64_t index) {
  place at = {""};
  int64_t start[GPUF_NDIM_MAX];
  int64_t extent[GPUF_NDIM_MAX];
  size_t used = 0;
  gpufi_h5_grid_box(&ring->grid, index, start, extent);
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

static gpuf_status decode_chunk(const gpufi_h5_ring *ring, gpufi_h5_slot *slot, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = ring->dataset;
  gpufi_chunk_shape stored;
  size_t raw_nbytes = 0;
  gpuf_error cause = {0};
  gpuf_status status =
      gpufi_codec_inspect(slot->encoded, slot->encoded_nbytes, &stored, &raw_nbytes, &cause);
  if (status == GPUF_OK && !shape_fits(&stored, &dataset->chunk_shape)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at %s of dataset '%s' holds %s elements of another shape (%zu bytes) "
                      "than the dataset's %s chunks (%zu bytes): the file is damaged",
                      place_of(ring, slot->index).text, dataset->name,
                      gpuf_dtype_name(stored.dtype), raw_nbytes, gpuf_dtype_name(dataset->dtype),
                      dataset->chunk_nbytes);
  }
  if (status == GPUF_OK) {
    status = gpufi_codec_decode(slot->encoded, slot->encoded_nbytes, slot->raw,
                                dataset->chunk_nbytes, &cause);
  }
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, 0, "chunk at %s of dataset '%s': %s",
                      place_of(ring, slot->index).text, dataset->name, cause.message);
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
                      place_of(ring, slot->index).text, dataset->name, slot->encoded_nbytes,
                      dataset->chunk_nbytes);
  }
  memcpy(slot->raw, slot->encoded, dataset->chunk_nbytes);
  return GPUF_OK;
}

static gpuf_status begin_chunk(const gpufi_h5_ring *ring, gpufi_h5_slot *slot, gpuf_error *err) {
  int64_t start[GPUF_NDIM_MAX];
  int64_t extent[GPUF_NDIM_MAX];
  gpuf_tensor part;
  gpuf_tensor view = *ring->tensor;
  gpuf_status status = GPUF_OK;
  if (slot->encoded && !slot->is_raw) {
    status = slot->filter_mask & FILTER_SKIPPED ? copy_chunk(ring, slot, err)
                                                : decode_chunk(ring, slot, err);
  }
  gpufi_h5_grid_box(&ring->grid, slot->index, start, extent);
  if (status == GPUF_OK) {
    status = gpufi_h5_narrow(&view, start, extent, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_chunk_part(ring, slot->raw, extent, &part, err);
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
  const size_t most =
      slot->encoded ? gpufi_codec_bound(dataset->chunk_nbytes) : dataset->chunk_nbytes;
  if (stored_nbytes > most || (!slot->encoded && stored_nbytes != dataset->chunk_nbytes)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at %s of dataset '%s' takes %" PRIu64 " bytes in the file, which no "
                      "chunk of %zu bytes does: the file is damaged",
                      place_of(ring, slot->index).text, dataset->name, stored_nbytes,
                      dataset->chunk_nbytes);
  }
  return GPUF_OK;
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

static gpuf_status get_chunk(gpufi_h5_session *session, const gpufi_h5_ring *ring,
                             gpufi_h5_slot *slot, int64_t index, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const gpufi_h5_dataset *dataset = ring->dataset;
  int64_t start[GPUF_NDIM_MAX];
  int64_t extent[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  hsize_t stored_nbytes = 0;
  gpuf_status status;
  slot->index = index;
  gpufi_h5_grid_box(&ring->grid, index, start, extent);
  for (int32_t axis = 0; axis < ring->grid.ndim; axis++) {
    offset[axis] = (hsize_t)start[axis];
  }
  /* A chunk that was never written has size 0, or is an error in older releases: HDF5 itself fills
   * it in, or says what is wrong. */
  if (api->Dget_chunk_storage_size(dataset->id, offset, &stored_nbytes) < 0 || stored_nbytes == 0) {
    slot->is_raw = true;
    return gpufi_h5_transfer(session, dataset, start, extent, slot->raw, dataset->chunk, false,
                             err);
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
                         place_of(ring, index).text, dataset->name);
  }
  return GPUF_OK;
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

gpuf_status gpufi_h5_read_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const gpuf_tensor *dst, gpuf_error *err) {
  gpufi_h5_ring ring;
  gpufi_h5_slot *slot;
  gpuf_status status =
      gpufi_h5_ring_init(&ring, dataset, dst, &read_work, session->options.thread_count, err);
  for (int64_t index = 0; status == GPUF_OK && index < ring.grid.total; index++) {
    /* The lock is kept over slots that are free one after another. */
    if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_FREE, false, &slot)) {
      gpufi_h5_leave(session);
      if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_FREE, true, &slot)) {
        status = gpufi_h5_ring_status(&ring, err);
        break;
      }
    }
    gpufi_h5_enter(session);
    status = get_chunk(session, &ring, slot, index, err);
    if (status == GPUF_OK) {
      gpufi_h5_ring_pass(&ring, slot, GPUFI_H5_SLOT_READY);
    }
  }
  gpufi_h5_leave(session);
  if (status == GPUF_OK) {
    status = drain(&ring, err);
  }
  gpufi_h5_ring_fini(&ring);
  return status;
}
