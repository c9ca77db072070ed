#include "hdf5/coding.h"

#include "base/error.h"
#include "codec/bitshuffle.h"
#include "hdf5/types.h"

#include <stdlib.h>
#include <string.h>

size_t gpufi_h5_encoded_bound(const gpufi_h5_dataset *dataset) {
  switch (dataset->route) {
  case GPUFI_H5_ROUTE_GPUFETCH:
    return gpufi_codec_bound(dataset->chunk_nbytes);
  case GPUFI_H5_ROUTE_BITSHUFFLE:
    return gpufi_bitshuffle_bound(gpuf_dtype_nbytes(dataset->dtype), dataset->chunk_nbytes);
  case GPUFI_H5_ROUTE_STEPS:
    return gpufi_h5_steps_bound(dataset->chunk_nbytes);
  default:
    return 0;
  }
}

static size_t scratch_nbytes(const gpufi_h5_dataset *dataset) {
  switch (dataset->route) {
  case GPUFI_H5_ROUTE_GPUFETCH:
    return gpufi_codec_scratch_nbytes(&dataset->chunk_shape);
  case GPUFI_H5_ROUTE_BITSHUFFLE:
    return gpufi_bitshuffle_scratch_nbytes(dataset->chunk_nbytes);
  case GPUFI_H5_ROUTE_STEPS:
    return gpufi_h5_steps_scratch_nbytes(dataset->chunk_nbytes);
  default:
    return 0;
  }
}

void *gpufi_h5_scratch_create(const gpufi_h5_dataset *dataset) {
  void *scratch = NULL;
  /* Some bytes even for plain chunks, which need none: NULL says that there is no memory. */
  return posix_memalign(&scratch, 64, scratch_nbytes(dataset) + 64) == 0 ? scratch : NULL;
}

gpuf_status gpufi_h5_chunk_encode(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                  void *scratch, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  switch (dataset->route) {
  case GPUFI_H5_ROUTE_GPUFETCH:
    return gpufi_codec_encode(&dataset->chunk_shape, chunk->raw, chunk->encoded,
                              gpufi_codec_bound(dataset->chunk_nbytes), &chunk->encoded_nbytes,
                              scratch, err);
  case GPUFI_H5_ROUTE_BITSHUFFLE:
    chunk->encoded_nbytes = gpufi_bitshuffle_encode(gpuf_dtype_nbytes(dataset->dtype), chunk->raw,
                                                    dataset->chunk_nbytes, chunk->encoded, scratch);
    return GPUF_OK;
  default:
    return GPUF_OK;
  }
}

/* A chunk that H5Dwrite sent through the filter names a type of HDF5's, and to HDF5 those of our
 * one-byte types that it lacks are integers. */
static bool dtype_fits(gpuf_dtype stored, gpuf_dtype wanted) {
  const bool is_byte = stored == GPUF_DTYPE_UINT8 || stored == GPUF_DTYPE_INT8;
  return stored == wanted ||
         (is_byte && (wanted == GPUF_DTYPE_BOOL || gpufi_h5_dtype_is_named_byte(wanted)));
}

static bool shape_fits(const gpufi_chunk_shape *stored, const gpufi_chunk_shape *wanted) {
  return dtype_fits(stored->dtype, wanted->dtype) && stored->ndim == wanted->ndim &&
         !memcmp(stored->dims, wanted->dims, (size_t)wanted->ndim * sizeof(*wanted->dims));
}

/* Check that the chunk's header agrees with the dataset, and decode it. */
static gpuf_status decode_gpufetch(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                   gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  gpufi_chunk_shape stored;
  size_t raw_nbytes = 0;
  const gpuf_status status =
      gpufi_codec_inspect(chunk->encoded, chunk->encoded_nbytes, &stored, &raw_nbytes, err);
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
  return gpufi_codec_decode(chunk->encoded, chunk->encoded_nbytes, chunk->raw,
                            dataset->chunk_nbytes, err);
}

static gpuf_status decode_by_route(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                   void *scratch, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  switch (dataset->route) {
  case GPUFI_H5_ROUTE_BITSHUFFLE:
    return gpufi_bitshuffle_decode(gpuf_dtype_nbytes(dataset->dtype), chunk->encoded,
                                   chunk->encoded_nbytes, chunk->raw, dataset->chunk_nbytes,
                                   scratch, err);
  case GPUFI_H5_ROUTE_STEPS:
    return gpufi_h5_steps_decode(&dataset->steps, chunk->filter_mask, chunk->encoded,
                                 chunk->encoded_nbytes, chunk->raw, dataset->chunk_nbytes, scratch,
                                 err);
  default:
    return decode_gpufetch(transfer, chunk, err);
  }
}

static gpuf_status decode_filtered(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                   void *scratch, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  gpuf_error cause = {0};
  const gpuf_status status = decode_by_route(transfer, chunk, scratch, &cause);
  if (status != GPUF_OK) {
    return gpufi_fail(err, status, 0, "chunk at (%s) of dataset '%s': %s",
                      gpufi_h5_transfer_position(transfer, chunk->index).text, dataset->name,
                      cause.message);
  }
  return GPUF_OK;
}

/* For a chunk that was stored past the filter. */
static gpuf_status copy_unfiltered(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                   gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  if (chunk->encoded_nbytes != dataset->chunk_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "chunk at (%s) of dataset '%s' is stored unfiltered in %zu bytes instead of "
                      "%zu: the file is damaged",
                      gpufi_h5_transfer_position(transfer, chunk->index).text, dataset->name,
                      chunk->encoded_nbytes, dataset->chunk_nbytes);
  }
  memcpy(chunk->raw, chunk->encoded, dataset->chunk_nbytes);
  return GPUF_OK;
}

gpuf_status gpufi_h5_chunk_decode(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                  void *scratch, gpuf_error *err) {
  if (!chunk->encoded || chunk->has_elements) {
    return GPUF_OK;
  }
  const bool is_one_filter = transfer->dataset->route != GPUFI_H5_ROUTE_STEPS;
  return is_one_filter && chunk->filter_mask & GPUFI_H5_FILTER_SKIPPED
             ? copy_unfiltered(transfer, chunk, err)
             : decode_filtered(transfer, chunk, scratch, err);
}

gpuf_status gpufi_h5_chunk_elements(const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk,
                                    void **raw, gpuf_error *err) {
  const gpufi_h5_dataset *const dataset = transfer->dataset;
  gpufi_h5_chunk decoded = {.index = chunk->index,
                            .raw = malloc(dataset->chunk_nbytes),
                            .encoded = chunk->encoded,
                            .encoded_nbytes = chunk->encoded_nbytes};
  void *const scratch = gpufi_h5_scratch_create(dataset);
  const gpuf_status status =
      decoded.raw && scratch
          ? gpufi_h5_chunk_decode(transfer, &decoded, scratch, err)
          : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                       "no memory for a chunk of %zu bytes: choose smaller chunks",
                       dataset->chunk_nbytes);
  free(scratch);
  if (status != GPUF_OK) {
    free(decoded.raw);
    return status;
  }
  *raw = decoded.raw;
  return GPUF_OK;
}
