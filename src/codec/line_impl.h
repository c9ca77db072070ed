/* Prediction along and across lines (lines.h), for one width of value and one instruction set;
 * included by each_width.h in the files that have
 *   vN                    a vector of N-bit values, N = 8, 16, 32 and 64
 *   prefix_N(x, step)     running sums of x's elements, in steps of 1 or 2 (a constant)
 *   last_N(x, step)       x's last `step` elements, over and over
 * Loops over whole arrays are plain C that the compiler vectorizes.
 *
 * A residual is what is left of a value after two predictions: from its neighbours in earlier
 * lines, and from the value `step` before it in its own line less that one's neighbours. To undo
 * the two for a vector of residuals r0 r1 ... of one line:
 *
 *   + offset         the offset, which the encoder took off each
 *   running sums     carry + r0, carry + r0 + r1, ...              if step is not 0
 *   + above          what these sums add up to in the lines above  if `above` is not null
 *   + neighbours     loaded from the output and transformed again, added or subtracted
 *   undo             the transform, and store
 *
 * All of it is addition modulo 2^BITS, of which the order does not matter, so that any vector
 * length gives the same bits as one value after the other. */

#include "codec/value_impl.h"

#define V JOIN(v, BITS, )
#define VALUES (8 * sizeof(V) / BITS)

GPUFI_INLINE V F(load)(const uint8_t *p) {
  V x;
  memcpy(&x, p, sizeof(x));
  return x;
}

/* The transform and its inverse, as in value_impl.h. Elements of a vector are not promoted to int,
 * so nothing needs to be cut to T. */
GPUFI_INLINE V F(apply_all)(V x, const unsigned transform) {
  return transform == GPUFI_TRANSFORM_ROTATE  ? x << 1 | x >> (BITS - 1)
         : transform == GPUFI_TRANSFORM_ORDER ? x ^ (0 - (x >> (BITS - 1))) >> 1
                                              : x;
}

GPUFI_INLINE V F(undo_all)(V x, const unsigned transform) {
  return transform == GPUFI_TRANSFORM_ROTATE ? x >> 1 | x << (BITS - 1)
                                             : F(apply_all)(x, transform);
}

/* `step` values over and over. */
GPUFI_INLINE V F(steps)(const uint64_t *values, const unsigned step) {
  const V zero = {0};
  if (step < 2) {
    return zero + (T)values[0];
  }
  T all[VALUES];
  for (unsigned k = 0; k < VALUES; k++) {
    all[k] = (T)values[k & 1];
  }
  return F(load)((const uint8_t *)all);
}

/* `count` values of one line, whole vectors at a time; returns how many of them are done. What the
 * last vector has beyond `count` is garbage, which goes
 *   - to the output, as far as `capacity` allows it: later values overwrite it. A vector that does
 *     not fit the capacity, at the end of the chunk, is left to the caller;
 *   - to `above`, which is a vector longer than the line. Where the block of residuals ends within
 *     the line, the sums of the line's later values are there, so they are put back.
 * Residuals are readable for a vector more, and a neighbour lies as far before the output's end as
 * the value itself, or further. */
GPUFI_INLINE size_t F(inverse_vectors)(const uint8_t *residuals, size_t count, size_t capacity,
                                       gpufi_line *line, uint8_t *raw, uint8_t *above,
                                       const unsigned transform, const unsigned step,
                                       const unsigned plus_count, const unsigned minus_count) {
  V carry = F(steps)(line->carry, step), sums = {0}, beyond = {0};
  const T offset = transform == GPUFI_TRANSFORM_NONE ? (T)line->offset : 0; /* floats have none */
  const bool splits = above != NULL && count < line->left;
  size_t i = 0;
  if (splits) {
    beyond = F(load)(above + count * sizeof(T));
  }
  for (; i < count && i + VALUES <= capacity; i += VALUES) {
    uint8_t *const at = raw + i * sizeof(T);
    V x = F(load)(residuals + i * sizeof(T)) + offset;
    if (step != 0) {
      const V prefix = F(prefix)(x, step);
      sums = x = prefix + carry;
      carry += F(last)(prefix, step); /* the only thing that one vector waits for from another */
    }
    if (above != NULL) {
      x += F(load)(above + i * sizeof(T));
      memcpy(above + i * sizeof(T), &x, sizeof(x));
    }
    for (unsigned k = 0; k < plus_count; k++) {
      x += F(apply_all)(F(load)(at - line->plus[k]), transform);
    }
    for (unsigned k = 0; k < minus_count; k++) {
      x -= F(apply_all)(F(load)(at - line->minus[k]), transform);
    }
    x = F(undo_all)(x, transform);
    memcpy(at, &x, sizeof(x));
  }
  if (splits && i > count) {
    memcpy(above + count * sizeof(T), &beyond, sizeof(beyond));
  }
  if (step != 0 && i != 0 && (i < count || count < line->left)) { /* the line goes on */
    /* the last value that was done, as an index into the last vector */
    const size_t last = (i < count ? i : count) - 1 + VALUES - i;
    T ends[VALUES];
    memcpy(ends, &sums, sizeof(ends));
    line->carry[0] = ends[last - (step - 1)]; /* `count` is even in steps of 2 */
    line->carry[1] = ends[last];
  }
  return i < count ? i : count;
}

/* The same with the usual numbers of neighbours as constants, so that the loops over them unroll:
 * none (one axis, or two with `above`), one, or any. */
GPUFI_INLINE size_t F(inverse_steps)(const uint8_t *residuals, size_t count, size_t capacity,
                                     gpufi_line *line, uint8_t *raw, uint8_t *above,
                                     const unsigned transform) {
#define VECTORS(step, plus, minus)                                                                 \
  (above != NULL ? F(inverse_vectors)(residuals, count, capacity, line, raw, above, transform,     \
                                      step, plus, minus)                                           \
                 : F(inverse_vectors)(residuals, count, capacity, line, raw, NULL, transform,      \
                                      step, plus, minus))
  if (line->step == 1 && line->plus_count == 0) {
    return VECTORS(1, 0, 0);
  }
  if (line->step == 1 && line->plus_count == 1) {
    return VECTORS(1, 1, 0);
  }
  if (line->step == 1) {
    return VECTORS(1, line->plus_count, line->minus_count);
  }
#if BITS != 16 /* components of complex values have 32 or 64 bits, their places in a dictionary 8  \
                */
  if (line->step == 2) {
    return VECTORS(2, line->plus_count, line->minus_count);
  }
#endif
  return VECTORS(0, line->plus_count, line->minus_count);
#undef VECTORS
}

/* `count` values of one line: vectors, and what they leave, one by one. */
GPUFI_INLINE void F(inverse_line)(const uint8_t *residuals, size_t count, size_t capacity,
                                  gpufi_line *line, uint8_t *raw, const unsigned transform) {
  uint8_t *const above =
      line->above != NULL ? line->above + (line->length - line->left) * sizeof(T) : NULL;
  size_t i = F(inverse_steps)(residuals, count, capacity, line, raw, above, transform);
  for (; i < count; i++) {
    uint8_t *const at = raw + i * sizeof(T);
    T x = (T)(F(get)(residuals, i) + (T)line->offset);
    if (line->step != 0) {
      x = (T)(x + line->carry[0]);
      line->carry[0] = line->step == 2 ? line->carry[1] : x;
      line->carry[1] = x;
    }
    if (above != NULL) {
      x = (T)(x + F(get)(above, i));
      F(put)(above, i, x);
    }
    for (unsigned k = 0; k < line->plus_count; k++) {
      x = (T)(x + F(apply)(F(get)(at - line->plus[k], 0), transform));
    }
    for (unsigned k = 0; k < line->minus_count; k++) {
      x = (T)(x - F(apply)(F(get)(at - line->minus[k], 0), transform));
    }
    F(put)(at, 0, F(undo)(x, transform));
  }
}

/* Values of several lines: to the end of the current one, then whole lines, and the start of the
 * last. Sums start anew with each line. */
GPUFI_INLINE void F(inverse_lines)(const uint8_t *residuals, size_t count, size_t capacity,
                                   gpufi_line *line, uint8_t *raw, const unsigned transform) {
  for (;;) {
    const size_t here = line->left < count ? line->left : count;
    F(inverse_line)(residuals, here, capacity, line, raw, transform);
    line->left -= here;
    count -= here;
    if (count == 0) {
      return;
    }
    line->left = line->length;
    line->carry[0] = line->carry[1] = 0;
    residuals += here * sizeof(T);
    raw += here * sizeof(T);
    capacity -= here;
  }
}

static void F(inverse)(const uint8_t *residuals, size_t count, size_t capacity, gpufi_line *line,
                       uint8_t *raw) {
  if (line->transform == GPUFI_TRANSFORM_ROTATE) {
    F(inverse_lines)(residuals, count, capacity, line, raw, GPUFI_TRANSFORM_ROTATE);
  } else if (line->transform == GPUFI_TRANSFORM_ORDER) {
    F(inverse_lines)(residuals, count, capacity, line, raw, GPUFI_TRANSFORM_ORDER);
  } else {
    F(inverse_lines)(residuals, count, capacity, line, raw, GPUFI_TRANSFORM_NONE);
  }
}

/* out[i] = raw[i], transformed; or out[i] -= or += it, by the sign. */
GPUFI_INLINE void F(term)(T *restrict out, const uint8_t *restrict raw, size_t count,
                          const unsigned transform, const int sign) {
  for (size_t i = 0; i < count; i++) {
    const T x = F(apply)(F(get)(raw, i), transform);
    out[i] = sign == 0 ? x : (T)(sign > 0 ? out[i] + x : out[i] - x);
  }
}

/* The values less their neighbours in other lines. */
GPUFI_INLINE void F(outer)(T *restrict out, const uint8_t *raw, size_t count,
                           const gpufi_line *line, const unsigned transform) {
  F(term)(out, raw, count, transform, 0);
  for (unsigned k = 0; k < line->plus_count; k++) {
    F(term)(out, raw - line->plus[k], count, transform, -1);
  }
  for (unsigned k = 0; k < line->minus_count; k++) {
    F(term)(out, raw - line->minus[k], count, transform, 1);
  }
}

/* Values less those `step` before them, and as they are where a line starts. values[-2] and
 * values[-1] are the ones before: the carry. The first loop takes no notice of the starts, so that
 * it is one loop, and the second writes these again. */
GPUFI_INLINE void F(along)(const T *restrict values, size_t count, gpufi_line *line,
                           const unsigned step, uint8_t *restrict residuals) {
  const T offset = (T)line->offset;
  for (size_t i = 0; i < count; i++) {
    F(put)(residuals, i, (T)(values[i] - *(values + i - step) - offset));
  }
  for (size_t start = line->left; start < count; start += line->length) {
    for (size_t i = start; i < start + step; i++) {
      F(put)(residuals, i, (T)(values[i] - offset));
    }
    line->left += line->length;
  }
  line->left -= count;
  line->carry[0] = *(values + count - step);
  line->carry[1] = values[count - 1];
}

/* Value `i` less its neighbours in other lines, which are given as arrays of their own. */
GPUFI_INLINE T F(outer_value)(const uint8_t *const *arrays, size_t i, const unsigned transform,
                              const unsigned neighbours) {
  const T x = F(apply)(F(get)(arrays[0], i), transform);
  if (neighbours == 0) {
    return x;
  }
  const T above = F(apply)(F(get)(arrays[1], i), transform);
  if (neighbours == 1) {
    return (T)(x - above);
  }
  const T before = F(apply)(F(get)(arrays[2], i), transform);
  return (T)(x - above - before + F(apply)(F(get)(arrays[3], i), transform));
}

/* Residuals along the line in one loop, for constant numbers of neighbours, 0, 1 or 3: each value
 * is computed again for the one after it, which is cheaper than to keep it. The loop takes no
 * notice of the starts of lines, which are then written again. */
GPUFI_INLINE void F(forward_at_once)(const uint8_t *raw, size_t count, gpufi_line *line,
                                     uint8_t *restrict residuals, const unsigned transform,
                                     const unsigned neighbours) {
  const uint8_t *const arrays[4] = {raw, neighbours > 0 ? raw - line->plus[0] : raw,
                                    neighbours > 1 ? raw - line->plus[1] : raw,
                                    neighbours > 1 ? raw - line->minus[0] : raw};
  const T offset = (T)line->offset;
#define OUTER(i) F(outer_value)(arrays, i, transform, neighbours)
  F(put)(residuals, 0, (T)(OUTER(0) - (T)line->carry[0] - offset));
  for (size_t i = 1; i < count; i++) {
    F(put)(residuals, i, (T)(OUTER(i) - OUTER(i - 1) - offset));
  }
  for (size_t start = line->left; start < count; start += line->length) {
    F(put)(residuals, start, (T)(OUTER(start) - offset));
    line->left += line->length;
  }
  line->left -= count;
  line->carry[0] = OUTER(count - 1);
#undef OUTER
}

/* Any number of neighbours, by loops over all values for each of them. */
GPUFI_INLINE void F(forward_by_terms)(const uint8_t *raw, size_t count, gpufi_line *line,
                                      uint8_t *residuals, const unsigned transform) {
  T space[2 + GPUFI_BLOCK_VALUES];
  T *const values = space + 2;
  F(outer)(values, raw, count, line, transform);
  if (line->step == 1) {
    space[1] = (T)line->carry[0];
    F(along)(values, count, line, 1, residuals);
  } else if (line->step == 2) {
    space[0] = (T)line->carry[0];
    space[1] = (T)line->carry[1];
    F(along)(values, count, line, 2, residuals);
  } else {
    for (size_t i = 0; i < count; i++) {
      F(put)(residuals, i, (T)(values[i] - (T)line->offset));
    }
  }
}

GPUFI_INLINE void F(forward_lines)(const uint8_t *raw, size_t count, gpufi_line *line,
                                   uint8_t *residuals, const unsigned transform) {
  if (line->step == 1 && line->plus_count == 0) {
    F(forward_at_once)(raw, count, line, residuals, transform, 0);
  } else if (line->step == 1 && line->plus_count == 1) {
    F(forward_at_once)(raw, count, line, residuals, transform, 1);
  } else if (line->step == 1 && line->plus_count == 2) {
    F(forward_at_once)(raw, count, line, residuals, transform, 3);
  } else {
    F(forward_by_terms)(raw, count, line, residuals, transform);
  }
}

static void F(forward)(const uint8_t *raw, size_t count, gpufi_line *line, uint8_t *residuals) {
  if (line->transform == GPUFI_TRANSFORM_ROTATE) {
    F(forward_lines)(raw, count, line, residuals, GPUFI_TRANSFORM_ROTATE);
  } else if (line->transform == GPUFI_TRANSFORM_ORDER) {
    F(forward_lines)(raw, count, line, residuals, GPUFI_TRANSFORM_ORDER);
  } else {
    F(forward_lines)(raw, count, line, residuals, GPUFI_TRANSFORM_NONE);
  }
}

#undef VALUES
#undef V
