/* Values by way of a base that is easier to predict: floats that are integers in disguise (1.27 is
 * 127 / 100), or of which the low bits are 0 nearly always. What is predicted and packed is the
 * integer, or the transformed top of the value; corrections, if the chunk has any, are a second
 * stream, of what the value differs by from its base.
 *
 *   integers     127        128        128        128
 *   base           1.27       1.28       1.28       1.28
 *   corrections    0          0          +1 ulp     all that a NaN differs from 1.28 by
 *
 * The encoder finds out by a sample of the chunk whether its values are such numbers (numbers.c).
 * What it guesses wrong costs corrections, never a bit of a value.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_NUMBERS_H
#define GPUFI_CODEC_NUMBERS_H

#include "codec/geometry.h"
#include "codec/header.h"
#include "codec/number.h"
#include "codec/predict_choose.h"

/* Whether the values of the chunk have a base other than what a line's kernels undo. */
static inline bool gpufi_header_has_base(const gpufi_chunk_header *header) {
  return header->mode == GPUFI_MODE_W8 &&
         (header->shift != 0 || (header->flags & GPUFI_FLAG_FILL) != 0 ||
          gpufi_transform_has_parameters(header->transform));
}

/* What the header and the parameters say, of which there are as many bytes as gpufi_header_tables()
 * gives; false if they are not allowed. */
bool gpufi_numbers_read(gpufi_numbers *numbers, const gpufi_chunk_header *header,
                        const uint8_t *parameters);

/* Write as many bytes. */
void gpufi_numbers_write(const gpufi_numbers *numbers, uint8_t *parameters);

/* Choose how W8 codes the sampled floats by way of a base, if that costs fewer than `bits` for the
 * chunk; *w8 is then the rest of what W8 does, and what that costs. False if it does not. */
bool gpufi_numbers_choose(const gpufi_sampled *sampled, uint64_t bits, gpufi_numbers *numbers,
                          gpufi_w8_choice *w8);

#endif
