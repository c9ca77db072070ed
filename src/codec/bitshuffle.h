/* Chunks of HDF5 filter 32008, bitshuffle with LZ4, for readers that have hdf5plugin and not
 * gpufetch, and for files that such writers left.
 *
 * A chunk is its decoded size (64 bits) and the size of a block (32 bits), both in bytes and
 * big-endian, and its blocks: each a 32-bit big-endian size and an LZ4 block. What that decodes to
 * is a bit plane for each bit of an element: first the lowest bits of all elements' first bytes,
 * eight elements a byte. The last block holds the elements that are left, a multiple of 8; the
 * fewer than 8 after it follow as they are.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_BITSHUFFLE_H
#define GPUFI_CODEC_BITSHUFFLE_H

#include "codec/bitplanes.h"

#include <gpufetch/gpufetch.h>

#define GPUFI_BITSHUFFLE_FILTER_ID 32008

#define GPUFI_BITSHUFFLE_HEADER_NBYTES 12
#define GPUFI_BITSHUFFLE_SIZE_NBYTES 4     /* before each block */
#define GPUFI_BITSHUFFLE_BLOCK_NBYTES 8192 /* or less, but for elements of more than 64 bytes */

/* Elements in a block that the encoder writes, about 8 KiB, from 8 to 8,192. The element has 1 to
 * GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX bytes. */
#define GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX GPUFI_BITPLANES_ELEMENT_NBYTES_MAX
size_t gpufi_bitshuffle_block_elements(size_t element_nbytes);

/* Largest encoded size of `raw_nbytes`, a multiple of the element's, by this encoder. Others may
 * choose smaller blocks, and need more. */
size_t gpufi_bitshuffle_bound(size_t element_nbytes, size_t raw_nbytes);

/* Bytes of scratch that encoding and decoding need beside input and output. */
size_t gpufi_bitshuffle_scratch_nbytes(size_t raw_nbytes);

/* Encode into `encoded` of gpufi_bitshuffle_bound() bytes; returns the bytes used. The bytes depend
 * on the arguments alone, block by block, so that encoders elsewhere can give the same. */
size_t gpufi_bitshuffle_encode(size_t element_nbytes, const void *raw, size_t raw_nbytes,
                               void *encoded, void *scratch);

/* Decode into `raw` of exactly `raw_nbytes` bytes, a multiple of the element's, which has 1 to
 * GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX. `encoded` is untrusted. GPUF_ERR_CORRUPT, naming the byte
 * offset, for anything but one whole chunk; nothing is written outside `raw` and `scratch`, which
 * are then indeterminate. */
gpuf_status gpufi_bitshuffle_decode(size_t element_nbytes, const void *encoded,
                                    size_t encoded_nbytes, void *raw, size_t raw_nbytes,
                                    void *scratch, gpuf_error *err);

#endif
