#include "codec/format.h"
#include "core/error.h"

/* What unpack_group may read: 64 bytes of values, and a 64-bit load that starts in the last. */
#define GROUP_READ_NBYTES 72

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

/* Codes count down from the widest; the last one stands for width 0. */
static inline uint32_t narrowest_width(uint32_t widest, uint32_t kind) {
  const uint32_t reach = (1u << code_bits(kind)) - 2;
  return widest > reach ? widest - reach : 1;
}

static size_t packed_nbytes(const uint8_t *widths, size_t groups, uint32_t widest, uint32_t kind) {
  const uint32_t narrowest = narrowest_width(widest, kind);
  size_t nbytes = codes_nbytes(kind, groups);
  for (size_t k = 0; k < groups; k++) {
    nbytes += packed_width(widths[k], narrowest);
  }
  return nbytes;
}

/* Set kind, width and nbytes of the block, and `widths` to the widths it is packed at. */
static void choose_codes(uint8_t *widths, size_t groups, size_t raw_nbytes, gpufi_block *block) {
  uint32_t widest = 0;
  for (size_t k = 0; k < groups; k++) {
    widest = widths[k] > widest ? widths[k] : widest;
  }
  if (widest == 0) {
    *block = (gpufi_block){0, 0, 0, GPUFI_BLOCK_ZERO};
    return;
  }
  const size_t with3 = packed_nbytes(widths, groups, widest, GPUFI_BLOCK_CODE3);
  const size_t with4 = packed_nbytes(widths, groups, widest, GPUFI_BLOCK_CODE4);
  const uint32_t kind = with4 < with3 ? GPUFI_BLOCK_CODE4 : GPUFI_BLOCK_CODE3;
  const size_t nbytes = with4 < with3 ? with4 : with3;
  if (nbytes >= raw_nbytes) {
    *block = (gpufi_block){(uint32_t)raw_nbytes, 0, 0, GPUFI_BLOCK_RAW};
    return;
  }
  block->kind = kind;
  block->width = widest;
  block->nbytes = (uint32_t)nbytes;
  const uint32_t narrowest = narrowest_width(widest, kind);
  for (size_t k = 0; k < groups; k++) {
    widths[k] = (uint8_t)packed_width(widths[k], narrowest);
  }
}

/* Returns the bytes written. */
static size_t write_codes(const uint8_t *widths, size_t groups, const gpufi_block *block,
                          uint8_t *out) {
  const uint32_t bits = code_bits(block->kind);
  const size_t nbytes = codes_nbytes(block->kind, groups);
  uint32_t pending = 0, fill = 0;
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

/* Codes to widths; false if a code is below width 1 or the unused bits are not 0. */
static bool read_codes(const uint8_t *in, const gpufi_block *block, size_t groups, uint8_t *widths,
                       size_t *total) {
  const uint32_t bits = code_bits(block->kind), zero = (1u << bits) - 1;
  uint32_t pending = 0, fill = 0;
  *total = 0;
  for (size_t k = 0; k < groups; k++) {
    if (fill < bits) {
      pending |= (uint32_t)*in++ << fill;
      fill += 8;
    }
    const uint32_t code = pending & zero;
    pending >>= bits;
    fill -= bits;
    if (code != zero && code >= block->width) {
      return false;
    }
    widths[k] = code == zero ? 0 : (uint8_t)(block->width - code);
    *total += widths[k];
  }
  return pending == 0;
}

#define T uint8_t
#define S int8_t
#define BITS 8
#define F(name) name##_8
#include "codec/pack_impl.h"
#undef T
#undef S
#undef BITS
#undef F
#define T uint16_t
#define S int16_t
#define BITS 16
#define F(name) name##_16
#include "codec/pack_impl.h"
#undef T
#undef S
#undef BITS
#undef F
#define T uint32_t
#define S int32_t
#define BITS 32
#define F(name) name##_32
#include "codec/pack_impl.h"
#undef T
#undef S
#undef BITS
#undef F
#define T uint64_t
#define S int64_t
#define BITS 64
#define F(name) name##_64
#include "codec/pack_impl.h"

bool gpufi_block_pack(size_t value_nbytes, const void *residuals, size_t count, uint8_t *out,
                      size_t capacity, gpufi_block *block) {
  switch (value_nbytes) {
  case 1:
    return pack_8(residuals, count, out, capacity, block);
  case 2:
    return pack_16(residuals, count, out, capacity, block);
  case 4:
    return pack_32(residuals, count, out, capacity, block);
  default:
    return pack_64(residuals, count, out, capacity, block);
  }
}

static gpuf_status corrupt(gpuf_error *err, size_t at, const char *what) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "corrupt chunk at byte %zu: %s", at, what);
}

/* A block of coded groups. */
static gpuf_status unpack_coded(size_t value_nbytes, const uint8_t *in, size_t at,
                                gpufi_block block, void *residuals, size_t count, gpuf_error *err) {
  uint8_t widths[GPUFI_BLOCK_GROUPS] = {0};
  const size_t groups = group_count(count), codes = codes_nbytes(block.kind, groups);
  size_t total;
  if (block.width == 0 || block.width > 8 * value_nbytes || block.shift >= 8 * value_nbytes) {
    return corrupt(err, at, "the block's width or shift does not fit the value");
  }
  if (block.nbytes < codes) {
    return corrupt(err, at, "the block is shorter than its code table");
  }
  if (!read_codes(in, &block, groups, widths, &total)) {
    return corrupt(err, at, "a code of the block is out of range");
  }
  if (codes + total != block.nbytes) {
    return corrupt(err, at, "the widths of the groups do not add up to the block's size");
  }
  in += codes;
  at += codes;
  switch (value_nbytes) {
  case 1:
    return unpack_8(in, total, at, widths, block.shift, residuals, count, err);
  case 2:
    return unpack_16(in, total, at, widths, block.shift, residuals, count, err);
  case 4:
    return unpack_32(in, total, at, widths, block.shift, residuals, count, err);
  default:
    return unpack_64(in, total, at, widths, block.shift, residuals, count, err);
  }
}

gpuf_status gpufi_block_unpack(size_t value_nbytes, const uint8_t *in, size_t at, gpufi_block block,
                               void *residuals, size_t count, gpuf_error *err) {
  const size_t raw_nbytes = count * value_nbytes;
  if (block.kind == GPUFI_BLOCK_CODE3 || block.kind == GPUFI_BLOCK_CODE4) {
    return unpack_coded(value_nbytes, in, at, block, residuals, count, err);
  }
  const bool zero = block.kind == GPUFI_BLOCK_ZERO;
  if (block.width != 0 || block.shift != 0 || block.nbytes != (zero ? 0 : raw_nbytes)) {
    return corrupt(err, at, "the descriptor of a zero or raw block does not fit it");
  }
  if (zero) {
    memset(residuals, 0, raw_nbytes);
  } else {
    memcpy(residuals, in, raw_nbytes);
  }
  return GPUF_OK;
}
