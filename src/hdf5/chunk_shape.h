/* The shapes of chunks: choosing one, checking the caller's, and how the codec sees it. */
#ifndef GPUFI_HDF5_CHUNK_SHAPE_H
#define GPUFI_HDF5_CHUNK_SHAPE_H

#include "codec/codec.h"

/* For a tensor of at least one axis and one element: a chunk of at most 1 MiB. */
void gpufi_h5_chunk_shape_default(const gpuf_tensor *tensor, int64_t *chunk);
/* Check a chunk shape that the caller chose for `tensor`. */
gpuf_status gpufi_h5_chunk_shape_check(const gpuf_tensor *tensor, const int64_t *chunk,
                                       gpuf_error *err);
/* How the codec sees a chunk: leading axes beyond its limit are folded into one.
 * GPUF_ERR_INVALID for a chunk of 4 GiB or more. */
gpuf_status gpufi_h5_chunk_shape_fold(gpuf_dtype dtype, int32_t ndim, const int64_t *chunk,
                                      gpufi_chunk_shape *shape, size_t *raw_nbytes,
                                      gpuf_error *err);

#endif
