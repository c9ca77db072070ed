/* The chunk codec: lossless, self-describing, any bytes in and the same bytes out.
 * The format is docs/format.md. What is declared here is defined in encode.c, decode.c, geometry.c
 * (gpufi_chunk_raw_nbytes) and checksum.c (gpufi_codec_seal).
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_CODEC_H
#define GPUFI_CODEC_CODEC_H

#include <gpufetch/gpufetch.h>

#define GPUFI_CODEC_NDIM_MAX 8

/* What the raw bytes of a chunk are: C-contiguous, native (little-endian) elements. */
typedef struct gpufi_chunk_shape {
  gpuf_dtype dtype;
  int32_t ndim; /* 1 .. GPUFI_CODEC_NDIM_MAX; a 0-d chunk is described as one of shape (1,) */
  uint32_t dims[GPUFI_CODEC_NDIM_MAX]; /* each >= 1, slowest first */
} gpufi_chunk_shape;

/* Size of the raw chunk, or GPUF_ERR_INVALID for a bad shape or one of 4 GiB or more. */
gpuf_status gpufi_chunk_raw_nbytes(const gpufi_chunk_shape *shape, size_t *raw_nbytes,
                                   gpuf_error *err);

/* Largest encoded size of a raw chunk of `raw_nbytes`. */
size_t gpufi_codec_bound(size_t raw_nbytes);

/* Encode `raw` (the size that `shape` gives) into `encoded`, which holds at least
 * gpufi_codec_bound() bytes. `scratch` is gpufi_codec_scratch_nbytes(shape) bytes, 64-byte
 * aligned. *encoded_nbytes is set on success; on failure `encoded` is indeterminate. */
size_t gpufi_codec_scratch_nbytes(const gpufi_chunk_shape *shape);
gpuf_status gpufi_codec_encode(const gpufi_chunk_shape *shape, const void *raw, void *encoded,
                               size_t encoded_capacity, size_t *encoded_nbytes, void *scratch,
                               gpuf_error *err);

/* The same for big-endian elements. Decoding gives the same big-endian bytes back. */
gpuf_status gpufi_codec_encode_big_endian(const gpufi_chunk_shape *shape, const void *raw,
                                          void *encoded, size_t encoded_capacity,
                                          size_t *encoded_nbytes, void *scratch, gpuf_error *err);

/* Write the checksum that belongs to the other bytes of a chunk, for tests and fuzz targets that
 * build chunks by other means. `encoded_nbytes` is a multiple of 16, at least 96. */
void gpufi_codec_seal(void *encoded, size_t encoded_nbytes);

/* Read and check the header of an encoded chunk of `encoded_nbytes` bytes: everything that can be
 * known without decoding. `encoded` is untrusted. */
gpuf_status gpufi_codec_inspect(const void *encoded, size_t encoded_nbytes,
                                gpufi_chunk_shape *shape, size_t *raw_nbytes, gpuf_error *err);

/* Decode into `raw` of exactly `raw_nbytes` bytes. GPUF_ERR_CORRUPT, naming the byte offset, for
 * anything that docs/format.md does not allow; nothing is written outside `raw`, whose contents are
 * then indeterminate. `encoded` is untrusted. Chunks that are coded as planes take as many bytes of
 * memory more while they are decoded, or give GPUF_ERR_NO_MEMORY. */
gpuf_status gpufi_codec_decode(const void *encoded, size_t encoded_nbytes, void *raw,
                               size_t raw_nbytes, gpuf_error *err);

#endif
