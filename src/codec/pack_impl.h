/* Packing for one width of value; included by pack.c once a width, with
 *   T the unsigned type, S the signed one, BITS their width, F(name) and SCALAR(name) the
 * functions' names. */

/* Plan a block, or the residuals of a sparse one that are not 0. In: residuals in `z`, the form so
 * far in block->form. Out: packed values in `z`, filled up to whole groups with zeros, the widths
 * that the groups are packed at, and the descriptor. */
static void F(plan)(T *z, size_t count, uint8_t *widths, gpufi_block *block) {
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
  for (size_t k = 0; k < groups; k++) {
    const T *v = z + k * GPUFI_GROUP_VALUES;
    const T any = v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];
    widths[k] = any ? (uint8_t)(64 - __builtin_clzll(any)) : 0;
  }
  choose_codes(widths, groups, count * sizeof(T), block);
}

/* Eight values of `width` bits (1 .. BITS) into exactly `width` bytes, lowest bits first. */
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
      pending = fill ? value >> (width - fill) : 0;
    }
  }
  memcpy(out, &pending, fill / 8);
}

/* Packed values of a group from `width` bytes. */
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

/* Groups of one width: `z` to bytes, and back, where the width is not 0. */
static void F(fixed_pack)(T *z, size_t count, unsigned width, uint8_t *out) {
  const size_t groups = group_count(count);
  memset(z + count, 0, (groups * GPUFI_GROUP_VALUES - count) * sizeof(T));
  for (size_t k = 0; k < groups; k++) {
    F(pack_group)(z + k * GPUFI_GROUP_VALUES, width, out + k * width);
  }
}

static bool F(fixed_unpack)(const uint8_t *in, size_t count, unsigned width, T *z) {
  const size_t groups = group_count(count);
  for (size_t k = 0; k < groups; k++) {
    uint8_t tail[GPUFI_GROUP_READ_NBYTES] = {0};
    const uint8_t *from = in + k * width;
    if ((groups - k) * width < GPUFI_GROUP_READ_NBYTES) {
      memcpy(tail, from, width);
      from = tail;
    }
    F(unpack_group)(from, width, z + k * GPUFI_GROUP_VALUES);
  }
  T beyond = 0;
  for (size_t i = count; i < groups * GPUFI_GROUP_VALUES; i++) {
    beyond |= z[i];
  }
  return beyond == 0;
}

/* Packed values to residuals, in place. */
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

static void F(write)(const uint8_t *residuals, const T *z, size_t count, const uint8_t *widths,
                     const gpufi_block *block, uint8_t *out) {
  if (block->kind == GPUFI_BLOCK_RAW) {
    memcpy(out, residuals, count * sizeof(T));
  } else if (block->kind != GPUFI_BLOCK_ZERO) {
    const size_t groups = group_count(count);
    out += write_codes(widths, groups, block, out);
    for (size_t k = 0; k < groups; k++) {
      if (widths[k] != 0) {
        F(pack_group)(z + k * GPUFI_GROUP_VALUES, widths[k], out);
        out += widths[k];
      }
    }
  }
}

/* The sparse form of a block; false, with nothing written, if it takes more than `limit` bytes. */
static bool F(pack_sparse)(const uint8_t *residuals, size_t count, uint8_t *out, size_t limit,
                           gpufi_block *block) {
  T used[GPUFI_BLOCK_VALUES], z[GPUFI_BLOCK_VALUES];
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  gpufi_mask mask;
  gpufi_mask_of(sizeof(T), residuals, count, &mask);
  gpufi_mask_compact(sizeof(T), residuals, count, (uint8_t *)used);
  memcpy(z, used, mask.used_count * sizeof(T));
  block->form = GPUFI_FORM_SPARSE;
  F(plan)(z, mask.used_count, widths, block);
  mask.nbytes = gpufi_mask_nbytes(&mask, count);
  if (block->nbytes + mask.nbytes > limit) {
    return false;
  }
  block->nbytes += (uint32_t)mask.nbytes;
  gpufi_mask_write(&mask, count, out);
  F(write)((const uint8_t *)used, z, mask.used_count, widths, block, out + mask.nbytes);
  return true;
}

static bool F(pack)(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                    gpufi_block *block) {
  T z[GPUFI_BLOCK_VALUES];
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  memcpy(z, residuals, count * sizeof(T));
  block->form = 0;
  F(plan)(z, count, widths, block);
  if (gpufi_mask_pays(gpufi_used_count(sizeof(T), residuals, count), count)) {
    gpufi_block sparse;
    const size_t smaller = block->nbytes - 1;
    if (F(pack_sparse)(residuals, count, out, smaller < capacity ? smaller : capacity, &sparse)) {
      *block = sparse;
      return true;
    }
  }
  if (block->nbytes > capacity) {
    return false;
  }
  F(write)(residuals, z, count, widths, block, out);
  return true;
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
