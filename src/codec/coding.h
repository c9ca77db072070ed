/* How a chunk is to be encoded, and the choice of it (docs/format.md, what the encoder chooses).
 *
 * Thread-safety: re-entrant, holds no state. */
#ifndef GPUFI_CODEC_CODING_H
#define GPUFI_CODEC_CODING_H

#include "codec/dictionary.h"
#include "codec/header.h"
#include "codec/lines.h"
#include "codec/matches_choose.h"
#include "codec/numbers.h"
#include "codec/ranked.h"

/* How a chunk is to be encoded: the header's coding fields, and what belongs to them. */
typedef struct gpufi_coding {
  gpufi_geometry geometry; /* of what is packed: one byte a value where there is a dictionary */
  const uint8_t *raw;
  const uint8_t *values; /* the raw values, their places in the dictionary, or by their base */
  const uint8_t *bases;  /* what the raw values have by way of their base; null if it is lost */
  uint8_t *residuals;    /* capacity for all that is packed, geometry.value_count values */
  gpufi_lines *lines;    /* gives the residuals of `values` block by block; or null */
  bool swap;             /* `values` are big-endian */
  bool raw_swap;         /* so is `raw` */
  bool as_is;            /* `values` are packed, not `residuals` */
  gpufi_dictionary dictionary;
  gpufi_ranks ranks;
  gpufi_numbers numbers;
} gpufi_coding;

/* Set the coding fields of `header`, of mode W8, ranked or matches, and what belongs to them; mode
 * raw if nothing is expected to take less than the raw bytes. *c has the values as they are.
 * `scratch` holds as many bytes as the raw chunk; the places of a dictionary are then in it. */
void gpufi_coding_choose(gpufi_coding *c, gpufi_chunk_header *header, uint8_t *scratch,
                         gpufi_matches_encoder *encoder);

#endif
