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

/* Bit j: byte j of x is not 0. The sum sets the top bit of each byte whose lower ones are not all
 * 0; the product brings the eight top bits together. */
static unsigned used_of_word(uint64_t x) {
  const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
  const uint64_t tops = (((x & low) + low) | x) & ~low;
  return (unsigned)((tops >> 7) * UINT64_C(0x0102040810204080) >> 56);
}

static size_t bit_count(const uint8_t *bytes, size_t nbytes) {
  size_t total = 0;
  for (size_t i = 0; i < nbytes; i += 8) {
    const size_t left = nbytes - i;
    total += (size_t)__builtin_popcountll(gpufi_load_value(bytes + i, left < 8 ? left : 8));
  }
  return total;
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

/* A byte of 0 borrows from the one above it; where none is 0, a byte whose top bit is set after the
 * subtraction had it set before. */
static bool has_zero_byte(uint64_t x) {
  return ((x - UINT64_C(0x0101010101010101)) & ~x & UINT64_C(0x8080808080808080)) != 0;
}

/* The bytes of one level, `count` bits, from those that the level above names. False if they run
 * past the end, one of them is 0, or a bit from `count` on is set: the last two are what makes the
 * encoding of a mask unique. Where 8 bytes follow each other they are read at once. */
static bool read_level(const uint8_t **in, const uint8_t *end, const uint8_t *upper, size_t count,
                       uint8_t *level) {
  const size_t nbytes = (count + 7) / 8;
  size_t i = 0;
  assert(nbytes != 0);
  while (i < nbytes) {
    const bool whole = i % 8 == 0 && i + 8 <= nbytes;
    if (whole && upper[i / 8] == 0xff && end - *in >= 8) {
      memcpy(level + i, *in, 8);
      if (has_zero_byte(gpufi_load_u64(*in))) {
        return false;
      }
      *in += 8;
      i += 8;
      continue;
    }
    level[i] = 0;
    if (upper[i / 8] >> (i % 8) & 1) {
      if (*in == end || **in == 0) {
        return false;
      }
      level[i] = *(*in)++;
    }
    i++;
  }
  return count % 8 == 0 || level[nbytes - 1] >> (count % 8) == 0;
}

/* `groups` are the bytes of the lowest level and `sets` those of the middle one. */
gpuf_status gpufi_mask_read(const uint8_t *in, size_t in_nbytes, size_t at, size_t count,
                            gpufi_mask *mask, gpuf_error *err) {
  const size_t groups = (count + 7) / 8, sets = (groups + 7) / 8, top_nbytes = (sets + 7) / 8;
  const uint8_t *const begin = in, *const end = in + in_nbytes;
  uint8_t middle[GPUFI_MASK_MIDDLE_NBYTES] = {0};
  bool good = in_nbytes >= top_nbytes && (sets % 8 == 0 || in[top_nbytes - 1] >> (sets % 8) == 0);
  if (good) {
    in += top_nbytes;
    good = read_level(&in, end, begin, groups, middle) &&
           read_level(&in, end, middle, count, mask->bits) && (size_t)(in - begin) > top_nbytes;
  }
  if (!good) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk at byte %zu: the mask of a sparse block is cut off or has a "
                      "bit too many, a byte that is 0, or nothing in it",
                      at);
  }
  mask->nbytes = (size_t)(in - begin);
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
