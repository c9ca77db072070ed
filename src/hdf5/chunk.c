#include "hdf5/chunk.h"

#include "base/error.h"
#include "hdf5/coding.h"
#include "hdf5/digest.h"
#include "hdf5/driver/file.h"
#include "hdf5/hyperslab.h"
#include "hdf5/outgoing.h"

#include <inttypes.h>
#include <stdlib.h>

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

/* Chunks that other encoders made of noise, such as in blocks so small that they take more than our
 * bound: HDF5 reads them. */
static bool exceeds_bound(const gpufi_h5_transfer *transfer, uint64_t stored_nbytes) {
  const gpufi_h5_route route = transfer->dataset->route;
  return (route == GPUFI_H5_ROUTE_BITSHUFFLE || route == GPUFI_H5_ROUTE_STEPS) &&
         stored_nbytes > gpufi_h5_encoded_bound(transfer->dataset);
}

/* After a call that asks for a stored chunk has failed: HDF5 reads its elements, which fills in a
 * chunk that was never written, or says what is wrong. It has no chunk in memory that it would lose
 * here: gpufi_h5_stored_flush was called before. */
static gpuf_status get_elements_after_failure(gpufi_h5_session *session,
                                              const gpufi_h5_transfer *transfer,
                                              gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpuf_status status = gpufi_h5_fail_if_refused(
      session, err, "reading chunk %" PRId64 " of %" PRId64 " of dataset '%s' failed", chunk->index,
      transfer->grid.total, transfer->dataset->name);
  return status == GPUF_OK ? get_elements(session, transfer, chunk, err) : status;
}

/* Read the chunk's bytes, or its elements, by HDF5. Of a plain chunk HDF5 before 2.0 gives the size
 * that it should have, and H5Dread_chunk would read what the index says. It gives 0 for a chunk of
 * the index "single chunk" that was never stored. */
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
  if (exceeds_bound(transfer, stored_nbytes) || (stored_nbytes == 0 && !api->Dread_chunk2)) {
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
  if (!place || place->offset == 0 || exceeds_bound(transfer, place->nbytes)) {
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

static void announce(const gpufi_h5_session *session, const void *bytes, size_t nbytes) {
  if (session->defers && session->context && session->context->file) {
    gpufi_h5_driver_announce(session->context->file, bytes, nbytes);
  }
}

static gpuf_status write_deferred(const gpufi_h5_session *session,
                                  void (*write)(gpufi_h5_driver_file *file), gpuf_status status,
                                  gpuf_error *err) {
  if (!session->context || !session->context->file) {
    return status;
  }
  write(session->context->file);
  return status == GPUF_OK ? gpufi_h5_driver_error(session->context->file, err) : status;
}

gpuf_status gpufi_h5_chunks_begin(const gpufi_h5_session *session, gpuf_status status,
                                  gpuf_error *err) {
  return write_deferred(session, gpufi_h5_driver_begin, status, err);
}

gpuf_status gpufi_h5_chunks_settle(const gpufi_h5_session *session, gpuf_status status,
                                   gpuf_error *err) {
  return write_deferred(session, gpufi_h5_driver_drain, status, err);
}

static gpuf_status fail_without_memory(const gpufi_h5_dataset *dataset, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                    "no memory for a chunk of %zu bytes: choose smaller chunks",
                    dataset->chunk_nbytes);
}

/* The filter mask of the chunk that is stored at `offset`. A mask belongs to a chunk that was
 * stored past the filter, which takes as many bytes as its elements: any other size says 0, as does
 * a chunk that is not there. Entered. */
static gpuf_status stored_mask(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                               const hsize_t *offset, uint32_t *mask, gpuf_error *err) {
  hsize_t stored_nbytes = 0;
  size_t nbytes = dataset->chunk_nbytes;
  *mask = 0;
  if (session->api->Dget_chunk_storage_size(dataset->id, offset, &stored_nbytes) < 0) {
    return gpufi_h5_fail_if_refused(session, err, "looking for a chunk of dataset '%s' failed",
                                    dataset->name);
  }
  if (stored_nbytes != nbytes) {
    return GPUF_OK;
  }
  void *const bytes = malloc(nbytes);
  if (!bytes) {
    return fail_without_memory(dataset, err);
  }
  const herr_t code =
      read_chunk(session->api, dataset->id, offset, mask, bytes, &nbytes, (size_t)stored_nbytes);
  free(bytes);
  return code < 0 ? gpufi_h5_fail(session, err, "looking at a chunk of dataset '%s' failed",
                                  dataset->name)
                  : GPUF_OK;
}

/* The same, for a chunk that is about to be replaced: HDF5 may first write it from its cache, but
 * loses no other. Entered. */
static gpuf_status replaced_mask(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                 const gpufi_h5_chunk *chunk, uint32_t *mask, gpuf_error *err) {
  const bool uses_chunk_cache = session->uses_chunk_cache;
  hsize_t offset[GPUF_NDIM_MAX];
  offset_of(transfer, chunk, offset);
  session->uses_chunk_cache = true;
  const gpuf_status status = stored_mask(session, transfer->dataset, offset, mask, err);
  session->uses_chunk_cache = uses_chunk_cache;
  return status;
}

static gpuf_status write_chunk(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               const gpufi_h5_chunk *chunk, uint32_t mask, const void *bytes,
                               size_t nbytes, gpuf_error *err) {
  hsize_t offset[GPUF_NDIM_MAX];
  offset_of(transfer, chunk, offset);
  if (bytes == bytes_of(chunk)) { /* which stay until the chunks are settled */
    announce(session, bytes, nbytes);
  }
  const herr_t code =
      session->api->Dwrite_chunk(transfer->dataset->id, H5P_DEFAULT, mask, offset, nbytes, bytes);
  announce(session, NULL, 0);
  if (code < 0) {
    return gpufi_h5_fail(session, err,
                         "writing chunk %" PRId64 " of %" PRId64 " (%zu bytes) of dataset '%s' "
                         "failed",
                         chunk->index, transfer->grid.total, nbytes, transfer->dataset->name);
  }
  return GPUF_OK;
}

/* Write the elements of an encoded chunk. */
static gpuf_status write_past_filter(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                     const gpufi_h5_chunk *chunk, uint32_t mask, gpuf_error *err) {
  void *raw = NULL;
  gpuf_status status = gpufi_h5_chunk_elements(transfer, chunk, &raw, err);
  if (status == GPUF_OK) {
    status = write_chunk(session, transfer, chunk, mask, raw, transfer->dataset->chunk_nbytes, err);
  }
  free(raw);
  return status;
}

/* H5Dwrite_chunk sets the filter mask of a stored chunk only where the chunk's size changes, and
 * even then HDF5 may go on to read by the old mask until it looks for another chunk. So a chunk
 * that was stored past the filter stays one. */
static gpuf_status write_encoded(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                 const gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  uint32_t mask = 0;
  const gpuf_status status =
      dataset->is_new ? GPUF_OK : replaced_mask(session, transfer, chunk, &mask, err);
  if (status != GPUF_OK) {
    return status;
  }
  return mask & GPUFI_H5_FILTER_SKIPPED
             ? write_past_filter(session, transfer, chunk, mask, err)
             : write_chunk(session, transfer, chunk, 0, chunk->encoded, chunk->encoded_nbytes, err);
}

gpuf_status gpufi_h5_chunk_put(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               const gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  const size_t nbytes = chunk->encoded ? chunk->encoded_nbytes : dataset->chunk_nbytes;
  const gpufi_h5_context *context = session->context;
  if (context && context->outgoing) {
    return gpufi_h5_outgoing_put_chunk(context->outgoing, chunk->index, bytes_of(chunk), nbytes,
                                       err);
  }
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
  const gpuf_status status =
      chunk->encoded ? write_encoded(session, transfer, chunk, err)
                     : write_chunk(session, transfer, chunk, 0, chunk->raw, nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (context && context->digest) {
    gpufi_h5_digest_add(context->digest, dataset, chunk->index, bytes_of(chunk), nbytes, true);
  }
  return GPUF_OK;
}
