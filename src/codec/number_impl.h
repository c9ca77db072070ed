/* Values to and from their bases, for one width of value and one instruction set; included by
 * each_width.h in files that define
 *   NUMBER_OF_INT64(x)   the nearest double of an int64_t
 * after value_impl.h. Loops over whole blocks are plain C that the compiler vectorizes. */

#include "codec/base_impl.h"

GPUFI_INLINE T F(undo_shifted)(T x, const unsigned transform, unsigned shift) {
  if (transform == GPUFI_TRANSFORM_ROTATE) { /* the sign is bit `shift` */
    return (T)((T)((T)(x >> 1) >> shift << shift) | (T)((T)(x >> shift) << (BITS - 1)));
  }
  return F(apply_shifted)(x, transform, shift);
}

/* What is predicted in place of values that have nothing of their own, where `missing` is not 0:
 * that of the value before in the group, or else of the one after, so that they stick out as little
 * as can be. `step` is 2 for parts of complex elements. */
static void F(fill_group)(unsigned step, const T *missing, size_t count, T lonely, uint8_t *p) {
  for (size_t i = 0; i < count; i++) {
    T filler = lonely;
    if (missing[i] == 0) {
      continue;
    }
    if (i >= step) {
      filler = F(get)(p, i - step); /* filled in too, if that value has nothing of its own */
    } else {
      size_t j = i + step;
      while (j < count && missing[j] != 0) {
        j += step;
      }
      filler = j < count ? F(get)(p, j) : filler;
    }
    F(put)(p, i, filler);
  }
}

/* Most groups miss none of their values, or all. */
static void F(fill_in)(const gpufi_numbers *numbers, unsigned step, const T *missing, size_t count,
                       uint8_t *p) {
  const T other = (T)numbers->filler;
  const T lonely = F(has_own)(numbers, other) ? F(own)(numbers, other) : 0;
  for (size_t i = 0; i < count; i += GPUFI_GROUP_VALUES) {
    const size_t here = count - i < GPUFI_GROUP_VALUES ? count - i : GPUFI_GROUP_VALUES;
    T any = 0;
    for (size_t j = 0; j < here; j++) {
      any |= missing[i + j];
    }
    if (any != 0) {
      F(fill_group)(step, missing + i, here, lonely, p + i * sizeof(T));
    }
  }
}

#if BITS == 32 || BITS == 64
#if BITS == 32
#define NUMBER_MAX GPUFI_NUMBER_MAX_32
#define NUMBER_OF(p) (double)(int32_t)(p)
GPUFI_INLINE uint32_t F(number_base)(const unsigned transform, double a, double b, double p) {
  return gpufi_float_bits(transform == GPUFI_TRANSFORM_SINGLE
                              ? gpufi_number_single(a, b, (float)p)
                              : (float)gpufi_number_base(transform, a, b, p));
}
#else
#define NUMBER_MAX GPUFI_NUMBER_MAX_64
#define NUMBER_OF(p) NUMBER_OF_INT64((int64_t)(p))
GPUFI_INLINE uint64_t F(number_base)(const unsigned transform, double a, double b, double p) {
  return gpufi_double_bits(gpufi_number_base(transform, a, b, p));
}
#endif

/* Whether a value has no integer, by the bits of what that would be rounded from: the magnitude is
 * too great, or it is NaN, whose bits are greater than any number's. */
GPUFI_INLINE bool F(is_beyond)(double near) {
  return (gpufi_double_bits(near) & INT64_MAX) >= gpufi_double_bits(NUMBER_MAX);
}

/* Values that have no integer, or are the fill, and fillers in their places. */
GPUFI_INLINE void F(fill_numbers)(const gpufi_numbers *numbers, unsigned step,
                                  const uint8_t *values, size_t count, uint8_t *p,
                                  const unsigned transform) {
  const double a = numbers->a, b = numbers->b, inverse = numbers->inverse;
  const T fill = (T)numbers->fill, has_fill = (T)(0 - (T)numbers->has_fill);
  T missing[GPUFI_BLOCK_VALUES];
  missing[0] = 0; /* the compiler cannot see that there is at least one value */
  for (size_t i = 0; i < count; i++) {
    const T x = F(get)(values, i);
    const double near = gpufi_number_near(transform, a, b, inverse, F(to_double)(x));
    missing[i] = (T)(0 - (uint64_t)F(is_beyond)(near));
  }
  for (size_t i = 0; i < count && has_fill; i++) {
    missing[i] |= (T)(0 - (T)(F(get)(values, i) == fill));
  }
  F(fill_in)(numbers, step, missing, count, p);
}

GPUFI_INLINE bool F(to_numbers)(const gpufi_numbers *numbers, unsigned step, const uint8_t *values,
                                size_t count, uint8_t *p, const unsigned transform) {
  const double a = numbers->a, b = numbers->b, inverse = numbers->inverse;
  int64_t greatest = 0;
  T off = 0;
  for (size_t i = 0; i < count; i++) {
    const T x = F(get)(values, i);
    const double near = gpufi_number_near(transform, a, b, inverse, F(to_double)(x));
    const int64_t magnitude = (int64_t)(gpufi_double_bits(near) & INT64_MAX);
    greatest = magnitude > greatest ? magnitude : greatest;
    off |= F(number_base)(transform, a, b, gpufi_number_whole(near)) ^ x;
    F(put)(p, i, (T)gpufi_number_rounded(near));
  }
  if (numbers->has_fill || greatest >= (int64_t)gpufi_double_bits(NUMBER_MAX)) {
    F(fill_numbers)(numbers, step, values, count, p, transform);
    off = 0;
    for (size_t i = 0; i < count; i++) {
      off |= F(number_base)(transform, a, b, NUMBER_OF(F(get)(p, i))) ^ F(get)(values, i);
    }
  }
  return off != 0 || numbers->has_fill; /* the fill may be the base of what stands in for it */
}

GPUFI_INLINE void F(from_numbers)(const gpufi_numbers *numbers, size_t count, uint8_t *values,
                                  const unsigned transform) {
  const double a = numbers->a, b = numbers->b;
  for (size_t i = 0; i < count; i++) {
    F(put)(values, i, F(number_base)(transform, a, b, NUMBER_OF(F(get)(values, i))));
  }
}

/* For GPUFI_ORIGINS numbers n from `n` on, side by side, whether the tests from the second on are
 * all the bases of their integers and n more, where b is what the first one says. */
GPUFI_INLINE uint64_t F(origins)(const gpufi_numbers *numbers, const double *values,
                                 const double *p, size_t count, double n, const bool single) {
  double b[GPUFI_ORIGINS];
  int64_t good[GPUFI_ORIGINS], some = -1;
  uint64_t found = 0;
  for (size_t k = 0; k < GPUFI_ORIGINS; k++) {
    b[k] = gpufi_number_origin(numbers, values[0], p[0] + (n + (double)(int32_t)k), single);
    good[k] = -1;
  }
  for (size_t t = 1; t < count && some != 0; t++) {
    some = 0;
    for (size_t k = 0; k < GPUFI_ORIGINS; k++) {
      const double moved = p[t] + (n + (double)(int32_t)k);
      double base = gpufi_number_base(GPUFI_TRANSFORM_LINEAR, numbers->a, b[k], moved);
      base = BITS == 32 ? (double)(float)base : base;
      base = single ? (double)gpufi_number_single(numbers->a, b[k], (float)moved) : base;
      good[k] &= -(int64_t)(base == values[t]);
      some |= good[k];
    }
  }
  for (size_t k = 0; k < GPUFI_ORIGINS && some != 0; k++) {
    found |= (uint64_t)(good[k] != 0) << k;
  }
  return found;
}

static uint64_t F(find_origins)(const gpufi_numbers *numbers, const double *values, const double *p,
                                size_t count, double n) {
  return BITS == 32 && numbers->transform == GPUFI_TRANSFORM_SINGLE
             ? F(origins)(numbers, values, p, count, n, true)
             : F(origins)(numbers, values, p, count, n, false);
}

#undef NUMBER_MAX
#undef NUMBER_OF
#endif

GPUFI_INLINE bool F(to_shifted)(const gpufi_numbers *numbers, unsigned step, const uint8_t *values,
                                size_t count, uint8_t *p, const unsigned transform) {
  const unsigned shift = numbers->shift;
  const T low = (T)(((T)1 << shift) - 1), fill = (T)numbers->fill;
  T missing[GPUFI_BLOCK_VALUES], off = 0, filled = 0;
  for (size_t i = 0; i < count; i++) {
    const T x = F(get)(values, i);
    off |= x & low;
    F(put)(p, i, F(apply_shifted)(x, transform, shift));
  }
  for (size_t i = 0; i < count && numbers->has_fill; i++) {
    missing[i] = (T)(0 - (T)(F(get)(values, i) == fill));
    filled |= missing[i];
  }
  if (filled != 0) {
    F(fill_in)(numbers, step, missing, count, p);
    return true;
  }
  return off != 0;
}

GPUFI_INLINE void F(from_shifted)(const gpufi_numbers *numbers, size_t count, uint8_t *values,
                                  const unsigned transform) {
  const unsigned shift = numbers->shift;
  for (size_t i = 0; i < count; i++) {
    F(put)(values, i, F(undo_shifted)(F(get)(values, i), transform, shift));
  }
}

/* A variant for each transform, so that the loops have no branch. */
static bool F(to_base)(const gpufi_numbers *numbers, unsigned step, const uint8_t *values,
                       size_t count, uint8_t *p) {
#if BITS == 32 || BITS == 64
  const gpufi_numbers fast = gpufi_numbers_without_division(numbers);
  numbers = &fast;
#endif
  switch (numbers->transform) {
#if BITS == 32 || BITS == 64
  case GPUFI_TRANSFORM_QUOTIENT:
    return F(to_numbers)(numbers, step, values, count, p, GPUFI_TRANSFORM_QUOTIENT);
  case GPUFI_TRANSFORM_LINEAR:
    return F(to_numbers)(numbers, step, values, count, p, GPUFI_TRANSFORM_LINEAR);
#endif
#if BITS == 32
  case GPUFI_TRANSFORM_SINGLE:
    return F(to_numbers)(numbers, step, values, count, p, GPUFI_TRANSFORM_SINGLE);
#endif
  case GPUFI_TRANSFORM_ROTATE:
    return F(to_shifted)(numbers, step, values, count, p, GPUFI_TRANSFORM_ROTATE);
  case GPUFI_TRANSFORM_ORDER:
    return F(to_shifted)(numbers, step, values, count, p, GPUFI_TRANSFORM_ORDER);
  default:
    return F(to_shifted)(numbers, step, values, count, p, GPUFI_TRANSFORM_NONE);
  }
}

static void F(from_base)(const gpufi_numbers *numbers, size_t count, uint8_t *values) {
#if BITS == 32 || BITS == 64
  const gpufi_numbers fast = gpufi_numbers_without_division(numbers);
  numbers = &fast;
#endif
  switch (numbers->transform) {
#if BITS == 32 || BITS == 64
  case GPUFI_TRANSFORM_QUOTIENT:
    F(from_numbers)(numbers, count, values, GPUFI_TRANSFORM_QUOTIENT);
    break;
  case GPUFI_TRANSFORM_LINEAR:
    F(from_numbers)(numbers, count, values, GPUFI_TRANSFORM_LINEAR);
    break;
#endif
#if BITS == 32
  case GPUFI_TRANSFORM_SINGLE:
    F(from_numbers)(numbers, count, values, GPUFI_TRANSFORM_SINGLE);
    break;
#endif
  case GPUFI_TRANSFORM_ROTATE:
    F(from_shifted)(numbers, count, values, GPUFI_TRANSFORM_ROTATE);
    break;
  case GPUFI_TRANSFORM_ORDER:
    F(from_shifted)(numbers, count, values, GPUFI_TRANSFORM_ORDER);
    break;
  default:
    F(from_shifted)(numbers, count, values, GPUFI_TRANSFORM_NONE);
  }
}

/* A correction counts floats: it is a difference of two values after the order transform. Where
 * there is a fill, 1 stands for it, and those above 0 are one more. */
static void F(correct)(const gpufi_numbers *numbers, const uint8_t *corrections, size_t count,
                       uint8_t *values) {
  const T fill = (T)numbers->fill, has_fill = numbers->has_fill;
  for (size_t i = 0; i < count && !has_fill; i++) {
    const T base = F(apply)(F(get)(values, i), GPUFI_TRANSFORM_ORDER);
    F(put)(values, i, F(apply)((T)(base + F(get)(corrections, i)), GPUFI_TRANSFORM_ORDER));
  }
  for (size_t i = 0; i < count && has_fill; i++) {
    const T c = F(get)(corrections, i), more = (T)((S)c > 0);
    const T base = F(apply)(F(get)(values, i), GPUFI_TRANSFORM_ORDER);
    const T value = F(apply)((T)(base + c - more), GPUFI_TRANSFORM_ORDER);
    F(put)(values, i, c == 1 ? fill : value);
  }
}

static bool F(corrections)(const gpufi_numbers *numbers, const uint8_t *values, size_t count,
                           uint8_t *bases) {
  const T fill = (T)numbers->fill, has_fill = numbers->has_fill;
  const T most = (T)((T)((T)0 - 1) >> 1);
  T lost = 0;
  for (size_t i = 0; i < count; i++) {
    const T x = F(get)(values, i);
    const T base = F(apply)(F(get)(bases, i), GPUFI_TRANSFORM_ORDER);
    const T c = (T)(F(apply)(x, GPUFI_TRANSFORM_ORDER) - base);
    const T is_fill = (T)(has_fill & (x == fill));
    lost |= (T)(has_fill & (c == most) & !is_fill);
    F(put)(bases, i, is_fill ? 1 : (T)(c + (has_fill & ((S)c > 0))));
  }
  return lost == 0;
}
