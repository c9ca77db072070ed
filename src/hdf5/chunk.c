#include "hdf5/chunk.h"

#include "base/error.h"
#include "hdf5/coding.h"
#include "hdf5/hyperslab.h"

#include <inttypes.h>

/* Where the bytes that the file holds go to or come from. */
static void *bytes_of(const gpufi_h5_chunk *chunk) {
  return chunk->encoded ? chunk->encoded : chunk->raw;
}

/* The chunk's origin as HDF5 takes it. */
static void offset_of(const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk,
                      hsize_t *offset) {
  int64_t origin[GPUF_NDIM_MAX];
  gpufi_h5_grid_origin(&transfer->grid, chunk->index, origin);
  for (int32_t axis = 0; axis < transfer->grid.ndim; axis++) {
    offset[axis] = (hsize_t)origin[axis];
  }
}

static gpuf_status check_stored_nbytes(const gpufi_h5_transfer *transfer,
                                       const gpufi_h5_chunk *chunk, uint64_t stored_nbytes,
                                       gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  const size_t most = chunk->encoded ? gpufi_h5_encoded_bound(dataset) : dataset->chunk_nbytes;
  if (stored_nbytes > most || (!chunk->encoded && stored_nbytes != dataset->chunk_nbytes)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at (%s) of dataset '%s' takes %" PRIu64 " bytes in the file, which no "
                      "chunk of %zu bytes does: the file is damaged",
                      gpufi_h5_transfer_position(transfer, chunk->index).text, dataset->name,
                      stored_nbytes, dataset->chunk_nbytes);
  }
  return GPUF_OK;
}

/* Through HDF5's filters, which fill in a chunk that was never written, or say what is wrong. */
static gpuf_status get_elements(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  gpufi_h5_box whole = {{0}, {0}};
  gpufi_h5_grid_origin(&transfer->grid, chunk->index, whole.start);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    const int64_t left = dataset->shape[axis] - whole.start[axis];
    whole.shape[axis] = left < dataset->chunk[axis] ? left : dataset->chunk[axis];
  }
  chunk->has_elements = true;
  chunk->filter_mask = 0;
  chunk->encoded_nbytes = 0;
  return gpufi_h5_hyperslab_transfer(session, dataset, &whole, chunk->raw, dataset->chunk, false,
                                     err);
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

/* Chunks that were never written, and those that other encoders made of noise in blocks so small
 * that they take more than our bound. */
static bool is_left_to_hdf5(const gpufi_h5_transfer *transfer, uint64_t stored_nbytes) {
  return stored_nbytes == 0 || (transfer->dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE &&
                                stored_nbytes > gpufi_h5_encoded_bound(transfer->dataset));
}

/* Read the chunk's bytes, or its elements, by HDF5. */
static gpuf_status get_by_hdf5(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const gpufi_h5_dataset *dataset = transfer->dataset;
  hsize_t offset[GPUF_NDIM_MAX];
  hsize_t stored_nbytes = 0;
  gpuf_status status;
  offset_of(transfer, chunk, offset);
  /* A chunk that was never written has size 0, or is an error in older releases. */
  if (api->Dget_chunk_storage_size(dataset->id, offset, &stored_nbytes) < 0 ||
      is_left_to_hdf5(transfer, stored_nbytes)) {
    return get_elements(session, transfer, chunk, err);
  }
  status = check_stored_nbytes(transfer, chunk, stored_nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  chunk->filter_mask = 0;
  chunk->encoded_nbytes = (size_t)stored_nbytes;
  /* HDF5 has a size, and no bytes, for a chunk that was never written and that H5Dread has put in
   * HDF5's cache. H5Dread also says what is wrong with other chunks. */
  return read_chunk(api, dataset->id, offset, &chunk->filter_mask, bytes_of(chunk),
                    (size_t)stored_nbytes) < 0
             ? get_elements(session, transfer, chunk, err)
             : GPUF_OK;
}

gpuf_status gpufi_h5_chunk_get(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               gpufi_h5_chunk *chunk, int64_t index, gpuf_error *err) {
  const gpufi_h5_place *place = transfer->direct.places ? &transfer->direct.places[index] : NULL;
  chunk->index = index;
  chunk->has_elements = false;
  if (!place || is_left_to_hdf5(transfer, place->nbytes)) {
    chunk->file_offset = -1;
    gpufi_h5_enter(session);
    return get_by_hdf5(session, transfer, chunk, err);
  }
  chunk->file_offset = place->offset;
  chunk->filter_mask = place->filter_mask;
  chunk->encoded_nbytes = place->nbytes;
  return check_stored_nbytes(transfer, chunk, place->nbytes, err);
}

gpuf_status gpufi_h5_chunk_load(const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk,
                                gpuf_error *err) {
  gpuf_error cause = {0};
  if (chunk->file_offset < 0) {
    return GPUF_OK;
  }
  const gpuf_status status = gpufi_h5_direct_read(transfer->direct.fd, chunk->file_offset,
                                                  bytes_of(chunk), chunk->encoded_nbytes, &cause);
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, cause.native_code, "chunk at (%s) of dataset '%s': %s",
                      gpufi_h5_transfer_position(transfer, chunk->index).text,
                      transfer->dataset->name, cause.message);
  }
  return GPUF_OK;
}

gpuf_status gpufi_h5_chunk_put(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               const gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  const size_t nbytes = chunk->encoded ? chunk->encoded_nbytes : dataset->chunk_nbytes;
  hsize_t offset[GPUF_NDIM_MAX];
  offset_of(transfer, chunk, offset);
  gpufi_h5_enter(session);
  if (session->api->Dwrite_chunk(dataset->id, H5P_DEFAULT, 0, offset, nbytes, bytes_of(chunk)) <
      0) {
    return gpufi_h5_fail(session, err,
                         "writing chunk %" PRId64 " of %" PRId64 " (%zu bytes) of dataset '%s' "
                         "failed",
                         chunk->index, transfer->grid.total, nbytes, dataset->name);
  }
  return GPUF_OK;
}
