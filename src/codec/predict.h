/* Prediction of a whole chunk at a time, for chunks that lines.h cannot take.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_PREDICT_H
#define GPUFI_CODEC_PREDICT_H

#include "codec/geometry.h"

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
