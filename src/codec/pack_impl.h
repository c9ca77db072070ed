/* Packing for one width of value; included by pack.c once a width, with
 *   T the unsigned type, S the signed one, BITS their width, F(name) the function's name. */

/* Zigzag of the residuals, shifted down by the trailing zeros they share; padded with zeros to
 * whole groups. Returns the shift; the widths of the groups go to `widths`. */
static uint32_t F(zigzag)(const uint8_t *residuals, size_t count, T *z, uint8_t *widths) {
  T all = 0;
  memcpy(z, residuals, count * sizeof(T));
  for (size_t i = 0; i < count; i++) {
    all |= z[i];
  }
  const uint32_t shift = all ? (uint32_t)__builtin_ctzll(all) : 0;
  for (size_t i = 0; i < count; i++) {
    const S r = (S)((S)z[i] >> shift);
    z[i] = (T)((T)((T)r << 1) ^ (T)(r >> (BITS - 1)));
  }
  const size_t groups = group_count(count);
  memset(z + count, 0, (groups * GPUFI_GROUP_VALUES - count) * sizeof(T));
  for (size_t k = 0; k < groups; k++) {
    const T *v = z + k * GPUFI_GROUP_VALUES;
    const T any = v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7];
    widths[k] = any ? (uint8_t)(64 - __builtin_clzll(any)) : 0;
  }
  return shift;
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

/* Residuals of a group from `width` bytes; `in` is readable for 72 bytes. */
static void F(unpack_group)(const uint8_t *in, unsigned width, unsigned shift, T *r) {
  const uint64_t mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
  for (unsigned i = 0; i < GPUFI_GROUP_VALUES; i++) {
    const unsigned bit = i * width, low = bit & 7;
    uint64_t x = gpufi_load_u64(in + (bit >> 3)) >> low;
    if (BITS == 64 && low + width > 64) {
      x |= (uint64_t)in[(bit >> 3) + 8] << (64 - low);
    }
    x &= mask;
    r[i] = (T)((T)((x >> 1) ^ (0 - (x & 1))) << shift);
  }
}

static bool F(pack)(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                    gpufi_block *block) {
  T z[GPUFI_BLOCK_VALUES];
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  const size_t groups = group_count(count);
  block->shift = F(zigzag)(residuals, count, z, widths);
  choose_codes(widths, groups, count * sizeof(T), block);
  if (block->nbytes > capacity) {
    return false;
  }
  if (block->kind == GPUFI_BLOCK_RAW) {
    memcpy(out, residuals, block->nbytes);
  } else if (block->kind != GPUFI_BLOCK_ZERO) {
    out += write_codes(widths, groups, block, out);
    for (size_t k = 0; k < groups; k++) {
      if (widths[k] != 0) {
        F(pack_group)(z + k * GPUFI_GROUP_VALUES, widths[k], out);
        out += widths[k];
      }
    }
  }
  return true;
}

/* Groups of a block whose codes are in `widths`; `at` is the chunk offset of `in`. */
static gpuf_status F(unpack)(const uint8_t *in, size_t in_nbytes, size_t at, const uint8_t *widths,
                             unsigned shift, uint8_t *residuals, size_t count, gpuf_error *err) {
  const uint8_t *const end = in + in_nbytes;
  for (size_t k = 0; k * GPUFI_GROUP_VALUES < count; k++) {
    const size_t first = k * GPUFI_GROUP_VALUES;
    const size_t here = count - first < GPUFI_GROUP_VALUES ? count - first : GPUFI_GROUP_VALUES;
    uint8_t tail[GROUP_READ_NBYTES];
    T r[GPUFI_GROUP_VALUES] = {0};
    const uint8_t *from = in;
    if ((size_t)(end - in) < GROUP_READ_NBYTES) {
      memset(tail, 0, sizeof(tail));
      memcpy(tail, in, widths[k]);
      from = tail;
    }
    if (widths[k] != 0) {
      F(unpack_group)(from, widths[k], shift, r);
    }
    memcpy(residuals + first * sizeof(T), r, here * sizeof(T));
    for (size_t i = here; i < GPUFI_GROUP_VALUES; i++) {
      if (r[i] != 0) {
        return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                          "corrupt chunk at byte %zu: value %zu of a group that ends at %zu is "
                          "not 0",
                          at + (size_t)(in - (end - in_nbytes)), i, here);
      }
    }
    in += widths[k];
  }
  return GPUF_OK;
}
