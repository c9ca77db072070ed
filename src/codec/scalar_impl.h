/* Blocks and groups of 8 values for one width of value, in plain C; included by each_width.h in
 * scalar.c, which has SCALAR(name), the functions' external names.
 *
 * A group of width w is the w lowest bits of each of its 8 values, one after the other, lowest bit
 * first: w bytes exactly. For w = 3, with the number of the value for each bit:
 *
 *   00011122 23334445 55666777 */

/* A group is as wide as the widest of its values. */
static void F(group_widths)(const T *z, size_t groups, uint8_t *widths) {
  for (size_t k = 0; k < groups; k++) {
    const T *v = z + k * GPUFI_GROUP_VALUES;
    const T any = v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];
    widths[k] = any ? (uint8_t)(64 - __builtin_clzll(any)) : 0;
  }
}

/* Eight values, none wider than `width` (1 .. BITS), into exactly `width` bytes. */
static void F(pack_group)(const T *z, unsigned width, uint8_t *out) {
  uint64_t pending = 0; /* the lowest `fill` bits are not written yet; fill < 64 */
  unsigned fill = 0;
  for (int i = 0; i < GPUFI_GROUP_VALUES; i++) {
    const uint64_t value = z[i];
    pending |= value << fill;
    fill += width;
    if (fill >= 64) {
      memcpy(out, &pending, 8);
      out += 8;
      fill -= 64;
      pending = fill ? value >> (width - fill) : 0; /* the value's bits that the shift lost */
    }
  }
  memcpy(out, &pending, fill / 8); /* 8 * width bits in all, so that whole bytes are left */
}

/* The packed values of a group. A load of 8 bytes from the one that a value starts in has all of
 * it, except where its place in that byte and its width are more than 64 bits, which takes a value
 * of 64 bits; these come from the ninth byte. The last value starts in byte 7 * width / 8, so a
 * group of width 1 has 8 bytes read, and one of width 64 has 64: the loads go past the group's end,
 * which is what GPUFI_GROUP_READ_NBYTES is for. */
static void F(unpack_group)(const uint8_t *in, unsigned width, T *z) {
  const uint64_t mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
  for (unsigned i = 0; i < GPUFI_GROUP_VALUES; i++) {
    const unsigned bit = i * width, low = bit & 7;
    uint64_t x = gpufi_load_u64(in + (bit >> 3)) >> low;
    if (BITS == 64 && low + width > 64) {
      x |= (uint64_t)in[(bit >> 3) + 8] << (64 - low);
    }
    z[i] = (T)(x & mask);
  }
}

/* Packed values to residuals, in place. A sparse block has no residual of 0, so its packed values
 * are less by one. In the plain form that is all; else the lowest bit is the sign (zigzag: 0, -1,
 * 1, -2,
 * ... are packed as 0, 1, 2, 3, ...). At last the zero bits come back that all residuals ended in.
 * All of it wraps, so that values that no encoder writes give some residual, the same one
 * everywhere. */
static void F(restore)(T *z, size_t count, const gpufi_block *block) {
  const T bias = block->form & GPUFI_FORM_SPARSE ? 1 : 0;
  if (block->form & GPUFI_FORM_PLAIN) {
    for (size_t i = 0; i < count; i++) {
      z[i] = (T)((T)(z[i] + bias) << block->shift);
    }
    return;
  }
  for (size_t i = 0; i < count; i++) {
    const T x = (T)(z[i] + bias);
    z[i] = (T)((T)((x >> 1) ^ (T)(0 - (x & 1))) << block->shift);
  }
}

static uint8_t *F(pack_groups)(const void *values, const uint8_t *widths, size_t groups,
                               uint8_t *out) {
  const T *const z = values;
  for (size_t k = 0; k < groups; k++) {
    if (widths[k] != 0) {
      F(pack_group)(z + k * GPUFI_GROUP_VALUES, widths[k], out);
      out += widths[k];
    }
  }
  return out;
}

uint8_t *SCALAR(gpufi_pack_groups)(const void *values, const uint8_t *widths, size_t groups,
                                   uint8_t *out) {
  return F(pack_groups)(values, widths, groups, out);
}

void SCALAR(gpufi_unpack)(const uint8_t *in, const uint8_t *widths, size_t groups,
                          const gpufi_block *block, uint8_t *residuals) {
  for (size_t k = 0; k < groups; k++) {
    T z[GPUFI_GROUP_VALUES] = {0};
    if (widths[k] != 0) {
      F(unpack_group)(in, widths[k], z);
    }
    F(restore)(z, GPUFI_GROUP_VALUES, block);
    memcpy(residuals + k * sizeof(z), z, sizeof(z));
    in += widths[k];
  }
}

static void F(compact)(const uint8_t *values, size_t count, gpufi_mask *mask, uint8_t *used) {
  gpufi_mask_of(sizeof(T), values, count, mask);
  gpufi_mask_compact(sizeof(T), values, count, used);
}

void SCALAR(gpufi_compact)(const uint8_t *values, size_t count, gpufi_mask *mask, uint8_t *used) {
  F(compact)(values, count, mask, used);
}

#include "codec/pack_impl.h"

size_t SCALAR(gpufi_look_at)(const uint8_t *values, size_t count, uint64_t *any) {
  return F(look_at)(values, count, any);
}

bool SCALAR(gpufi_pack)(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                        gpufi_block *block) {
  return F(pack)(residuals, count, out, capacity, block);
}

void SCALAR(gpufi_expand)(const uint8_t *bits, const uint8_t *used, size_t count, uint8_t *values) {
  for (size_t i = 0; i < count; i++) {
    T x = 0;
    if (bits[i / 8] >> (i % 8) & 1) {
      memcpy(&x, used, sizeof(T));
      used += sizeof(T);
    }
    memcpy(values + i * sizeof(T), &x, sizeof(T));
  }
}
