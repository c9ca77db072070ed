/* Tables of bytes in registers, for walks_avx512.c and ranked_avx512.c. Thread-safety: re-entrant.
 */
#ifndef GPUFI_CODEC_TABLE_AVX512_H
#define GPUFI_CODEC_TABLE_AVX512_H

#include "codec/widths.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/target_avx512.h"

/* The lowest `count` bits, or all 64. */
GPUFI_INLINE uint64_t first_bits(size_t count) {
  return _bzhi_u64(UINT64_MAX, count < 64 ? (unsigned)count : 64);
}

/* A table of 64, 128 or 256 bytes, in the registers that a permutation looks up 64 of them in. */
typedef struct table256 {
  __m512i quarters[4];
} table256;

GPUFI_INLINE table256 load_table(const uint8_t *bytes, unsigned quarters) {
  table256 t;
  for (unsigned k = 0; k < quarters; k++) {
    t.quarters[k] = _mm512_loadu_si512(bytes + (size_t)64 * k);
  }
  return t;
}

GPUFI_INLINE __m512i look_up(const table256 *t, __m512i index, unsigned quarters) {
  if (quarters == 1) {
    return _mm512_permutexvar_epi8(index, t->quarters[0]);
  }
  const __m512i low = _mm512_permutex2var_epi8(t->quarters[0], index, t->quarters[1]);
  if (quarters == 2) {
    return low;
  }
  const __m512i high = _mm512_permutex2var_epi8(t->quarters[2], index, t->quarters[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

#include "codec/target_end.h"

#endif
