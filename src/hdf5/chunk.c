#include "hdf5/chunk.h"

#include "base/error.h"
#include "hdf5/coding.h"
#include "hdf5/digest.h"
#include "hdf5/driver/file.h"
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

static size_t capacity_of(const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk) {
  return chunk->encoded ? gpufi_h5_encoded_bound(transfer->dataset)
                        : transfer->dataset->chunk_nbytes;
}

/* A size comes from the file and is untrusted. */
static gpuf_status check_stored_nbytes(const gpufi_h5_transfer *transfer,
                                       const gpufi_h5_chunk *chunk, uint64_t stored_nbytes,
                                       gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  if (stored_nbytes == 0 || stored_nbytes > capacity_of(transfer, chunk) ||
      (!chunk->encoded && stored_nbytes != dataset->chunk_nbytes)) {
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

/* *nbytes is the size of the buffer, and becomes that of the chunk, which is read only if it fits.
 * HDF5 before 2.0 is not told the size of the buffer: `stored_nbytes`, which it gives for chunks
 * that went through filters, is what it reads. */
static herr_t read_chunk(const gpufi_h5_api *api, hid_t dataset, const hsize_t *offset,
                         uint32_t *filter_mask, void *buffer, size_t *nbytes,
                         size_t stored_nbytes) {
  if (api->Dread_chunk2) {
    return api->Dread_chunk2(dataset, H5P_DEFAULT, offset, filter_mask, buffer, nbytes);
  }
  *nbytes = stored_nbytes;
  return api->Dread_chunk1(dataset, H5P_DEFAULT, offset, filter_mask, buffer);
}

/* Chunks that other encoders made of noise in blocks so small that they take more than our bound.
 */
static bool exceeds_bitshuffle(const gpufi_h5_transfer *transfer, uint64_t stored_nbytes) {
  return transfer->dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE &&
         stored_nbytes > gpufi_h5_encoded_bound(transfer->dataset);
}

/* After a call that asks for a stored chunk has failed: HDF5 reads its elements, which fills in a
 * chunk that was never written, or says what is wrong. But before it tells of a stored chunk, HDF5
 * writes it from its cache. Where the system refused that, the chunk is lost, and the file holds
 * what was there before. */
static gpuf_status get_elements_after_failure(gpufi_h5_session *session,
                                              const gpufi_h5_transfer *transfer,
                                              gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpuf_status status = gpufi_h5_fail_if_refused(
      session, err, "reading chunk %" PRId64 " of %" PRId64 " of dataset '%s' failed", chunk->index,
      transfer->grid.total, transfer->dataset->name);
  return status == GPUF_OK ? get_elements(session, transfer, chunk, err) : status;
}

/* Read the chunk's bytes, or its elements, by HDF5. Of a plain chunk HDF5 before 2.0 gives the size
 * that it should have, and H5Dread_chunk would read what the index says. */
static gpuf_status get_by_hdf5(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const gpufi_h5_dataset *dataset = transfer->dataset;
  hsize_t offset[GPUF_NDIM_MAX];
  hsize_t stored_nbytes = 0;
  gpuf_status status = GPUF_OK;
  offset_of(transfer, chunk, offset);
  if (!chunk->encoded && !api->Dread_chunk2) {
    return get_elements(session, transfer, chunk, err);
  }
  session->uses_chunk_cache = true;
  if (api->Dget_chunk_storage_size(dataset->id, offset, &stored_nbytes) < 0) {
    return get_elements_after_failure(session, transfer, chunk, err);
  }
  if (exceeds_bitshuffle(transfer, stored_nbytes)) {
    return get_elements(session, transfer, chunk, err);
  }
  if (stored_nbytes != 0) {
    status = check_stored_nbytes(transfer, chunk, stored_nbytes, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  chunk->filter_mask = 0;
  chunk->encoded_nbytes = capacity_of(transfer, chunk);
  if (read_chunk(api, dataset->id, offset, &chunk->filter_mask, bytes_of(chunk),
                 &chunk->encoded_nbytes, (size_t)stored_nbytes) < 0) {
    return get_elements_after_failure(session, transfer, chunk, err);
  }
  return check_stored_nbytes(transfer, chunk, chunk->encoded_nbytes, err);
}

gpuf_status gpufi_h5_chunk_get(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               gpufi_h5_chunk *chunk, int64_t index, gpuf_error *err) {
  const gpufi_h5_place *place = transfer->direct.places ? &transfer->direct.places[index] : NULL;
  chunk->index = index;
  chunk->has_elements = false;
  if (!place || place->offset == 0 || exceeds_bitshuffle(transfer, place->nbytes)) {
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
  const gpufi_h5_context *context = session->context;
  hsize_t offset[GPUF_NDIM_MAX];
  offset_of(transfer, chunk, offset);
  if (context && context->file) {
    const gpuf_status status = gpufi_h5_driver_error(context->file, err);
    if (status != GPUF_OK) {
      return status;
    }
  }
  if (context && context->stop && atomic_load(context->stop)) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0, "writing dataset '%s' was stopped", dataset->name);
  }
  gpufi_h5_enter(session);
  if (session->api->Dwrite_chunk(dataset->id, H5P_DEFAULT, 0, offset, nbytes, bytes_of(chunk)) <
      0) {
    return gpufi_h5_fail(session, err,
                         "writing chunk %" PRId64 " of %" PRId64 " (%zu bytes) of dataset '%s' "
                         "failed",
                         chunk->index, transfer->grid.total, nbytes, dataset->name);
  }
  if (context && context->digest) {
    gpufi_h5_digest_add(context->digest, dataset, chunk->index, bytes_of(chunk), nbytes, true);
  }
  return GPUF_OK;
}
