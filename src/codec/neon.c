/* The codec's inner loops for 64-bit Arm: prediction, checksum and the unpacking of values of up to
 * 32 bits. Packing, sparse blocks, code tables and values of 64 bits are the plain C. They give the
 * scalar's bytes: everything is integer arithmetic modulo 2^8 to 2^64 on lanes as wide as the
 * values, and sums may be taken in any order. */
#include "codec/bytes.h"
#include "codec/scalar.h"
#include "codec/unpack_tables.h"

#include <arm_neon.h>

typedef uint8x16_t v8;
typedef uint16x8_t v16;
typedef uint32x4_t v32;
typedef uint64x2_t v64;

/* --- running sums --- */

/* The vectors of line_impl.h, their running sums, and their last elements: log2(elements) additions
 * of x to itself moved up by 1, 2, 4 ... elements, or from 2 on in steps of 2 (complex elements),
 * for which the sums of even and of odd elements are separate. No element has two parts of 16 bits.
 */

/* x moved up by `nbytes`, zeros below. */
#define UP(x, nbytes) vextq_u8(vdupq_n_u8(0), x, 16 - (nbytes))

GPUFI_INLINE uint8x16_t prefix_8(uint8x16_t x, unsigned step) {
  if (step == 1) {
    x = vaddq_u8(x, UP(x, 1));
  }
  x = vaddq_u8(x, UP(x, 2));
  x = vaddq_u8(x, UP(x, 4));
  return vaddq_u8(x, UP(x, 8));
}

GPUFI_INLINE uint8x16_t last_8(uint8x16_t x, unsigned step) {
  return step == 1 ? vdupq_laneq_u8(x, 15)
                   : vreinterpretq_u8_u16(vdupq_laneq_u16(vreinterpretq_u16_u8(x), 7));
}

GPUFI_INLINE uint16x8_t up_16(uint16x8_t x, unsigned count) {
  const uint16x8_t zero = vdupq_n_u16(0);
  return count == 1   ? vextq_u16(zero, x, 7)
         : count == 2 ? vextq_u16(zero, x, 6)
                      : vextq_u16(zero, x, 4);
}

GPUFI_INLINE uint16x8_t prefix_16(uint16x8_t x, unsigned step) {
  (void)step;
  x = vaddq_u16(x, up_16(x, 1));
  x = vaddq_u16(x, up_16(x, 2));
  return vaddq_u16(x, up_16(x, 4));
}

GPUFI_INLINE uint16x8_t last_16(uint16x8_t x, unsigned step) {
  (void)step;
  return vdupq_laneq_u16(x, 7);
}

GPUFI_INLINE uint32x4_t prefix_32(uint32x4_t x, unsigned step) {
  const uint32x4_t zero = vdupq_n_u32(0);
  if (step == 1) {
    x = vaddq_u32(x, vextq_u32(zero, x, 3));
  }
  return vaddq_u32(x, vextq_u32(zero, x, 2));
}

GPUFI_INLINE uint32x4_t last_32(uint32x4_t x, unsigned step) {
  return step == 1 ? vdupq_laneq_u32(x, 3)
                   : vreinterpretq_u32_u64(vdupq_laneq_u64(vreinterpretq_u64_u32(x), 1));
}

GPUFI_INLINE uint64x2_t prefix_64(uint64x2_t x, unsigned step) {
  return step == 1 ? vaddq_u64(x, vextq_u64(vdupq_n_u64(0), x, 1)) : x;
}

GPUFI_INLINE uint64x2_t last_64(uint64x2_t x, unsigned step) {
  return step == 1 ? vdupq_laneq_u64(x, 1) : x;
}

#define GPUFI_EACH_WIDTH "codec/line_impl.h"
#include "codec/each_width.h"

#define NUMBER_OF_INT64(x) (double)(x)
#define GPUFI_EACH_WIDTH "codec/number_impl.h"
#include "codec/each_width.h"
#define GPUFI_EACH_WIDTH "codec/sample_impl.h"
#include "codec/each_width.h"

/* --- checksum --- */

static void add_words(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]) {
  uint64x2_t plain = vdupq_n_u64(0), mixed = plain;
  uint64x2_t key = {(begin + 1) * GPUFI_WORD_KEY, (begin + 2) * GPUFI_WORD_KEY};
  const uint64x2_t next = vdupq_n_u64(2 * GPUFI_WORD_KEY);
  size_t i = begin;
  for (; i + 2 <= end; i += 2) {
    const uint64x2_t words = vreinterpretq_u64_u8(vld1q_u8(encoded + 8 * i));
    const uint64x2_t x = veorq_u64(words, key);
    plain = vaddq_u64(plain, words);
    mixed = vmlal_u32(mixed, vmovn_u64(x), vshrn_n_u64(x, 32));
    key = vaddq_u64(key, next);
  }
  sums[0] += vaddvq_u64(plain);
  sums[1] += vaddvq_u64(mixed);
  gpufi_add_words_scalar(encoded, i, end, sums);
}

/* --- unpacking --- */

/* 8 values of 32 bits at width w, in halves of 4. A table lookup gives each lane the four bytes
 * from the one on that its value starts in, and a shift by lane moves the value's first bit down to
 * bit 0. Lookups take 16 bytes: values 0 to 3 are in the group's first 16 (4w <= 128 bits), and
 * values 4 to 7 in the 16 that start at byte w / 2, where value 4 starts, and which reach beyond
 * the group's w bytes.
 *
 * A value may reach into a fifth byte, which is looked up on its own and moved up to where it
 * belongs. Where the table names a byte past the 16th the lookup gives 0, and no bit of the value
 * is there. Shifts by a negative number go down, and shifts by 32, the fifth byte's of a value that
 * starts at bit 0, give 0. */
#define BASE(w, j) ((j) < 4 ? 0 : (w) >> 1)
#define BYTE(w, j, k) (uint8_t)((BIT(w, j) >> 3) - BASE(w, j) + (k))
#define BYTES(w, j) BYTE(w, j, 0), BYTE(w, j, 1), BYTE(w, j, 2), BYTE(w, j, 3)
#define ROW_BYTES(w) {EACH_8(BYTES, w)}
#define DOWN(w, j) -LOW(w, j)
#define ROW_DOWN(w) {EACH_8(DOWN, w)}
#define MASK(w) (uint32_t)((UINT64_C(1) << (w)) - 1)

static const uint8_t bytes_32[33][32] = {ROWS_32(ROW_BYTES)};
static const int32_t down_32[33][8] = {ROWS_32(ROW_DOWN)};
static const uint32_t mask_32[33] = {ROWS_32(MASK)};

/* How a block's packed values p become residuals, as in scalar_impl.h: z = p + bias, then, if
 * zigzag, down by one bit with all bits flipped where the lowest one was set, then up by the shift.
 * Lanes are as wide as values, so that the addition wraps as the format wants it. */
typedef struct restoring {
  uint32_t bias, zigzag; /* 0 or 1 */
  int32_t shift;
} restoring;

GPUFI_INLINE restoring restoring_of(const gpufi_block *block) {
  return (restoring){block->form & GPUFI_FORM_SPARSE ? 1 : 0,
                     block->form & GPUFI_FORM_PLAIN ? 0 : 1, (int32_t)block->shift};
}

/* Values 4h .. 4h + 3 of a group. */
GPUFI_INLINE uint32x4_t spread(const uint8_t *in, unsigned width, unsigned h) {
  const uint8x16_t x = vld1q_u8(in + (h != 0 ? width >> 1 : 0));
  const uint8x16_t bytes = vld1q_u8(bytes_32[width] + (size_t)16 * h);
  const int32x4_t down = vld1q_s32(down_32[width] + (size_t)4 * h);
  const uint32x4_t low = vreinterpretq_u32_u8(vqtbl1q_u8(x, bytes));
  const uint32x4_t high = vreinterpretq_u32_u8(vqtbl1q_u8(x, vaddq_u8(bytes, vdupq_n_u8(4))));
  const uint32x4_t z =
      vorrq_u32(vshlq_u32(low, down), vshlq_u32(high, vaddq_s32(down, vdupq_n_s32(32))));
  return vandq_u32(z, vdupq_n_u32(mask_32[width]));
}

GPUFI_INLINE uint32x4_t restore_32(uint32x4_t z, restoring how) {
  z = vaddq_u32(z, vdupq_n_u32(how.bias));
  const uint32x4_t flips = vsubq_u32(vdupq_n_u32(0), vandq_u32(z, vdupq_n_u32(how.zigzag)));
  const uint32x4_t half = vshlq_u32(z, vdupq_n_s32(-(int32_t)how.zigzag));
  return vshlq_u32(veorq_u32(half, flips), vdupq_n_s32(how.shift));
}

static void unpack_32(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    for (unsigned h = 0; h < 2; h++) {
      const uint32x4_t r = restore_32(spread(in, widths[k], h), how);
      vst1q_u8(residuals + 32 * k + (size_t)16 * h, vreinterpretq_u8_u32(r));
    }
    in += widths[k];
  }
}

/* Narrower values are unpacked in lanes of 32 bits, which their widths do not fill, and narrowed.
 */
static void unpack_16(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    const uint16x4_t lower = vmovn_u32(spread(in, widths[k], 0));
    const uint16x8_t all = vmovn_high_u32(lower, spread(in, widths[k], 1));
    const uint16x8_t z = vaddq_u16(all, vdupq_n_u16((uint16_t)how.bias));
    const uint16x8_t odd = vandq_u16(z, vdupq_n_u16((uint16_t)how.zigzag));
    const uint16x8_t half = vshlq_u16(z, vdupq_n_s16((int16_t)-(int32_t)how.zigzag));
    const uint16x8_t r = veorq_u16(half, vsubq_u16(vdupq_n_u16(0), odd));
    vst1q_u8(residuals + 16 * k,
             vreinterpretq_u8_u16(vshlq_u16(r, vdupq_n_s16((int16_t)how.shift))));
    in += widths[k];
  }
}

static void unpack_8(const uint8_t *in, const uint8_t *widths, size_t groups,
                     const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    const uint16x4_t lower = vmovn_u32(spread(in, widths[k], 0));
    const uint16x8_t all = vmovn_high_u32(lower, spread(in, widths[k], 1));
    const uint8x8_t z = vadd_u8(vmovn_u16(all), vdup_n_u8((uint8_t)how.bias));
    const uint8x8_t odd = vand_u8(z, vdup_n_u8((uint8_t)how.zigzag));
    const uint8x8_t half = vshl_u8(z, vdup_n_s8((int8_t)-(int32_t)how.zigzag));
    const uint8x8_t r = veor_u8(half, vsub_u8(vdup_n_u8(0), odd));
    vst1_u8(residuals + 8 * k, vshl_u8(r, vdup_n_s8((int8_t)how.shift)));
    in += widths[k];
  }
}

#define GPUFI_EACH_WIDTH "codec/planes_impl.h"
#include "codec/each_width.h"

const gpufi_cpu gpufi_cpu_neon = {
    .name = "neon",
    .add_words = add_words,
    .unpack = {unpack_8, unpack_16, unpack_32, gpufi_unpack_64_scalar},
    GPUFI_PLAIN_KERNELS,
    GPUFI_COMPILED_KERNELS,
    .inverse = GPUFI_KERNELS(inverse),
    .forward = GPUFI_KERNELS(forward),
};
