/* Packing of blocks for one width of value and one instruction set; included by each_width.h in the
 * files that have, for N bits,
 *   void group_widths_N(const T *z, size_t groups, uint8_t *widths)
 *     the bits of the widest of each 8 values
 *   pack_groups_N, a gpufi_pack_groups_fn
 *   void compact_N(const uint8_t *values, size_t count, gpufi_mask *mask, uint8_t *used)
 *     the mask's bits and used_count, and the values that are not 0, at most three quarters of
 *     `count`; `used` has capacity for GPUFI_BLOCK_VALUES */

/* Plan a block, or the residuals of a sparse one that are not 0. In: residuals in `z`, the form so
 * far in block->form. Out: packed values in `z`, filled up to whole groups with zeros, the widths
 * that the groups are packed at, and the descriptor. A residual r becomes
 *
 *   r >> shift                the trailing zero bits that all residuals share go
 *   zigzag                    if one is negative: 2r, or -2r - 1, so that small magnitudes of
 * either sign have few bits; else the form is plain, and the sign bit is saved less 1 in a sparse
 * block, where no residual is 0 */
static inline void F(plan)(T *z, size_t count, uint8_t *widths, gpufi_block *block) {
  const T bias = block->form & GPUFI_FORM_SPARSE ? 1 : 0;
  const size_t groups = group_count(count);
  T all = 0;
  for (size_t i = 0; i < count; i++) {
    all |= z[i];
  }
  block->shift = all ? (uint32_t)__builtin_ctzll(all) : 0;
  if (all >> (BITS - 1)) { /* one of them is negative */
    for (size_t i = 0; i < count; i++) {
      const S r = (S)((S)z[i] >> block->shift);
      z[i] = (T)((T)((T)((T)r << 1) ^ (T)(r >> (BITS - 1))) - bias);
    }
  } else {
    block->form |= GPUFI_FORM_PLAIN;
    for (size_t i = 0; i < count; i++) {
      z[i] = (T)((T)(z[i] >> block->shift) - bias);
    }
  }
  memset(z + count, 0, (groups * GPUFI_GROUP_VALUES - count) * sizeof(T));
  F(group_widths)(z, groups, widths);
  choose_codes(widths, groups, count * sizeof(T), block);
}

/* Write the codes and the groups, or what the kind says, to `out`, which has `capacity` bytes.
 * Packing writes up to GPUFI_GROUP_WRITE_NBYTES past the last group, so near the capacity's end it
 * is done by way of a buffer. */
static void F(write)(const uint8_t *residuals, const T *z, size_t count, const uint8_t *widths,
                     const gpufi_block *block, uint8_t *out, size_t capacity) {
  if (block->kind == GPUFI_BLOCK_RAW) {
    memcpy(out, residuals, count * sizeof(T));
  } else if (block->kind != GPUFI_BLOCK_ZERO) {
    const size_t groups = group_count(count);
    const size_t codes = write_codes(widths, groups, block, out);
    if (capacity - codes >= groups * block->width + GPUFI_GROUP_WRITE_NBYTES) {
      F(pack_groups)(z, widths, groups, out + codes);
    } else {
      uint8_t buffer[8 * GPUFI_BLOCK_VALUES + GPUFI_GROUP_WRITE_NBYTES];
      const uint8_t *const end = F(pack_groups)(z, widths, groups, buffer);
      memcpy(out + codes, buffer, (size_t)(end - buffer));
    }
  }
}

/* How many residuals are not 0. */
static inline size_t F(used_count)(const T *residuals, size_t count) {
  uint32_t used = 0;
  for (size_t i = 0; i < count; i++) {
    used += residuals[i] != 0;
  }
  return used;
}

/* The sparse form of a block; false, with nothing written, if it takes more than `limit` bytes, of
 * the `capacity` bytes at `out`. */
static bool F(pack_sparse)(const uint8_t *residuals, size_t count, uint8_t *out, size_t limit,
                           size_t capacity, gpufi_block *block) {
  T used[GPUFI_BLOCK_VALUES], z[GPUFI_BLOCK_VALUES];
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  gpufi_mask mask;
  F(compact)(residuals, count, &mask, (uint8_t *)used);
  memcpy(z, used, mask.used_count * sizeof(T));
  block->form = GPUFI_FORM_SPARSE;
  F(plan)(z, mask.used_count, widths, block);
  mask.nbytes = gpufi_mask_nbytes(&mask, count);
  if (block->nbytes + mask.nbytes > limit) {
    return false;
  }
  block->nbytes += (uint32_t)mask.nbytes;
  gpufi_mask_write(&mask, count, out);
  F(write)((const uint8_t *)used, z, mask.used_count, widths, block, out + mask.nbytes,
           capacity - mask.nbytes);
  return true;
}

/* Dense, or sparse if that may pay and turns out smaller. */
static bool F(pack)(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                    gpufi_block *block) {
  T z[GPUFI_BLOCK_VALUES];
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  memcpy(z, residuals, count * sizeof(T));
  const size_t used_count = F(used_count)(z, count);
  block->form = 0;
  F(plan)(z, count, widths, block);
  if (gpufi_mask_pays(used_count, count)) {
    gpufi_block sparse;
    const size_t smaller = block->nbytes - 1;
    if (F(pack_sparse)(residuals, count, out, smaller < capacity ? smaller : capacity, capacity,
                       &sparse)) {
      *block = sparse;
      return true;
    }
  }
  if (block->nbytes > capacity) {
    return false;
  }
  F(write)(residuals, z, count, widths, block, out, capacity);
  return true;
}
