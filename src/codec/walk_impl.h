/* Splitting values into symbols and rests, and joining them, for one width of value; included by
 * each_width.h, in the files
 * that have WALK(name), the functions' external names, each for its instruction set, for which the
 * compiler makes vectors of it.
 * The rest is the value with what is above the symbol moved down onto it:
 *
 *   value     S EEEEEEEE MMMMMMMMMMMMMMMMMMMMMMM        a float32, highest bit first
 *   rest               S MMMMMMMMMMMMMMMMMMMMMMM
 *   symbol      EEEEEEEE
 *
 * Products by powers of two stand for shifts to the left: there are vectors of these for all but
 * the widest values, and a power of 2^BITS or more is 0, as it should. */

#if BITS == 8
/* There are no shifts of lanes of 8 bits, so bytes are split eight at a time, in words of which
 * masks take off what a shift brings from one byte into the next. Returns how many are done. */
GPUFI_INLINE size_t split_words(gpufi_cut cut, const uint8_t *values, size_t count, uint8_t *rests,
                                uint8_t *lower) {
  const uint64_t each = UINT64_C(0x0101010101010101);
  const uint64_t low = (1u << cut.at) - 1, symbols = (1u << cut.bits) - 1;
  const uint64_t above = (0xffu >> cut.bits) & ~low;
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const uint64_t x = gpufi_load_u64(values + i), symbol = x >> cut.at & symbols * each;
    const uint64_t rest = (x & low * each) | (x >> cut.bits & above * each);
    const uint64_t moved = rest >> cut.shift & (0xffu >> cut.shift) * each;
    memcpy(rests + i, &moved, sizeof(moved));
    memcpy(lower + i, &symbol, sizeof(symbol));
  }
  return i;
}

GPUFI_INLINE size_t join_words(gpufi_cut cut, const uint8_t *rests, const uint8_t *lower,
                               size_t count, uint8_t *values) {
  const uint64_t each = UINT64_C(0x0101010101010101);
  const uint64_t low = (1u << cut.at) - 1, above = 0xff & ~((1u << (cut.at + cut.bits)) - 1);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const uint64_t rest =
        gpufi_load_u64(rests + i) << cut.shift & (0xffu << cut.shift & 0xff) * each;
    const uint64_t x = (rest & low * each) | ((rest & ~(low * each)) << cut.bits & above * each) |
                       gpufi_load_u64(lower + i) << cut.at;
    memcpy(values + i, &x, sizeof(x));
  }
  return i;
}
#endif

GPUFI_INLINE void F(split_cut)(gpufi_cut cut, bool wide, const uint8_t *values, size_t first,
                               size_t count, T *rests, uint8_t *lower, uint8_t *upper) {
  const T low = (T)(((uint64_t)1 << cut.at) - 1), mask = (T)(((uint64_t)1 << cut.bits) - 1);
  for (size_t i = first; i < count; i++) {
    T value;
    memcpy(&value, values + i * sizeof(T), sizeof(T));
    const T symbol = (T)((T)(value >> cut.at) & mask);
    const T above = (T)((T)(value >> cut.bits) & (T)~low);
    rests[i] = (T)((T)((T)(value & low) | above) >> cut.shift);
    lower[i] = (uint8_t)symbol;
    if (wide) {
      upper[i] = (uint8_t)(symbol >> (BITS == 8 ? 0 : 8));
    }
  }
}

void WALK(gpufi_split)(const gpufi_cut *cut, const uint8_t *values, size_t count, void *rests,
                       uint8_t *lower, uint8_t *upper) {
  if (cut->bits == BITS) {
    memcpy(lower, values, count);
  } else if (cut->bits > 8) {
    F(split_cut)(*cut, true, values, 0, count, rests, lower, upper);
  } else {
    const size_t done = BITS == 8 ? split_words(*cut, values, count, rests, lower) : 0;
    F(split_cut)(*cut, false, values, done, count, rests, lower, upper);
  }
}

GPUFI_INLINE void F(join_cut)(gpufi_cut cut, bool wide, const T *rests, const uint8_t *lower,
                              const uint8_t *upper, size_t first, size_t count, uint8_t *values) {
  const T unit = (T)((T)1 << cut.at), up = (T)((uint64_t)1 << cut.bits), low = (T)(unit - 1);
  const T scale = (T)((T)1 << cut.shift);
  for (size_t i = first; i < count; i++) {
    const T rest = (T)(rests[i] * scale);
    const T symbol = (T)(wide ? lower[i] | (unsigned)upper[i] << 8 : lower[i]);
    const T value = (T)((T)((rest & low) | (T)((T)(rest & (T)~low) * up)) | (T)(symbol * unit));
    memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

void WALK(gpufi_join)(const gpufi_cut *cut, const void *rests, const uint8_t *lower,
                      const uint8_t *upper, size_t count, uint8_t *values) {
  if (cut->bits == BITS) {
    memcpy(values, lower, count);
  } else if (cut->bits > 8) {
    F(join_cut)(*cut, true, rests, lower, upper, 0, count, values);
  } else {
    const size_t done = BITS == 8 ? join_words(*cut, rests, lower, count, values) : 0;
    F(join_cut)(*cut, false, rests, lower, upper, done, count, values);
  }
}
