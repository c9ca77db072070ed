/* A chunk's values as lines along its last axis, each predicted in one go: along the line from
 * the value before, and across lines from the same place in up to 7 earlier ones. Blocks of a
 * chunk and its lines end in different places, so the walk can stop and go on anywhere.
 *
 *   lines of 1,500 values     |--- 0 ----------|--- 1 ----------|--- 2 ----------|--- 3 ---
 *   blocks of 1,024           |--- 0 -----|--- 1 -----|--- 2 -----|--- 3 -----|--- 4 -----|
 *
 * It undoes the prediction of docs/format.md for two reasons. Where every axis of the set but the
 * last axis of the array has index 0 (the face), a line is one of running sums from the value that
 * the chain rule names, whether or not the last axis is in the set. Elsewhere the neighbours along
 * the other axes of the set are the inclusion-exclusion sum that Lorenzo prediction is, and the
 * last axis, if it is in the set, adds a running sum of what that leaves.
 *
 * Thread-safety: a walk belongs to one thread. */
#ifndef GPUFI_CODEC_LINES_H
#define GPUFI_CODEC_LINES_H

#include "codec/geometry.h"
#include "codec/kernels.h"

typedef struct gpufi_lines {
  const gpufi_geometry *g;
  const gpufi_cpu *cpu;
  uint32_t axes;   /* the set */
  uint32_t inside; /* bit a: axis a is in the set and the current line's index along it is not 0;
                      the last axis has no bit */
  int32_t outer;   /* the last axis but the last one that is longer than 1; -1 if there is none */
  size_t length;   /* values of a line */
  size_t at;       /* values done */
  size_t left;     /* values of the current line that are not; 0: the next one starts */
  size_t index[GPUFI_CODEC_NDIM_MAX]; /* of the line, along all axes but the last */
  const uint8_t *seed;
  gpufi_line line;
  _Alignas(64) uint8_t above[8 * GPUFI_BLOCK_VALUES + GPUFI_LINE_READ_NBYTES]; /* for line.above */
} gpufi_lines;

/* False if this chunk is better done as a whole by gpufi_predict_*. `g` and `seed` (null when
 * going forward) are borrowed. */
bool gpufi_lines_init(gpufi_lines *lines, const gpufi_geometry *g, uint8_t transform, uint8_t axes,
                      uint64_t offset, const uint8_t *seed);

/* The next `count` residuals, readable for GPUFI_LINE_READ_NBYTES more, to values of the chunk at
 * `raw`. Also writes to later values of the chunk. */
void gpufi_lines_inverse(gpufi_lines *lines, const uint8_t *residuals, size_t count, uint8_t *raw);

/* The seed that belongs to the chunk of values at `raw`: its first element, transformed; 0 where
 * there is no prediction. */
void gpufi_lines_seed(const gpufi_lines *lines, const uint8_t *raw, uint8_t seed[16]);

/* The residuals of the next `count` values of the chunk at `raw`. */
void gpufi_lines_forward(gpufi_lines *lines, const uint8_t *raw, size_t count, uint8_t *residuals);

#endif
