/* Unpacking groups of values of 16 and 32 bits, for avx2.c and avx512.c, which define before
 *   __m256i spread_16(const uint8_t *in, unsigned width, unsigned next)
 *     two groups of `width` and `next` bytes one after the other, as 16 packed values
 *   __m256i spread_32(const uint8_t *in, unsigned width, bool narrow)
 *     a group of `width` bytes, as 8 packed values; narrow: the width is at most NARROW_32
 *
 * Every group is handled the same way whatever its width, 0 included (its values are masked to 0):
 * there is no branch, and the only thing that one group needs from the one before is the address,
 * so that the CPU works on several at a time. */

/* Groups come in pairs, for a register holds the residuals of two. After an odd last one comes one
 * of width 0: its load begins at most 16 bytes after the last group does, within
 * GPUFI_GROUP_READ_NBYTES, and its residuals are not stored. */
static void unpack_16(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k += 2) {
    const unsigned width = widths[k], next = k + 1 < groups ? widths[k + 1] : 0;
    const __m256i r = restore_16(spread_16(in, width, next), how);
    if (k + 1 < groups) {
      _mm256_storeu_si256((__m256i *)(residuals + 16 * k), r);
    } else {
      _mm_storeu_si128((__m128i *)(residuals + 16 * k), _mm256_castsi256_si128(r));
    }
    in += width + next;
  }
}

GPUFI_INLINE void unpack_32_groups(const uint8_t *in, const uint8_t *widths, size_t groups,
                                   bool narrow, const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    const __m256i r = restore_32(spread_32(in, widths[k], narrow), how);
    _mm256_storeu_si256((__m256i *)(residuals + 32 * k), r);
    in += widths[k];
  }
}

static void unpack_32(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  if (block->width <= NARROW_32) {
    unpack_32_groups(in, widths, groups, true, block, residuals);
  } else {
    unpack_32_groups(in, widths, groups, false, block, residuals);
  }
}
