/* Blocks of mode W8: up to 1,024 residuals, in groups of 8. All groups of a block lie one after the
 * other, each packed at a width of its own, which its code gives:
 *
 *   | mask, if sparse | V, if two ranges | codes, 3 or 4 bits a group | group 0 | group 1 | ... |
 *
 * A group of width w takes w bytes. The widest has W bits, which is in the block's descriptor with
 * the size, the kind and the form; code d means W - d, and the greatest code 0. With two ranges,
 * code d from 1 on means V + 1 - d. So 16 residuals of which the first 8 need 5 bits and the others
 * 2 are 8 bytes, with W = 5 and the codes 0 and 3:
 *
 *   | 00011000 | 5 bytes | 2 bytes |      kind 1; the first code is in bits 0 to 2 of the byte
 *
 * Kind 0 has no bytes, for all is 0, and kind 3 has the residuals as they are. */
#include "codec/block.h"
#include "base/arithmetic.h"
#include "codec/codes_impl.h"
#include "codec/corrupt.h"
#include "codec/cpu.h"
#include "codec/scalar.h"

/* A list at one width is a block's groups without codes. */
uint8_t *gpufi_fixed_pack(size_t value_nbytes, void *values, size_t count, unsigned width,
                          uint8_t *bytes) {
  const size_t groups = group_count(count), whole = groups * GPUFI_GROUP_VALUES;
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  if (width == 0) {
    return bytes;
  }
  memset((uint8_t *)values + count * value_nbytes, 0, (whole - count) * value_nbytes);
  memset(widths, (int)width, groups);
  return gpufi_cpu_get()->pack_groups[gpufi_value_index(value_nbytes)](values, widths, groups,
                                                                       bytes);
}

/* The kernels read up to GPUFI_GROUP_READ_NBYTES from the first byte of each group on, and there
 * may be nothing after the list. So the groups of which the first byte is at least that far before
 * the end are unpacked where they are ("far"), and the others from a copy with zeros after it: at
 * most 80 bytes, and fewer than the 64 of a group before them. */
bool gpufi_fixed_unpack(size_t value_nbytes, const uint8_t *bytes, size_t count, unsigned width,
                        void *values) {
  const gpufi_block block = {.width = width, .form = GPUFI_FORM_PLAIN};
  const size_t groups = group_count(count), nbytes = groups * width;
  const size_t end = groups * GPUFI_GROUP_VALUES * value_nbytes;
  uint8_t widths[GPUFI_BLOCK_GROUPS], last[2 * GPUFI_GROUP_READ_NBYTES + 64];
  uint8_t *const out = values;
  uint8_t beyond = 0;
  if (width == 0) {
    memset(values, 0, count * value_nbytes);
    return true;
  }
  gpufi_unpack_fn *const unpack = gpufi_cpu_get()->unpack[gpufi_value_index(value_nbytes)];
  const size_t far =
      nbytes > GPUFI_GROUP_READ_NBYTES ? (nbytes - GPUFI_GROUP_READ_NBYTES) / width : 0;
  memset(widths, (int)width, groups);
  const size_t near = nbytes - far * width;
  memcpy(last, bytes + far * width, near);
  memset(last + near, 0, GPUFI_GROUP_READ_NBYTES);
  unpack(bytes, widths, far, &block, out);
  unpack(last, widths, groups - far, &block, out + far * GPUFI_GROUP_VALUES * value_nbytes);
  for (size_t i = count * value_nbytes; i < end; i++) {
    beyond |= out[i];
  }
  return beyond == 0;
}

bool gpufi_block_pack(size_t value_nbytes, const void *residuals, size_t count, uint8_t *out,
                      size_t capacity, gpufi_block *block) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  return cpu->pack[gpufi_value_index(value_nbytes)](residuals, count, out, capacity, block);
}

void gpufi_mask_expand(size_t value_nbytes, const gpufi_mask *mask, const uint8_t *used,
                       size_t count, uint8_t *values) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  cpu->expand[gpufi_value_index(value_nbytes)](mask->bits, used, count, values);
}

/* The width of each group, from the codes if there are any, and the bytes of these. Codes and
 * widths must fill the block exactly, which is what bounds every later read of it. `at_end`: no
 * more than the block is readable, so the codes are read by the kernel that reads no more than
 * them. */
static gpuf_status read_widths(const uint8_t *in, bool at_end, size_t at, const gpufi_block *block,
                               size_t groups, uint8_t *widths, size_t *codes, gpuf_error *err) {
  const gpufi_cpu *const cpu = at_end ? &gpufi_cpu_scalar : gpufi_cpu_get();
  const bool flagged = (block->form & GPUFI_FORM_EVEN) != 0;
  const bool ranges = flagged && block->kind == GPUFI_BLOCK_CODE4;
  size_t total = groups * block->width;
  gpufi_block with_second = *block;
  *codes = 0;
  if (flagged && !ranges) {
    memset(widths, (int)block->width, groups);
  } else {
    *codes = codes_nbytes(block->kind, groups) + ranges;
    if (block->nbytes < *codes) {
      return gpufi_corrupt(err, at, "the block is shorter than its code table");
    }
    if (ranges) {
      with_second.second = *in++;
      if (with_second.second == 0 || with_second.second >= block->width) {
        return gpufi_corrupt(err, at,
                             "the second range of the block's widths is not below the first");
      }
    }
    if (!cpu->read_codes(in, &with_second, groups, widths, &total)) {
      return gpufi_corrupt(err, at, "a code of the block is out of range");
    }
  }
  return *codes + total == block->nbytes
             ? GPUF_OK
             : gpufi_corrupt(err, at, "the widths of the groups do not add up to the block's size");
}

/* The values that fill up the last group of a list are packed as 0: `used` of its 8 values exist.
 * `in` is where the group's bytes are, readable for GPUFI_GROUP_READ_NBYTES. Packed values of any
 * width fit 64 bits, so one kernel does for all widths of value. */
static gpuf_status check_fill(const uint8_t *in, unsigned width, size_t used, size_t at,
                              gpuf_error *err) {
  const gpufi_block plain = {.width = width, .form = GPUFI_FORM_PLAIN};
  const uint8_t widths[1] = {(uint8_t)width};
  uint64_t z[GPUFI_GROUP_VALUES];
  gpufi_unpack_64_scalar(in, widths, 1, &plain, (uint8_t *)z);
  for (size_t i = used; i < GPUFI_GROUP_VALUES; i++) {
    if (z[i] != 0) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "corrupt chunk at byte %zu: value %zu of a group that ends at %zu is not 0",
                        at, i, used);
    }
  }
  return GPUF_OK;
}

/* The groups of a list, which take the `in_nbytes` at `in`. Kernels read beyond the last group and
 * write whole groups, so
 *   - at_end: fewer than GPUFI_GROUP_READ_NBYTES follow the block, and they get a copy of it with
 * zeros after it (in_nbytes is the sum of the widths, so at most 64 for each of 128 groups);
 *   - where `residuals`, which has capacity for `capacity` values, does not hold whole groups, they
 *     write to a buffer. */
static gpuf_status unpack_groups(size_t value_nbytes, const uint8_t *in, size_t in_nbytes,
                                 bool at_end, size_t at, const uint8_t *widths,
                                 const gpufi_block *block, uint8_t *residuals, size_t count,
                                 size_t capacity, gpuf_error *err) {
  uint8_t padded[8 * GPUFI_BLOCK_VALUES + GPUFI_GROUP_READ_NBYTES];
  uint8_t whole[8 * GPUFI_BLOCK_VALUES];
  const size_t groups = group_count(count), rest = count % GPUFI_GROUP_VALUES;
  const unsigned last = widths[groups - 1];
  uint8_t *const out = capacity >= groups * GPUFI_GROUP_VALUES ? residuals : whole;
  whole[0] = 0; /* clang-tidy cannot see that unpacking fills it */
  if (at_end) {
    memcpy(padded, in, in_nbytes);
    memset(padded + in_nbytes, 0, GPUFI_GROUP_READ_NBYTES);
    in = padded;
  }
  gpufi_cpu_get()->unpack[gpufi_value_index(value_nbytes)](in, widths, groups, block, out);
  if (out == whole) {
    memcpy(residuals, whole, count * value_nbytes);
  }
  return rest == 0 ? GPUF_OK
                   : check_fill(in + in_nbytes - last, last, rest, at + in_nbytes - last, err);
}

/* A list of coded groups. The width is checked first: it is what the kernels' tables are indexed
 * by. */
static gpuf_status unpack_coded(size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                                gpufi_block block, void *residuals, size_t count, size_t capacity,
                                gpuf_error *err) {
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  /* Where GPUFI_GROUP_READ_NBYTES or more follow the block, no read from one of its groups goes
   * past them: that is so for all but the last few blocks of a chunk. */
  const bool at_end = in_nbytes - block.nbytes < GPUFI_GROUP_READ_NBYTES;
  size_t codes;
  if (block.width == 0 || block.width > 8 * value_nbytes) {
    return gpufi_corrupt(err, at, "the block's width does not fit the value");
  }
  const gpuf_status status =
      read_widths(in, at_end, at, &block, group_count(count), widths, &codes, err);
  if (status != GPUF_OK) {
    return status;
  }
  return unpack_groups(value_nbytes, in + codes, block.nbytes - codes, at_end, at + codes, widths,
                       &block, residuals, count, capacity, err);
}

/* Every packed value is 0. So is every residual, but in a sparse block, where the packed value 0
 * stands for 1 if plain, else for -1 (it is 1 less than the zigzagged residual), times 2^shift. */
static void fill_zero(size_t value_nbytes, const gpufi_block *block, uint8_t *residuals,
                      size_t count) {
  if (!(block->form & GPUFI_FORM_SPARSE)) {
    memset(residuals, 0, count * value_nbytes);
    return;
  }
  const uint64_t one = block->form & GPUFI_FORM_PLAIN ? 1 : UINT64_MAX;
  const uint64_t residual = one << block->shift;
  for (size_t i = 0; i < count; i++) {
    memcpy(residuals + i * value_nbytes, &residual, value_nbytes);
  }
}

/* All residuals of a block, or those of a sparse one that are not 0: `count` of them, to
 * `residuals`, which has capacity for `capacity`. What a kind does not use in the descriptor must
 * be 0. */
static gpuf_status unpack_list(size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                               gpufi_block block, void *residuals, size_t count, size_t capacity,
                               gpuf_error *err) {
  const size_t raw_nbytes = count * value_nbytes;
  const bool sparse = (block.form & GPUFI_FORM_SPARSE) != 0;
  if (block.shift >= 8 * value_nbytes) {
    return gpufi_corrupt(err, at, "the block's shift does not fit the value");
  }
  if (block.kind == GPUFI_BLOCK_CODE3 || block.kind == GPUFI_BLOCK_CODE4) {
    return unpack_coded(value_nbytes, in, in_nbytes, at, block, residuals, count, capacity, err);
  }
  const bool zero = block.kind == GPUFI_BLOCK_ZERO, restored = zero && sparse;
  const uint32_t extra = block.form & ~(uint32_t)GPUFI_FORM_SPARSE;
  if (block.width != 0 || block.nbytes != (zero ? 0 : raw_nbytes) ||
      (restored ? extra & GPUFI_FORM_EVEN : block.shift | extra)) {
    return gpufi_corrupt(err, at, "the descriptor of a zero or raw block does not fit it");
  }
  if (zero) {
    fill_zero(value_nbytes, &block, residuals, count);
  } else {
    memcpy(residuals, in, raw_nbytes);
  }
  return GPUF_OK;
}

/* A sparse block is unpacked to a list, and then spread over the block:
 *
 *   block      | mask | list of the residuals that are not 0 |
 *   mask       0 0 1 0 1 1 0 ...
 *   list       a b c
 *   residuals  0 0 a 0 b c 0 ...
 */
gpuf_status gpufi_block_unpack(size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                               gpufi_block block, void *residuals, size_t count, gpuf_error *err) {
  uint64_t used[GPUFI_BLOCK_VALUES + GPUFI_EXPAND_READ_NBYTES / 8];
  gpufi_mask mask;
  if (!(block.form & GPUFI_FORM_SPARSE)) {
    return unpack_list(value_nbytes, in, in_nbytes, at, block, residuals, count, count, err);
  }
  gpuf_status status =
      gpufi_mask_read(gpufi_cpu_get()->expand[0], in, block.nbytes, at, count, &mask, err);
  if (status != GPUF_OK) {
    return status;
  }
  block.nbytes -= (uint32_t)mask.nbytes;
  status = unpack_list(value_nbytes, in + mask.nbytes, in_nbytes - mask.nbytes, at + mask.nbytes,
                       block, used, mask.used_count, GPUFI_BLOCK_VALUES, err);
  if (status == GPUF_OK) {
    gpufi_mask_expand(value_nbytes, &mask, (const uint8_t *)used, count, residuals);
  }
  return status;
}
