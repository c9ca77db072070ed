/* The choice of mode matches: whether, of which residuals, and in which arrangement.
 *
 * Thread-safety: re-entrant, holds no state. */
#ifndef GPUFI_CODEC_MATCHES_CHOOSE_H
#define GPUFI_CODEC_MATCHES_CHOOSE_H

#include "codec/matches.h"
#include "codec/predict_choose.h"

/* True if matches are expected to take clearly fewer than `bits` bits, what the best of the other
 * modes takes; then *chosen is how to predict (its bits are the estimate). The same on every
 * machine: integer arithmetic on the sample and on some of the blocks. */
bool gpufi_matches_choose(const gpufi_sampled *of, const gpufi_w8_choice *w8, uint64_t bits,
                          gpufi_matches_encoder *encoder, gpufi_w8_choice *chosen,
                          unsigned *arrangement);

#endif
