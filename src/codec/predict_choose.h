/* The choice of how W8 predicts: the transform, the axes and the offset by which the residuals of
 * the sample cost least.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_PREDICT_CHOOSE_H
#define GPUFI_CODEC_PREDICT_CHOOSE_H

#include "codec/sample.h"

/* What W8 would do with a chunk, and the bits of payload that it would take. */
typedef struct gpufi_w8_choice {
  uint8_t transform, axes;
  uint64_t offset, bits;
} gpufi_w8_choice;

/* Choose transform, axes and offset by the cost of the sample, in bits, which is returned.
 * `numbers` says how the values have a base, or is null. */
uint64_t gpufi_predict_choose(const gpufi_sampled *of, const gpufi_numbers *numbers,
                              gpufi_w8_choice *choice);

/* The cost of the sample's corrections; 0 if there are none. They are the same with each transform
 * of a shift. */
uint64_t gpufi_predict_corrections(const gpufi_sampled *of, const gpufi_numbers *numbers);

#endif
