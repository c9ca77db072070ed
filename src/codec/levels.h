/* Ranked chunks of version 1: codes of two levels, each of a fixed length (docs/format.md, Version
 * 1). They are only read. With a = 2 and b = 1, for the symbols A to D in order of their frequency,
 * and others:
 *
 *   A  00        first code 0           D       11 0           first code 3, second code 0
 *   B  01        first code 1           others  11 1 + symbol  first code 3, second code 1
 *   C  10        first code 2
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_LEVELS_H
#define GPUFI_CODEC_LEVELS_H

#include "codec/ranked.h"

/* Where the symbol is in values of the dtype; false if such values are not ranked. */
bool gpufi_levels_cut(gpufi_cut *cut, gpuf_dtype dtype, size_t value_nbytes);

/* `count` values of a block of kind 1, from the `nbytes` at `in`; false if its sections do not fill
 * these exactly, or a stored symbol is out of range. */
bool gpufi_levels_unpack(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                         size_t nbytes, uint8_t *values, size_t count);

#endif
