/* Packing of blocks for one width of value and one instruction set; included by each_width.h in the
 * files that define VECTOR_NBYTES, the bytes of the set's vectors, and have, for N bits,
 *   void group_widths_N(const T *z, size_t groups, uint8_t *widths)
 *     the bits of the widest of each 8 values
 *   pack_groups_N, a gpufi_pack_groups_fn
 *   compact_N, a gpufi_compact_fn */

#define LANES_OF (VECTOR_NBYTES / sizeof(T))
typedef T F(wide) __attribute__((vector_size(VECTOR_NBYTES)));
typedef S F(wide_signed) __attribute__((vector_size(VECTOR_NBYTES)));

/* Some of a list's values, zeros after the last. */
GPUFI_INLINE F(wide) F(load_wide)(const uint8_t *values, size_t i, size_t count) {
  F(wide) x = {0};
  if (count - i >= LANES_OF) {
    memcpy(&x, values + i * sizeof(T), sizeof(x));
  } else {
    T lanes[LANES_OF] = {0};
    memcpy(lanes, values + i * sizeof(T), (count - i) * sizeof(T));
    memcpy(&x, lanes, sizeof(x));
  }
  return x;
}

/* The sum of a word's lanes, which fits 16 bits. */
GPUFI_INLINE size_t F(sum_of_lanes)(uint64_t word) {
#if BITS == 8
  const uint64_t low = UINT64_C(0x00ff00ff00ff00ff);
  return ((word & low) + (word >> 8 & low)) * UINT64_C(0x0001000100010001) >> 48;
#elif BITS == 16
  return word * UINT64_C(0x0001000100010001) >> 48;
#elif BITS == 32
  return (uint32_t)(word + (word >> 32));
#else
  return word;
#endif
}

/* How many of up to a block of values are not 0; *any has the bits that are 1 in one of them. A
 * lane has 64 values or fewer to count, or has 16 bits or more. */
static size_t F(look_at)(const uint8_t *values, size_t count, uint64_t *any) {
  F(wide) some = {0}, used = {0};
  uint64_t somes[VECTOR_NBYTES / 8], useds[VECTOR_NBYTES / 8], all = 0;
  size_t total = 0;
  for (size_t i = 0; i < count; i += LANES_OF) {
    const F(wide) x = F(load_wide)(values, i, count);
    some |= x;
    used -= (F(wide))(x != 0);
  }
  memcpy(somes, &some, sizeof(somes));
  memcpy(useds, &used, sizeof(useds));
  for (size_t k = 0; k < VECTOR_NBYTES / 8; k++) {
    all |= somes[k];
    total += F(sum_of_lanes)(useds[k]);
  }
  for (unsigned by = 32; by >= BITS; by /= 2) {
    all |= all >> by;
  }
  *any = (T)all;
  return total;
}

/* The logical shift; there is none of lanes of 8 bits. */
GPUFI_INLINE F(wide) F(down)(F(wide) x, unsigned shift) {
#if BITS == 8
  typedef uint16_t pairs __attribute__((vector_size(VECTOR_NBYTES)));
  return (F(wide))((pairs)x >> shift) & (T)(0xff >> shift);
#else
  return x >> shift;
#endif
}

/* Plan a block, or the residuals of a sparse one that are not 0, of which `any` has the bits that
 * are 1 in one of them. The form so far is in block->form. Out: packed values in `z`, filled up to
 * whole groups with zeros, the widths that the groups are packed at, and the descriptor. A residual
 * r becomes
 *
 *   zigzag                    if one is negative: 2r, or -2r - 1, so that small magnitudes of
 * either sign have few bits; else the form is plain, and the sign bit is saved
 *   >> shift                  the trailing zero bits that all residuals share go; of -2r - 1 with
 *                             the rounding that makes it the zigzag of r >> shift
 *   less 1                    in a sparse block, where no residual is 0
 *
 * `z` has capacity for a block. */
static inline void F(plan)(const uint8_t *residuals, size_t count, T any, T *z, uint8_t *widths,
                           gpufi_block *block) {
  const T bias = block->form & GPUFI_FORM_SPARSE ? 1 : 0;
  const size_t groups = group_count(count);
  const unsigned shift = any ? (unsigned)__builtin_ctzll(any) : 0;
  const bool plain = !(any >> (BITS - 1));
  block->shift = shift;
  block->form |= plain ? GPUFI_FORM_PLAIN : 0;
  for (size_t i = 0; i < count; i += LANES_OF) {
    F(wide) x = F(load_wide)(residuals, i, count);
    if (!plain) {
      x = (x + x) ^ (F(wide))((F(wide_signed))x < 0);
    }
    x = F(down)(x, shift) - bias;
    memcpy(z + i, &x, sizeof(x));
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

/* The sparse form of a block; false, with nothing written, if it takes more than `limit` bytes, of
 * the `capacity` bytes at `out`. The values that are not 0 have the bits that all have. */
static bool F(pack_sparse)(const uint8_t *residuals, size_t count, T any, uint8_t *out,
                           size_t limit, size_t capacity, gpufi_block *block) {
  T used[GPUFI_BLOCK_VALUES], z[GPUFI_BLOCK_VALUES];
  uint8_t widths[GPUFI_BLOCK_GROUPS], mask_bytes[GPUFI_MASK_WRITE_NBYTES];
  gpufi_mask mask;
  F(compact)(residuals, count, &mask, (uint8_t *)used);
  mask.nbytes = gpufi_mask_write(compact_8, &mask, count, mask_bytes);
  if (mask.nbytes > limit) {
    return false;
  }
  block->form = GPUFI_FORM_SPARSE;
  F(plan)((const uint8_t *)used, mask.used_count, any, z, widths, block);
  if (block->nbytes + mask.nbytes > limit) {
    return false;
  }
  block->nbytes += (uint32_t)mask.nbytes;
  memcpy(out, mask_bytes, mask.nbytes);
  F(write)((const uint8_t *)used, z, mask.used_count, widths, block, out + mask.nbytes,
           capacity - mask.nbytes);
  return true;
}

/* Dense, or sparse if that may pay and turns out smaller. */
static bool F(pack)(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                    gpufi_block *block) {
  T z[GPUFI_BLOCK_VALUES];
  uint64_t any;
  uint8_t widths[GPUFI_BLOCK_GROUPS];
  const size_t used_count = F(look_at)(residuals, count, &any);
  if (used_count == 0) {
    *block = (gpufi_block){.kind = GPUFI_BLOCK_ZERO};
    return true;
  }
  block->form = 0;
  F(plan)(residuals, count, (T)any, z, widths, block);
  if (gpufi_mask_pays(used_count, count)) {
    gpufi_block sparse;
    const size_t smaller = block->nbytes - 1;
    if (F(pack_sparse)(residuals, count, (T)any, out, smaller < capacity ? smaller : capacity,
                       capacity, &sparse)) {
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

#undef LANES_OF
