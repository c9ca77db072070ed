/* The header of a chunk, parsed.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_HEADER_H
#define GPUFI_CODEC_HEADER_H

#include "codec/geometry.h"
#include "codec/ranked.h"

typedef struct gpufi_chunk_header {
  gpufi_chunk_shape shape;
  uint8_t mode, transform, axes, flags;
  uint8_t levels;        /* first_bits, and second_bits << 4; ranked only */
  uint8_t entries_less1; /* of the dictionary */
  uint64_t raw_nbytes, payload_nbytes;
  uint64_t offset; /* taken off each residual; W8 of integers and of places in a dictionary only */
  uint8_t seed[16];
} gpufi_chunk_header;

/* Write GPUFI_HEADER_NBYTES bytes, the checksum as 0. */
void gpufi_header_write(uint8_t *encoded, const gpufi_chunk_header *header);

/* Check all that a header says against itself and `encoded_nbytes`, not the checksum. `encoded` is
 * untrusted. */
gpuf_status gpufi_header_read(const uint8_t *encoded, size_t encoded_nbytes,
                              gpufi_chunk_header *header, gpuf_error *err);

/* The geometry of what is packed: the values, or the places in a dictionary, one byte each. */
void gpufi_header_geometry(const gpufi_chunk_header *header, gpufi_geometry *g);

/* Code lengths and the position of the symbol in a value; false if a chunk cannot be ranked so. */
bool gpufi_header_ranks(const gpufi_chunk_header *header, gpufi_ranks *ranks);

/* Bytes of the two tables, 0 for one that is not there. Returns the bytes of both with their
 * padding, which is where the descriptors begin in the payload. */
size_t gpufi_header_tables(const gpufi_chunk_header *header, size_t *dictionary, size_t *symbols);

#endif
