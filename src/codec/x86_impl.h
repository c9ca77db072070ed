/* What avx2.c and avx512.c share: loads, and how unpacked values become residuals. Included by both
 * after they turned on their instruction set, so that it is compiled for each. */

GPUFI_INLINE __m128i load_128(const void *p) {
  return _mm_loadu_si128((const __m128i *)p);
}

GPUFI_INLINE __m256i load_256(const void *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

/* --- restoring residuals --- */

/* For each width of group: the mask of a value, and the bit within its first byte that value j
 * starts at. */
#define MASK_32(w) (uint32_t)((UINT64_C(1) << (w)) - 1)
#define ROW_LOW(w) {EACH_8(LOW, w)}

static const uint32_t mask_32[33] = {ROWS_32(MASK_32)};
static const uint32_t low_32[33][8] = {ROWS_32(ROW_LOW)};

/* How a block's packed values p become residuals: z = p + bias; then, if zigzag, down by one bit
 * with all bits flipped where the lowest one was set; then up by the shift:
 *
 *   r = ((z >> zigzag) ^ (0 - (z & zigzag))) << shift
 *
 * With zigzag = 0, which is the plain form, the formula leaves z as it is. */
typedef struct restoring {
  unsigned bias, zigzag, shift; /* bias and zigzag are 0 or 1 */
  __m128i down, up;             /* zigzag and shift, as the shift instructions take them */
} restoring;

GPUFI_INLINE restoring restoring_of(const gpufi_block *block) {
  const unsigned zigzag = block->form & GPUFI_FORM_PLAIN ? 0 : 1;
  return (restoring){block->form & GPUFI_FORM_SPARSE ? 1 : 0, zigzag, block->shift,
                     _mm_cvtsi32_si128((int)zigzag), _mm_cvtsi32_si128((int)block->shift)};
}

/* Lanes are as wide as values, so that the addition wraps as the format wants it. */
#define RESTORE(BITS, SET1)                                                                        \
  GPUFI_INLINE __m256i restore_##BITS(__m256i z, restoring how) {                                  \
    z = _mm256_add_epi##BITS(z, SET1(how.bias));                                                   \
    const __m256i odd = _mm256_and_si256(z, SET1(how.zigzag));                                     \
    const __m256i flips = _mm256_sub_epi##BITS(_mm256_setzero_si256(), odd);                       \
    const __m256i half = _mm256_srl_epi##BITS(z, how.down);                                        \
    return _mm256_sll_epi##BITS(_mm256_xor_si256(half, flips), how.up);                            \
  }
#define SET1_16(x) _mm256_set1_epi16((short)(x))
#define SET1_32(x) _mm256_set1_epi32((int)(x))

RESTORE(16, SET1_16)
RESTORE(32, SET1_32)

/* The table of an instruction set that has a version of everything. */
#define WALKS(kernel, set)                                                                         \
  {gpufi_##kernel##_8_##set, gpufi_##kernel##_16_##set, gpufi_##kernel##_32_##set,                 \
   gpufi_##kernel##_64_##set}
#define CPU_TABLE(set, take_apart_kernels, rebuild_kernels)                                        \
  const gpufi_cpu gpufi_cpu_##set = {                                                              \
      .name = #set,                                                                                \
      .add_words = add_words,                                                                      \
      .read_codes = read_codes,                                                                    \
      .unpack = GPUFI_KERNELS(unpack),                                                             \
      .look_at = GPUFI_KERNELS(look_at),                                                           \
      .pack = GPUFI_KERNELS(pack),                                                                 \
      .pack_groups = GPUFI_KERNELS(pack_groups),                                                   \
      .expand = GPUFI_KERNELS(expand),                                                             \
      .compact = GPUFI_KERNELS(compact),                                                           \
      .from_places_16 = gpufi_from_places_16_##set,                                                \
      .symbols = gpufi_symbols_##set,                                                              \
      .leaves = gpufi_leaves_##set,                                                                \
      .write_walks = gpufi_write_walks_##set,                                                      \
      .read_walks = gpufi_read_walks_##set,                                                        \
      .split = WALKS(split, set),                                                                  \
      .join = WALKS(join, set),                                                                    \
      .take_apart = take_apart_kernels,                                                            \
      .rebuild = rebuild_kernels,                                                                  \
      .split_bits = split_bits,                                                                    \
      .join_bits = join_bits,                                                                      \
      GPUFI_COMPILED_KERNELS,                                                                      \
      .inverse = GPUFI_KERNELS(inverse),                                                           \
      .forward = GPUFI_KERNELS(forward),                                                           \
  }
