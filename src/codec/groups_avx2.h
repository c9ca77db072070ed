/* The widths of groups with AVX2, and packing those of narrow values; for pack_x86_impl.h. */

/* A group is as wide as the OR of its values. */
GPUFI_INLINE uint8_t bit_width(uint64_t x) {
  return (uint8_t)(x != 0 ? 64 - __builtin_clzll(x) : 0);
}

GPUFI_INLINE uint64_t or_of_64(__m128i x) {
  return (uint64_t)_mm_cvtsi128_si64(_mm_or_si128(x, _mm_unpackhi_epi64(x, x)));
}

GPUFI_INLINE uint64_t or_of_256(__m256i x) {
  return or_of_64(_mm_or_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

GPUFI_INLINE uint64_t or_of_group_8(const uint8_t *z) {
  uint64_t x = gpufi_load_u64(z);
  x |= x >> 32;
  x |= x >> 16;
  return (x | x >> 8) & 0xff;
}

GPUFI_INLINE uint64_t or_of_group_16(const uint8_t *z) {
  uint64_t x = or_of_64(load_128(z));
  x |= x >> 32;
  return (x | x >> 16) & 0xffff;
}

GPUFI_INLINE uint64_t or_of_group_32(const uint8_t *z) {
  const uint64_t x = or_of_256(load_256(z));
  return (x | x >> 32) & 0xffffffff;
}

GPUFI_INLINE uint64_t or_of_group_64(const uint8_t *z) {
  return or_of_256(_mm256_or_si256(load_256(z), load_256(z + 32)));
}

#define GROUP_WIDTHS(BITS)                                                                         \
  static void group_widths_##BITS(const uint##BITS##_t *z, size_t groups, uint8_t *widths) {       \
    for (size_t k = 0; k < groups; k++) {                                                          \
      widths[k] = bit_width(or_of_group_##BITS((const uint8_t *)(z + 8 * k)));                     \
    }                                                                                              \
  }

GROUP_WIDTHS(8)
GROUP_WIDTHS(16)
GROUP_WIDTHS(32)
GROUP_WIDTHS(64)

GPUFI_INLINE uint8_t *pack_group_8(const uint8_t *z, unsigned width, uint8_t *out) {
  return pack_values(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)z)), width, out);
}

GPUFI_INLINE uint8_t *pack_group_16(const uint8_t *z, unsigned width, uint8_t *out) {
  return pack_values(_mm256_cvtepu16_epi32(load_128(z)), width, out);
}
