/* The header of a chunk, parsed.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_HEADER_H
#define GPUFI_CODEC_HEADER_H

#include "codec/geometry.h"
#include "codec/matches.h"
#include "codec/number.h"
#include "codec/ranked.h"

typedef struct gpufi_chunk_header {
  gpufi_chunk_shape shape;
  uint8_t version, mode, transform, axes, flags;
  uint8_t levels;        /* ranked: the tree's depth, and symbol_bits << 4, but in version 1 the
                            lengths of codes, first_bits, and second_bits << 4; matches: matches.h */
  uint8_t symbol;        /* ranked: the symbol's lowest bit */
  uint8_t entries_less1; /* of the dictionary */
  uint8_t shift;         /* low bits that are 0 in the base of every value */
  uint64_t raw_nbytes, payload_nbytes;
  uint64_t offset;  /* taken off each residual; of integers and of places in a dictionary only */
  uint8_t seed[16]; /* ranked: the leaves of each level of the tree */
} gpufi_chunk_header;

/* Write GPUFI_HEADER_NBYTES bytes of the version that is written, the checksum as 0. */
void gpufi_header_write(uint8_t *encoded, const gpufi_chunk_header *header);

/* Check all that a header says against itself and `encoded_nbytes`, not the checksum. `encoded` is
 * untrusted. */
gpuf_status gpufi_header_read(const uint8_t *encoded, size_t encoded_nbytes,
                              gpufi_chunk_header *header, gpuf_error *err);

/* The geometry of the values, with the axes changed where they are coded as planes (and may be: the
 * flag need not be checked yet). */
void gpufi_header_values(const gpufi_chunk_header *header, gpufi_geometry *g);

/* The geometry of what is packed: the values, or the places in a dictionary, one byte each. */
void gpufi_header_geometry(const gpufi_chunk_header *header, gpufi_geometry *g);

/* The codes, and the place of the symbol in a value; false if a chunk cannot be ranked so. The
 * symbols themselves are in the payload. */
bool gpufi_header_ranks(const gpufi_chunk_header *header, gpufi_ranks *ranks);

/* The inverse: set the fields for a chunk that is ranked so. */
void gpufi_header_set_ranks(gpufi_chunk_header *header, const gpufi_ranks *ranks);

/* What mode matches does with residuals; false if there is no such thing. */
bool gpufi_header_matches(const gpufi_chunk_header *header, gpufi_matches *matches);

/* Whether the mode has residuals of a prediction. */
static inline bool gpufi_mode_is_predicted(uint8_t mode) {
  return mode == GPUFI_MODE_W8 || mode == GPUFI_MODE_MATCHES;
}

/* What comes before the descriptors in the payload: bytes of each table, 0 for one that is not
 * there. There is never a dictionary with parameters. */
typedef struct gpufi_tables {
  size_t parameters, dictionary, symbols;
} gpufi_tables;

/* Returns the bytes of all with their padding, which is where the descriptors begin. */
size_t gpufi_header_tables(const gpufi_chunk_header *header, gpufi_tables *tables);

/* Streams of blocks, each with a descriptor for every block: 2 if there are corrections. */
static inline size_t gpufi_header_streams(const gpufi_chunk_header *header) {
  return header->flags & GPUFI_FLAG_CORRECTIONS ? 2 : 1;
}

#endif
