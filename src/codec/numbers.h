/* Values by way of a base that is easier to predict: floats that are integers in disguise (1.27 is
 * 127 / 100), or of which the low bits are 0 nearly always. What is predicted and packed is the
 * integer, or the transformed top of the value; corrections, if the chunk has any, are a second
 * stream, of what the value differs by from its base.
 *
 *   integers     127        128        128        0
 *   base           1.27       1.28       1.28       0.
 *   corrections    0          0          +1 ulp     all that a NaN differs from 0 by
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_NUMBERS_H
#define GPUFI_CODEC_NUMBERS_H

#include "codec/geometry.h"
#include "codec/header.h"

typedef struct gpufi_numbers {
  size_t value_nbytes;
  uint8_t transform; /* quotient and linear; none, rotate and order with a shift */
  uint8_t shift;     /* 0 with quotient and linear */
  double a, b;       /* 0 without */
} gpufi_numbers;

/* Whether the values of the chunk have a base other than what a line's kernels undo. */
static inline bool gpufi_header_has_base(const gpufi_chunk_header *header) {
  return header->mode == GPUFI_MODE_W8 &&
         (header->shift != 0 || gpufi_transform_has_parameters(header->transform));
}

/* What the header and the parameters (GPUFI_PARAMETERS_NBYTES, read only if there are some) say;
 * false if the parameters are not allowed. */
bool gpufi_numbers_read(gpufi_numbers *numbers, const gpufi_chunk_header *header,
                        const uint8_t *parameters);

/* `count` integers, or transformed values, of which the low `shift` bits are 0, to values, in
 * place. `corrections`, as many and as wide, or null. */
void gpufi_numbers_undo(const gpufi_numbers *numbers, const uint8_t *corrections, size_t count,
                        uint8_t *values);

#endif
