/* Tables for AVX2, which moves bytes by a shuffle alone: it has no instructions that expand and
 * compress by a mask. */
#ifndef GPUFI_CODEC_MASKS_AVX2_H
#define GPUFI_CODEC_MASKS_AVX2_H

#include <stdint.h>

#define ALL_4(ROW, m) ROW(m), ROW((m) + 1), ROW((m) + 2), ROW((m) + 3)
#define ALL_16(ROW, m) ALL_4(ROW, m), ALL_4(ROW, (m) + 4), ALL_4(ROW, (m) + 8), ALL_4(ROW, (m) + 12)
#define ALL_64(ROW, m)                                                                             \
  ALL_16(ROW, m), ALL_16(ROW, (m) + 16), ALL_16(ROW, (m) + 32), ALL_16(ROW, (m) + 48)
#define ALL_256(ROW) ALL_64(ROW, 0), ALL_64(ROW, 64), ALL_64(ROW, 128), ALL_64(ROW, 192)

/* For each mask of 8 bits: the index that bit j's value has among those used; 0x80, which is
 * negative and shuffles in a 0, where the bit is 0.
 *
 *   mask 0 1 0 0 1 1 0 0 (bit 0 first)    ranks 80 0 80 80 1 2 80 80 */
#define RANK(m, j) (uint8_t)((m) >> (j) & 1 ? __builtin_popcount((m) & ((1 << (j)) - 1)) : 0x80)
#define RANKS(m)                                                                                   \
  {RANK(m, 0), RANK(m, 1), RANK(m, 2), RANK(m, 3), RANK(m, 4), RANK(m, 5), RANK(m, 6), RANK(m, 7)}

static const uint8_t ranks[256][8] = {ALL_256(RANKS)};

#endif
