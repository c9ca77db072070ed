/* The widths of groups with AVX-512, and packing those of narrow values; for pack_x86_impl.h.
 *
 * Widths are found for eight groups at a time. A group of values of N bytes is N words of 64 bits
 * side by side, so neighbours are ORed until one word is left of each group, and then the values in
 * the word. What is read and written beyond the last group, up to a multiple of eight, is not used.
 */

/* Each word of 16, in two registers, ORed with its neighbour. */
GPUFI_INLINE __m512i or_of_pairs(__m512i a, __m512i b) {
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  return _mm512_or_si512(_mm512_permutex2var_epi64(a, even, b),
                         _mm512_permutex2var_epi64(a, odd, b));
}

GPUFI_INLINE __m512i or_of_2(const uint8_t *z) {
  return or_of_pairs(_mm512_loadu_si512(z), _mm512_loadu_si512(z + 64));
}

GPUFI_INLINE __m512i or_of_4(const uint8_t *z) {
  return or_of_pairs(or_of_2(z), or_of_2(z + 128));
}

GPUFI_INLINE __m512i or_of_8(const uint8_t *z) {
  return or_of_pairs(or_of_4(z), or_of_4(z + 256));
}

/* The bits of eight words, as bytes, of which each is the OR of values of `bits` bits. */
GPUFI_INLINE void store_widths(__m512i words, const unsigned bits, uint8_t *widths) {
  for (unsigned by = 32; by >= bits; by /= 2) {
    words = _mm512_or_si512(words, _mm512_srli_epi64(words, by));
  }
  words = _mm512_and_si512(words, _mm512_set1_epi64((int64_t)(UINT64_MAX >> (64 - bits))));
  words = _mm512_sub_epi64(_mm512_set1_epi64(64), _mm512_lzcnt_epi64(words));
  _mm_storel_epi64((__m128i *)widths, _mm512_cvtepi64_epi8(words));
}

#define GROUP_WIDTHS(BITS, OR)                                                                     \
  static void group_widths_##BITS(const uint##BITS##_t *z, size_t groups, uint8_t *widths) {       \
    for (size_t k = 0; k < groups; k += 8) {                                                       \
      store_widths(OR((const uint8_t *)(z + 8 * k)), BITS, widths + k);                            \
    }                                                                                              \
  }

GROUP_WIDTHS(8, _mm512_loadu_si512)
GROUP_WIDTHS(16, or_of_2)
GROUP_WIDTHS(32, or_of_4)
GROUP_WIDTHS(64, or_of_8)

/* A bit extract, the inverse of the deposit that unpacks (avx512.c). */
GPUFI_INLINE uint8_t *pack_group_8(const uint8_t *z, unsigned width, uint8_t *out) {
  const uint64_t bytes = _pext_u64(gpufi_load_u64(z), mask_8[width]);
  memcpy(out, &bytes, sizeof(bytes));
  return out + width;
}

/* Four values a word, and the words' bits one after the other: in the second eight bytes only those
 * that do not fit the first. */
GPUFI_INLINE uint8_t *pack_group_16(const uint8_t *z, unsigned width, uint8_t *out) {
  const uint64_t mask = UINT64_C(0x0001000100010001) * mask_16[width];
  const uint64_t first = _pext_u64(gpufi_load_u64(z), mask);
  const uint64_t second = _pext_u64(gpufi_load_u64(z + 8), mask);
  const unsigned fill = 4 * width;
  const uint64_t low = width == 16 ? first : first | second << fill;
  const uint64_t high = width == 16 ? second : second >> 1 >> (63 - fill);
  memcpy(out, &low, sizeof(low));
  memcpy(out + 8, &high, sizeof(high));
  return out + width;
}
