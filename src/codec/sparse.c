/* Masks are stored in three levels, of which the upper two say which bytes of the one below are not
 * 0, so that only these are stored. A full block of 1,024 values of which numbers 3 and 520 are not
 * 0:
 *
 *   lowest     128 bytes, a bit a value     byte 0 is 08, byte 65 is 01, the others 0 (in hex)
 *   middle      16 bytes, a bit a byte      byte 0 is 01, byte 8 is 02, the others 0
 *   top          2 bytes, a bit a byte      01 01
 *   stored     | 01 01 | 01 02 | 08 01 |    top, middle, lowest: 6 bytes instead of 128
 */
#include "codec/sparse.h"
#include "base/error.h"
#include "codec/bytes.h"
#include "codec/widths.h"

#include <assert.h>

#define MASK_NBYTES_MAX (2 + GPUFI_MASK_MIDDLE_NBYTES + GPUFI_BLOCK_GROUPS)

/* Bit j: byte j of x is not 0. The sum sets the top bit of each byte whose lower ones are not all
 * 0; the product brings the eight top bits together. */
static unsigned used_of_word(uint64_t x) {
  const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
  const uint64_t tops = (((x & low) + low) | x) & ~low;
  return (unsigned)((tops >> 7) * UINT64_C(0x0102040810204080) >> 56);
}

/* Without the instruction, which not all CPUs have, as sums of pairs, nibbles and bytes. */
static unsigned bits_of_word(uint64_t x) {
  x -= x >> 1 & UINT64_C(0x5555555555555555);
  x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
  x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
  return (unsigned)(x * UINT64_C(0x0101010101010101) >> 56);
}

static size_t bit_count(const uint8_t *bytes, size_t nbytes) {
  size_t total = 0, i = 0;
  for (; i + 8 <= nbytes; i += 8) {
    total += bits_of_word(gpufi_load_u64(bytes + i));
  }
  return i < nbytes ? total + bits_of_word(gpufi_load_value(bytes + i, nbytes - i)) : total;
}

/* Each level is what is not 0 of the one below it, as a mask, so the kernel that makes masks of
 * values of one byte makes those of levels, and brings the bytes together that are stored. */
size_t gpufi_mask_write(gpufi_compact_fn *compact, const gpufi_mask *mask, size_t count,
                        uint8_t *out) {
  const size_t groups = (count + 7) / 8, sets = (groups + 7) / 8, top_nbytes = (sets + 7) / 8;
  uint8_t lowest[GPUFI_BLOCK_GROUPS + GPUFI_COMPACT_WRITE_NBYTES];
  gpufi_mask middle, top;
  compact(mask->bits, groups, &middle, lowest);
  compact(middle.bits, sets, &top, out + top_nbytes);
  memcpy(out, top.bits, top_nbytes);
  memcpy(out + top_nbytes + top.used_count, lowest, middle.used_count);
  return top_nbytes + top.used_count + middle.used_count;
}

/* The bytes of one level, `count` bits, from those that the level above names: false if they run
 * past the end, one of them is 0, or a bit from `count` on is set, the last two of which make the
 * encoding of a mask unique. *in is readable for GPUFI_EXPAND_READ_NBYTES beyond the end. */
static bool read_level(gpufi_expand_fn *expand, const uint8_t **in, const uint8_t *end,
                       const uint8_t *upper, size_t count, uint8_t *level) {
  const size_t nbytes = (count + 7) / 8, stored = bit_count(upper, (nbytes + 7) / 8);
  assert(nbytes != 0);
  if (stored > (size_t)(end - *in)) {
    return false;
  }
  expand(upper, *in, nbytes, level);
  *in += stored;
  return gpufi_count_byte(level, nbytes, 0) == nbytes - stored &&
         (count % 8 == 0 || level[nbytes - 1] >> (count % 8) == 0);
}

/* `groups` are the bytes of the lowest level and `sets` those of the middle one. It is read from a
 * copy, with zeros after it. */
gpuf_status gpufi_mask_read(gpufi_expand_fn *expand, const uint8_t *in, size_t in_nbytes, size_t at,
                            size_t count, gpufi_mask *mask, gpuf_error *err) {
  const size_t groups = (count + 7) / 8, sets = (groups + 7) / 8, top_nbytes = (sets + 7) / 8;
  uint8_t middle[GPUFI_MASK_MIDDLE_NBYTES] = {0}, copy[MASK_NBYTES_MAX + GPUFI_EXPAND_READ_NBYTES];
  const size_t nbytes = in_nbytes < MASK_NBYTES_MAX ? in_nbytes : MASK_NBYTES_MAX;
  const uint8_t *next = copy + top_nbytes;
  memcpy(copy, in, nbytes);
  memset(copy + nbytes, 0, GPUFI_EXPAND_READ_NBYTES);
  const bool good = nbytes >= top_nbytes &&
                    (sets % 8 == 0 || copy[top_nbytes - 1] >> (sets % 8) == 0) &&
                    read_level(expand, &next, copy + nbytes, copy, groups, middle) &&
                    read_level(expand, &next, copy + nbytes, middle, count, mask->bits) &&
                    next != copy + top_nbytes;
  if (!good) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk at byte %zu: the mask of a sparse block is cut off or has a "
                      "bit too many, a byte that is 0, or nothing in it",
                      at);
  }
  mask->nbytes = (size_t)(next - copy);
  mask->used_count = bit_count(mask->bits, groups);
  return GPUF_OK;
}

void gpufi_mask_of(size_t value_nbytes, const uint8_t *values, size_t count, gpufi_mask *mask) {
  size_t done = 0; /* values, eight at a time where these are one word */
  for (; value_nbytes == 1 && count - done >= 8; done += 8) {
    mask->bits[done / 8] = (uint8_t)used_of_word(gpufi_load_u64(values + done));
  }
  GPUFI_BY_NBYTES(value_nbytes, {
    for (size_t i = done; i < count; i += 8) {
      const size_t end = count - i < 8 ? count - i : 8;
      unsigned bits = 0;
      for (size_t j = 0; j < end; j++) {
        T x;
        memcpy(&x, values + (i + j) * sizeof(T), sizeof(T));
        bits |= (unsigned)(x != 0) << j;
      }
      mask->bits[i / 8] = (uint8_t)bits;
    }
  });
  mask->used_count = bit_count(mask->bits, (count + 7) / 8);
}

void gpufi_mask_compact(size_t value_nbytes, const uint8_t *values, size_t count, uint8_t *used) {
  GPUFI_BY_NBYTES(value_nbytes, {
    for (size_t i = 0; i < count; i++) {
      T x;
      memcpy(&x, values + i * sizeof(T), sizeof(T));
      memcpy(used, &x, sizeof(T));
      used += x != 0 ? sizeof(T) : 0;
    }
  });
}
