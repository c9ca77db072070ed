/* The codes of a block's groups: choosing and writing them. Each file that packs includes this, so
 * that the loops are compiled for its instruction set.
 *
 * The widest group of a block has width W. A group's code, of 3 or 4 bits, says how much narrower
 * it is: d for width W - d. The greatest code means width 0. So 3-bit codes reach widths W - 6 to
 * W, and 4-bit codes W - 14 to W; a narrower group, unless it is all 0, is packed at the least
 * width within reach. Where all groups are about as wide, packing them all at W without codes is
 * smaller. */
#ifndef GPUFI_CODEC_CODES_IMPL_H
#define GPUFI_CODEC_CODES_IMPL_H

#include "codec/format.h"

#include <string.h>

static inline size_t group_count(size_t count) {
  return (count + GPUFI_GROUP_VALUES - 1) / GPUFI_GROUP_VALUES;
}

static inline uint32_t code_bits(uint32_t kind) {
  return kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
}

static inline size_t codes_nbytes(uint32_t kind, size_t groups) {
  return (groups * code_bits(kind) + 7) / 8;
}

/* The least width but 0 that a code reaches. */
static inline uint32_t narrowest_width(uint32_t widest, uint32_t kind) {
  const uint32_t reach = (1u << code_bits(kind)) - 2;
  return widest > reach ? widest - reach : 1;
}

/* Bytes of all codes and groups. A block has at most 8 KiB, so the sum is one of 16 bits, of which
 * a vector holds many. */
static inline size_t packed_nbytes(const uint8_t *widths, size_t groups, uint32_t widest,
                                   uint32_t kind) {
  const uint16_t narrowest = (uint16_t)narrowest_width(widest, kind);
  uint16_t nbytes = (uint16_t)codes_nbytes(kind, groups);
  for (size_t k = 0; k < groups; k++) {
    const uint16_t width = widths[k], packed = width > narrowest ? width : narrowest;
    nbytes = (uint16_t)(nbytes + (width == 0 ? 0 : packed));
  }
  return nbytes;
}

/* The widest of the groups, and the bytes of all at their own widths. */
static inline uint32_t widest_group(const uint8_t *widths, size_t groups, uint32_t *exact) {
  uint8_t widest = 0;
  uint16_t total = 0;
  for (size_t k = 0; k < groups; k++) {
    widest = widths[k] > widest ? widths[k] : widest;
    total = (uint16_t)(total + widths[k]);
  }
  *exact = total;
  return widest;
}

/* The best V for 4-bit codes in two ranges, of which those of a block have `codes` bytes with V:
 * the least size, and among equals the least V. Groups up to V - 14 wide, but for those of 0, are
 * packed at V - 13, and those above V at the widest. So only widths that occur need to be tried: a
 * V between them has the same groups above it as the next one below, and reaches less far down.
 * Returns the size; `widest` is above 1. */
static inline size_t choose_second(const uint8_t *widths, size_t groups, uint32_t widest,
                                   size_t codes, uint32_t *second) {
  /* Counted in four parts: an addition to a number that was just stored has to wait for it. */
  uint8_t parts[4][65] = {0};
  uint32_t count[65] = {0},
           bits[65] = {0}; /* groups up to each width but 0, and the sum of theirs */
  uint32_t best = UINT32_MAX;
  size_t k = 0;
  for (; k + 4 <= groups; k += 4) {
    parts[0][widths[k]]++;
    parts[1][widths[k + 1]]++;
    parts[2][widths[k + 2]]++;
    parts[3][widths[k + 3]]++;
  }
  for (; k < groups; k++) {
    parts[0][widths[k]]++;
  }
  for (uint32_t w = 1; w <= widest; w++) {
    const uint32_t here = (uint32_t)parts[0][w] + parts[1][w] + parts[2][w] + parts[3][w];
    bits[w] = bits[w - 1] + here * w;
    count[w] = count[w - 1] + here;
  }
  for (uint32_t v = 1; v < widest; v++) {
    if (count[v] != count[v - 1]) {
      const uint32_t least = narrowest_width(v + 1, GPUFI_BLOCK_CODE4);
      const uint32_t lower = count[least - 1] * least + bits[v] - bits[least - 1];
      const uint32_t total = lower + (count[widest] - count[v]) * widest;
      *second = total < best ? v : *second;
      best = total < best ? total : best;
    }
  }
  return best == UINT32_MAX ? SIZE_MAX : best + codes;
}

/* The least size wins, among equals the earlier of 3-bit codes, 4-bit codes, none, and 4-bit codes
 * in two ranges; raw if it is no larger. Sets kind, width, second and nbytes of the block, and
 * `widths` to the widths it is packed at. */
static inline void choose_codes(uint8_t *widths, size_t groups, size_t raw_nbytes,
                                gpufi_block *block) {
  uint32_t narrowest, exact;
  const uint32_t widest = widest_group(widths, groups, &exact);
  block->width = widest;
  if (widest == 0) {
    const bool sparse = (block->form & GPUFI_FORM_SPARSE) != 0;
    *block = (gpufi_block){.shift = sparse ? block->shift : 0,
                           .form = sparse ? block->form : 0,
                           .kind = GPUFI_BLOCK_ZERO};
    return;
  }
  const size_t with3 = packed_nbytes(widths, groups, widest, GPUFI_BLOCK_CODE3);
  const size_t with4 = packed_nbytes(widths, groups, widest, GPUFI_BLOCK_CODE4);
  const size_t range_codes = codes_nbytes(GPUFI_BLOCK_CODE4, groups) + 1;
  size_t nbytes = with4 < with3 ? with4 : with3;
  block->kind = with4 < with3 ? GPUFI_BLOCK_CODE4 : GPUFI_BLOCK_CODE3;
  block->second = widest - 1;
  narrowest = narrowest_width(widest, block->kind);
  if (groups * widest < nbytes) {
    block->kind = GPUFI_BLOCK_CODE3;
    block->form |= GPUFI_FORM_EVEN;
    narrowest = widest;
    nbytes = groups * widest;
  }
  if (range_codes + exact < nbytes) { /* it may be smaller */
    uint32_t second = 0;
    const size_t with_ranges = choose_second(widths, groups, widest, range_codes, &second);
    if (with_ranges < nbytes) {
      block->kind = GPUFI_BLOCK_CODE4;
      block->form |= GPUFI_FORM_RANGES;
      block->second = second;
      narrowest = narrowest_width(second + 1, GPUFI_BLOCK_CODE4);
      nbytes = with_ranges;
    }
  }
  if (nbytes >= raw_nbytes) {
    *block = (gpufi_block){.nbytes = (uint32_t)raw_nbytes,
                           .form = block->form & GPUFI_FORM_SPARSE,
                           .kind = GPUFI_BLOCK_RAW};
    return;
  }
  block->nbytes = (uint32_t)nbytes;
  if (block->kind == GPUFI_BLOCK_CODE3 && (block->form & GPUFI_FORM_EVEN)) {
    memset(widths, (int)widest, groups);
    return;
  }
  const uint8_t top = (uint8_t)widest, least = (uint8_t)narrowest, second = (uint8_t)block->second;
  for (size_t k = 0; k < groups; k++) {
    const uint8_t width = widths[k], lower = width > least ? width : least;
    widths[k] = width == 0 ? 0 : width > second ? top : lower;
  }
}

/* The lowest `bits` (3 or 4) bits of eight bytes, side by side. */
static inline uint64_t codes_together(uint64_t bytes, const uint32_t bits) {
  const uint64_t pairs = (bytes | bytes >> (8 - bits)) &
                         (bits == 3 ? UINT64_C(0x003f003f003f003f) : UINT64_C(0x00ff00ff00ff00ff));
  const uint64_t fours = (pairs | pairs >> (16 - 2 * bits)) &
                         (bits == 3 ? UINT64_C(0x00000fff00000fff) : UINT64_C(0x0000ffff0000ffff));
  return fours | fours >> (32 - 4 * bits);
}

/* Write the codes, lowest bits first, with zero bits up to a whole byte, after the byte for V if
 * there are two ranges; none if even. Returns the bytes written. */
static inline size_t write_codes(const uint8_t *widths, size_t groups, const gpufi_block *block,
                                 uint8_t *out) {
  const uint32_t bits = code_bits(block->kind);
  const bool ranges = block->kind == GPUFI_BLOCK_CODE4 && (block->form & GPUFI_FORM_RANGES);
  const size_t nbytes = codes_nbytes(block->kind, groups);
  const uint8_t zero = (uint8_t)((1u << bits) - 1), from = (uint8_t)(block->second + 1);
  const uint8_t widest = (uint8_t)block->width;
  uint8_t codes[GPUFI_BLOCK_GROUPS + 8], bytes[GPUFI_BLOCK_GROUPS / 2 + 8];
  if (block->kind == GPUFI_BLOCK_CODE3 && (block->form & GPUFI_FORM_EVEN)) {
    return 0;
  }
  if (ranges) {
    *out++ = (uint8_t)block->second;
  }
  for (size_t k = 0; k < groups; k++) {
    const uint8_t width = widths[k], lower = (uint8_t)(from - width);
    codes[k] = width == widest ? 0 : width == 0 ? zero : lower;
  }
  memset(codes + groups, 0, 8);
  for (size_t k = 0; k < groups; k += 8) {
    uint64_t eight;
    memcpy(&eight, codes + k, sizeof(eight));
    eight = bits == 3 ? codes_together(eight, 3) : codes_together(eight, 4);
    memcpy(bytes + k / 8 * bits, &eight, sizeof(eight));
  }
  memcpy(out, bytes, nbytes);
  return nbytes + ranges;
}

#endif
