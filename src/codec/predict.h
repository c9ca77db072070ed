/* Prediction of a whole chunk at a time, for chunks that lines.h cannot take, and the choice of how
 * to predict.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_PREDICT_H
#define GPUFI_CODEC_PREDICT_H

#include "codec/geometry.h"
#include "codec/number.h"

/* What the sample is taken of. */
typedef struct gpufi_sampled {
  const gpufi_geometry *g;
  const uint8_t *raw;
  bool swap;                    /* the values are big-endian */
  gpuf_dtype dtype;             /* of what is predicted; uint8 for places in a dictionary */
  const gpufi_numbers *numbers; /* how the values have a base, or null */
} gpufi_sampled;

/* What W8 would do with a chunk, and the bits of payload that it would take. */
typedef struct gpufi_w8_choice {
  uint8_t transform, axes;
  uint64_t offset, bits;
} gpufi_w8_choice;

/* Choose transform, axes and offset by the cost of the sample, in bits, which is returned. */
uint64_t gpufi_predict_choose(const gpufi_sampled *sampled, uint8_t *transform, uint8_t *axes,
                              uint64_t *offset);

/* The cost of the sample's corrections, with this transform; 0 if there are none. */
uint64_t gpufi_predict_corrections(const gpufi_sampled *sampled, uint8_t transform);

/* `raw` (value_count values; may be `residuals`) to residuals; the first element's values go to
 * `seed`. */
void gpufi_predict_forward(const gpufi_geometry *g, const void *raw, bool swap, uint8_t transform,
                           uint8_t axes, uint64_t offset, void *residuals, uint8_t seed[16]);

/* Residuals number `first` to first + count - 1, at most GPUFI_BLOCK_VALUES, on their own. */
void gpufi_predict_range(const gpufi_geometry *g, const void *raw, bool swap, uint8_t transform,
                         uint8_t axes, uint64_t offset, size_t first, size_t count,
                         void *residuals);

/* The inverse, in place. */
void gpufi_predict_inverse(const gpufi_geometry *g, void *values, bool swap, uint8_t transform,
                           uint8_t axes, uint64_t offset, const uint8_t seed[16]);

#endif
