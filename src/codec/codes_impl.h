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

static inline size_t group_count(size_t count) {
  return (count + GPUFI_GROUP_VALUES - 1) / GPUFI_GROUP_VALUES;
}

static inline uint32_t code_bits(uint32_t kind) {
  return kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
}

static inline size_t codes_nbytes(uint32_t kind, size_t groups) {
  return (groups * code_bits(kind) + 7) / 8;
}

/* The width that a group of `width` bits is packed at, given the narrowest but zero. */
static inline uint32_t packed_width(uint32_t width, uint32_t narrowest) {
  return width == 0 || width > narrowest ? width : narrowest;
}

/* The least width but 0 that a code reaches. */
static inline uint32_t narrowest_width(uint32_t widest, uint32_t kind) {
  const uint32_t reach = (1u << code_bits(kind)) - 2;
  return widest > reach ? widest - reach : 1;
}

/* Bytes of all codes and groups. */
static inline size_t packed_nbytes(const uint8_t *widths, size_t groups, uint32_t widest,
                                   uint32_t kind) {
  const uint32_t narrowest = narrowest_width(widest, kind);
  uint32_t nbytes = (uint32_t)codes_nbytes(kind, groups);
  for (size_t k = 0; k < groups; k++) {
    nbytes += packed_width(widths[k], narrowest);
  }
  return nbytes;
}

/* The least size wins, among equals the earlier of 3-bit codes, 4-bit codes and none; raw if it is
 * no larger. Sets kind, width and nbytes of the block, and `widths` to the widths it is packed
 * at. */
static inline void choose_codes(uint8_t *widths, size_t groups, size_t raw_nbytes,
                                gpufi_block *block) {
  uint32_t widest = 0, narrowest;
  for (size_t k = 0; k < groups; k++) {
    widest = widths[k] > widest ? widths[k] : widest;
  }
  block->width = widest;
  if (widest == 0) {
    const bool sparse = (block->form & GPUFI_FORM_SPARSE) != 0;
    *block =
        (gpufi_block){0, 0, sparse ? block->shift : 0, sparse ? block->form : 0, GPUFI_BLOCK_ZERO};
    return;
  }
  const size_t with3 = packed_nbytes(widths, groups, widest, GPUFI_BLOCK_CODE3);
  const size_t with4 = packed_nbytes(widths, groups, widest, GPUFI_BLOCK_CODE4);
  size_t nbytes = with4 < with3 ? with4 : with3;
  block->kind = with4 < with3 ? GPUFI_BLOCK_CODE4 : GPUFI_BLOCK_CODE3;
  narrowest = narrowest_width(widest, block->kind);
  if (groups * widest < nbytes) {
    block->kind = GPUFI_BLOCK_CODE3;
    block->form |= GPUFI_FORM_EVEN;
    narrowest = widest;
    nbytes = groups * widest;
  }
  if (nbytes >= raw_nbytes) {
    *block =
        (gpufi_block){(uint32_t)raw_nbytes, 0, 0, block->form & GPUFI_FORM_SPARSE, GPUFI_BLOCK_RAW};
    return;
  }
  block->nbytes = (uint32_t)nbytes;
  for (size_t k = 0; k < groups; k++) {
    const uint32_t packed = packed_width(widths[k], narrowest);
    widths[k] = (uint8_t)(block->form & GPUFI_FORM_EVEN ? widest : packed);
  }
}

/* Write the codes, lowest bits first, with zero bits up to a whole byte; none if even. Returns the
 * bytes written. */
static inline size_t write_codes(const uint8_t *widths, size_t groups, const gpufi_block *block,
                                 uint8_t *out) {
  const uint32_t bits = code_bits(block->kind);
  const size_t nbytes = codes_nbytes(block->kind, groups);
  uint32_t pending = 0, fill = 0;
  if (block->form & GPUFI_FORM_EVEN) {
    return 0;
  }
  for (size_t k = 0; k < groups; k++) {
    const uint32_t code = widths[k] ? block->width - widths[k] : (1u << bits) - 1;
    pending |= code << fill;
    fill += bits;
    if (fill >= 8) {
      *out++ = (uint8_t)pending;
      pending >>= 8;
      fill -= 8;
    }
  }
  if (fill != 0) {
    *out = (uint8_t)pending;
  }
  return nbytes;
}

#endif
