/* Chunks between a dataset and a tensor: where each belongs, and reading it: from a plain file that
 * nobody writes to, by any thread, else through HDF5. */
#include "base/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- Where a chunk belongs ------------------------------------------------------- */

void gpufi_h5_move_init(gpufi_h5_move *move, const gpufi_h5_dataset *dataset,
                        const gpufi_h5_region *region, const gpuf_tensor *tensor) {
  move->dataset = dataset;
  move->tensor = tensor;
  move->direct = (gpufi_h5_direct){-1, NULL};
  gpufi_h5_grid_init(&move->grid, dataset->ndim, region, dataset->chunk, dataset->chunk);
}

gpuf_status gpufi_h5_chunk_parts(const gpufi_h5_move *move, int64_t index, void *raw,
                                 gpuf_device device, gpuf_tensor *part, gpuf_tensor *view,
                                 gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
  int64_t origin[GPUF_NDIM_MAX];
  int64_t start[GPUF_NDIM_MAX];
  int64_t extent[GPUF_NDIM_MAX];
  int64_t in_chunk[GPUF_NDIM_MAX];
  int64_t in_tensor[GPUF_NDIM_MAX];
  gpuf_status status =
      gpuf_tensor_init(part, raw, device, dataset->dtype, dataset->ndim, dataset->chunk, err);
  gpufi_h5_grid_origin(&move->grid, index, origin);
  gpufi_h5_grid_box(&move->grid, index, start, extent);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    in_chunk[axis] = start[axis] - origin[axis];
    in_tensor[axis] = start[axis] - move->grid.region.start[axis];
  }
  *view = *move->tensor;
  if (status == GPUF_OK) {
    status = gpufi_h5_narrow(part, in_chunk, extent, err);
  }
  return status == GPUF_OK ? gpufi_h5_narrow(view, in_tensor, extent, err) : status;
}

/* "(1, 2)" of a chunk's place in the dataset, for messages. */
typedef struct position {
  char text[160];
} position;

static position position_of(const gpufi_h5_move *move, int64_t index) {
  position at = {""};
  int64_t start[GPUF_NDIM_MAX];
  size_t used = 0;
  gpufi_h5_grid_origin(&move->grid, index, start);
  for (int32_t axis = 0; axis < move->grid.ndim && used < sizeof(at.text); axis++) {
    const int length = snprintf(at.text + used, sizeof(at.text) - used, "%s%" PRId64,
                                axis ? ", " : "(", start[axis]);
    used += length > 0 ? (size_t)length : 0;
  }
  if (used < sizeof(at.text)) {
    snprintf(at.text + used, sizeof(at.text) - used, ")");
  }
  return at;
}

/* --- On any thread ------------------------------------------------------------------ */

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
static gpuf_status decode_gpufetch(const gpufi_h5_move *move, gpufi_h5_slot *slot,
                                   gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
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

static gpuf_status decode_filtered(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                                   gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
  gpuf_error cause = {0};
  const gpuf_status status =
      dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE
          ? gpufi_bitshuffle_decode(gpuf_dtype_nbytes(dataset->dtype), slot->encoded,
                                    slot->encoded_nbytes, slot->raw, dataset->chunk_nbytes, scratch,
                                    &cause)
          : decode_gpufetch(move, slot, &cause);
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, 0, "chunk at %s of dataset '%s': %s",
                      position_of(move, slot->index).text, dataset->name, cause.message);
  }
  return GPUF_OK;
}

/* A chunk that was stored past the filter. */
static gpuf_status copy_unfiltered(const gpufi_h5_move *move, gpufi_h5_slot *slot,
                                   gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
  if (slot->encoded_nbytes != dataset->chunk_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at %s of dataset '%s' is stored unfiltered in %zu bytes instead of "
                      "%zu: the file is damaged",
                      position_of(move, slot->index).text, dataset->name, slot->encoded_nbytes,
                      dataset->chunk_nbytes);
  }
  memcpy(slot->raw, slot->encoded, dataset->chunk_nbytes);
  return GPUF_OK;
}

gpuf_status gpufi_h5_chunk_decode(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                                  gpuf_error *err) {
  if (!slot->encoded || slot->is_raw) {
    return GPUF_OK;
  }
  return slot->filter_mask & GPUFI_H5_FILTER_SKIPPED ? copy_unfiltered(move, slot, err)
                                                     : decode_filtered(move, slot, scratch, err);
}

gpuf_status gpufi_h5_chunk_load(const gpufi_h5_move *move, const gpufi_h5_slot *slot,
                                gpuf_error *err) {
  gpuf_error cause = {0};
  if (slot->file_offset < 0) {
    return GPUF_OK;
  }
  const gpuf_status status =
      gpufi_h5_direct_read(move->direct.fd, slot->file_offset,
                           slot->encoded ? slot->encoded : slot->raw, slot->encoded_nbytes, &cause);
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, cause.native_code, "chunk at %s of dataset '%s': %s",
                      position_of(move, slot->index).text, move->dataset->name, cause.message);
  }
  return GPUF_OK;
}

/* --- In the calling thread --------------------------------------------------------- */

static gpuf_status check_stored_nbytes(const gpufi_h5_move *move, const gpufi_h5_slot *slot,
                                       uint64_t stored_nbytes, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
  const size_t most = slot->encoded ? gpufi_h5_encoded_bound(dataset) : dataset->chunk_nbytes;
  if (stored_nbytes > most || (!slot->encoded && stored_nbytes != dataset->chunk_nbytes)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at %s of dataset '%s' takes %" PRIu64 " bytes in the file, which no "
                      "chunk of %zu bytes does: the file is damaged",
                      position_of(move, slot->index).text, dataset->name, stored_nbytes,
                      dataset->chunk_nbytes);
  }
  return GPUF_OK;
}

/* Through HDF5's filters, which fill in a chunk that was never written, or say what is wrong. */
static gpuf_status get_elements(gpufi_h5_session *session, const gpufi_h5_move *move,
                                gpufi_h5_slot *slot, const int64_t *origin, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
  int64_t extent[GPUF_NDIM_MAX];
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    const int64_t left = dataset->shape[axis] - origin[axis];
    extent[axis] = left < dataset->chunk[axis] ? left : dataset->chunk[axis];
  }
  slot->is_raw = true;
  slot->filter_mask = 0;
  slot->encoded_nbytes = 0;
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
static bool is_left_to_hdf5(const gpufi_h5_move *move, uint64_t stored_nbytes) {
  return stored_nbytes == 0 || (move->dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE &&
                                stored_nbytes > gpufi_h5_encoded_bound(move->dataset));
}

/* From HDF5. */
static gpuf_status get_chunk(gpufi_h5_session *session, const gpufi_h5_move *move,
                             gpufi_h5_slot *slot, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const gpufi_h5_dataset *dataset = move->dataset;
  int64_t start[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  hsize_t stored_nbytes = 0;
  gpuf_status status;
  gpufi_h5_grid_origin(&move->grid, slot->index, start);
  for (int32_t axis = 0; axis < move->grid.ndim; axis++) {
    offset[axis] = (hsize_t)start[axis];
  }
  /* A chunk that was never written has size 0, or is an error in older releases. */
  if (api->Dget_chunk_storage_size(dataset->id, offset, &stored_nbytes) < 0 ||
      is_left_to_hdf5(move, stored_nbytes)) {
    return get_elements(session, move, slot, start, err);
  }
  status = check_stored_nbytes(move, slot, stored_nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  slot->filter_mask = 0;
  slot->encoded_nbytes = (size_t)stored_nbytes;
  if (read_chunk(api, dataset->id, offset, &slot->filter_mask,
                 slot->encoded ? slot->encoded : slot->raw, (size_t)stored_nbytes) < 0) {
    return gpufi_h5_fail(session, err, "reading the chunk at %s of dataset '%s' failed",
                         position_of(move, slot->index).text, dataset->name);
  }
  return GPUF_OK;
}

gpuf_status gpufi_h5_chunk_get(gpufi_h5_session *session, const gpufi_h5_move *move,
                               gpufi_h5_slot *slot, int64_t index, gpuf_error *err) {
  const gpufi_h5_place *place = move->direct.places ? &move->direct.places[index] : NULL;
  slot->index = index;
  slot->is_raw = false;
  if (!place || is_left_to_hdf5(move, place->nbytes)) {
    slot->file_offset = -1;
    gpufi_h5_enter(session);
    return get_chunk(session, move, slot, err);
  }
  slot->file_offset = place->offset;
  slot->filter_mask = place->filter_mask;
  slot->encoded_nbytes = place->nbytes;
  return check_stored_nbytes(move, slot, place->nbytes, err);
}
