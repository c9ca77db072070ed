/* Prediction along and across lines, for one width of value and one instruction set; included by
 * those with
 *   T, BITS         the unsigned type and its width
 *   F(name)         the function's name
 *   V               a vector of T
 *   F(prefix)(x, step) running sums of x's elements, in steps of 1 or 2 (a constant)
 *   LAST(x, step)   x's last `step` elements, over and over
 * which it undefines at its end. Loops over whole arrays are plain C that the compiler
 * vectorizes. */

#define V JOIN(v, BITS, )
#define VALUES (sizeof(V) / sizeof(T))

static inline __attribute__((always_inline)) V F(load)(const uint8_t *p) {
  V x;
  memcpy(&x, p, sizeof(x));
  return x;
}

static inline T F(get)(const uint8_t *p, size_t i) {
  T x;
  memcpy(&x, p + i * sizeof(T), sizeof(T));
  return x;
}

static inline void F(put)(uint8_t *p, size_t i, T x) {
  memcpy(p + i * sizeof(T), &x, sizeof(T));
}

/* A macro, for it serves values and vectors. */
#define APPLY(x, transform)                                                                        \
  ((transform) == GPUFI_TRANSFORM_ROTATE  ? (x) << 1 | (x) >> (BITS - 1)                           \
   : (transform) == GPUFI_TRANSFORM_ORDER ? (x) ^ (0 - ((x) >> (BITS - 1))) >> 1                   \
                                          : (x))
#define UNDO(x, transform)                                                                         \
  ((transform) == GPUFI_TRANSFORM_ROTATE ? (x) >> 1 | (x) << (BITS - 1) : APPLY(x, transform))

static inline T F(apply)(T x, unsigned transform) {
  const T sign = (T)(x >> (BITS - 1));
  return transform == GPUFI_TRANSFORM_ROTATE  ? (T)((T)(x << 1) | sign)
         : transform == GPUFI_TRANSFORM_ORDER ? (T)(x ^ (T)((T)(0 - sign) >> 1))
                                              : x;
}

static inline T F(undo)(T x, unsigned transform) {
  return transform == GPUFI_TRANSFORM_ROTATE ? (T)((T)(x >> 1) | (T)(x << (BITS - 1)))
                                             : F(apply)(x, transform);
}

/* `step` values over and over. */
static inline __attribute__((always_inline)) V F(steps)(const uint64_t *values,
                                                        const unsigned step) {
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

/* Running sums, neighbours and the transform, whole vectors at a time. The last vector may reach
 * past `count` if `room` has space for it: later values overwrite what it leaves there. Returns the
 * values done. */
static inline __attribute__((always_inline)) size_t
F(inverse_vectors)(const uint8_t *residuals, size_t count, size_t room, gpufi_line *line,
                   uint8_t *raw, uint8_t *above, const unsigned transform, const unsigned step,
                   const unsigned plus_count, const unsigned minus_count) {
  V carry = F(steps)(line->carry, step), sums = {0}, beyond = {0};
  const T offset = transform == GPUFI_TRANSFORM_NONE ? (T)line->offset : 0; /* floats have none */
  const bool splits = above != NULL && count < line->left;
  size_t i = 0;
  if (splits) {
    beyond = F(load)(above + count * sizeof(T));
  }
  for (; i < count && i + VALUES <= room; i += VALUES) {
    uint8_t *const at = raw + i * sizeof(T);
    V x = F(load)(residuals + i * sizeof(T)) + offset;
    if (step != 0) {
      const V prefix = F(prefix)(x, step);
      sums = x = prefix + carry;
      carry += F(last)(prefix, step);
    }
    if (above != NULL) {
      x += F(load)(above + i * sizeof(T));
      memcpy(above + i * sizeof(T), &x, sizeof(x));
    }
    for (unsigned k = 0; k < plus_count; k++) {
      const V y = F(load)(at - line->plus[k]);
      x += APPLY(y, transform);
    }
    for (unsigned k = 0; k < minus_count; k++) {
      const V y = F(load)(at - line->minus[k]);
      x -= APPLY(y, transform);
    }
    x = UNDO(x, transform);
    memcpy(at, &x, sizeof(x));
  }
  if (splits && i > count) {
    memcpy(above + count * sizeof(T), &beyond, sizeof(beyond));
  }
  if (step != 0 && i != 0 && (i < count || count < line->left)) { /* the line goes on */
    const size_t last = (i < count ? i : count) - 1 + VALUES - i; /* place in the last vector */
    T ends[VALUES];
    memcpy(ends, &sums, sizeof(ends));
    line->carry[0] = ends[last - (step - 1)]; /* `count` is even in steps of 2 */
    line->carry[1] = ends[last];
  }
  return i < count ? i : count;
}

static inline __attribute__((always_inline)) size_t F(inverse_steps)(const uint8_t *residuals,
                                                                     size_t count, size_t room,
                                                                     gpufi_line *line, uint8_t *raw,
                                                                     uint8_t *above,
                                                                     const unsigned transform) {
#define VECTORS(step, plus, minus)                                                                 \
  (above != NULL ? F(inverse_vectors)(residuals, count, room, line, raw, above, transform, step,   \
                                      plus, minus)                                                 \
                 : F(inverse_vectors)(residuals, count, room, line, raw, NULL, transform, step,    \
                                      plus, minus))
  if (line->step == 1 && line->plus_count == 0) {
    return VECTORS(1, 0, 0);
  }
  if (line->step == 1 && line->plus_count == 1) {
    return VECTORS(1, 1, 0);
  }
  if (line->step == 1) {
    return VECTORS(1, line->plus_count, line->minus_count);
  }
#if BITS != 16 /* parts of complex values have 32 or 64 bits, their places in a dictionary 8 */
  if (line->step == 2) {
    return VECTORS(2, line->plus_count, line->minus_count);
  }
#endif
  return VECTORS(0, line->plus_count, line->minus_count);
#undef VECTORS
}

/* A part of one line. */
static inline __attribute__((always_inline)) void F(inverse_part)(const uint8_t *residuals,
                                                                  size_t count, size_t room,
                                                                  gpufi_line *line, uint8_t *raw,
                                                                  const unsigned transform) {
  uint8_t *const above =
      line->above != NULL ? line->above + (line->length - line->left) * sizeof(T) : NULL;
  size_t i = F(inverse_steps)(residuals, count, room, line, raw, above, transform);
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

static inline __attribute__((always_inline)) void F(inverse_lines)(const uint8_t *residuals,
                                                                   size_t count, size_t room,
                                                                   gpufi_line *line, uint8_t *raw,
                                                                   const unsigned transform) {
  for (;;) {
    const size_t here = line->left < count ? line->left : count;
    F(inverse_part)(residuals, here, room, line, raw, transform);
    line->left -= here;
    count -= here;
    if (count == 0) {
      return;
    }
    line->left = line->length;
    line->carry[0] = line->carry[1] = 0;
    residuals += here * sizeof(T);
    raw += here * sizeof(T);
    room -= here;
  }
}

static void F(inverse)(const uint8_t *residuals, size_t count, size_t room, gpufi_line *line,
                       uint8_t *raw) {
  if (line->transform == GPUFI_TRANSFORM_ROTATE) {
    F(inverse_lines)(residuals, count, room, line, raw, GPUFI_TRANSFORM_ROTATE);
  } else if (line->transform == GPUFI_TRANSFORM_ORDER) {
    F(inverse_lines)(residuals, count, room, line, raw, GPUFI_TRANSFORM_ORDER);
  } else {
    F(inverse_lines)(residuals, count, room, line, raw, GPUFI_TRANSFORM_NONE);
  }
}

/* out[i] = raw[i], transformed; or out[i] -= or += it. */
static inline __attribute__((always_inline)) void F(term)(T *restrict out,
                                                          const uint8_t *restrict raw, size_t count,
                                                          const unsigned transform,
                                                          const int sign) {
  for (size_t i = 0; i < count; i++) {
    const T x = F(apply)(F(get)(raw, i), transform);
    out[i] = sign == 0 ? x : (T)(sign > 0 ? out[i] + x : out[i] - x);
  }
}

/* The values less their neighbours in other lines. */
static inline __attribute__((always_inline)) void F(outer)(T *restrict out, const uint8_t *raw,
                                                           size_t count, const gpufi_line *line,
                                                           const unsigned transform) {
  F(term)(out, raw, count, transform, 0);
  for (unsigned k = 0; k < line->plus_count; k++) {
    F(term)(out, raw - line->plus[k], count, transform, -1);
  }
  for (unsigned k = 0; k < line->minus_count; k++) {
    F(term)(out, raw - line->minus[k], count, transform, 1);
  }
}

/* Values less those `step` before them, and as they are where a line starts. values[-2] and
 * values[-1] are the ones before. */
static inline __attribute__((always_inline)) void F(along)(const T *restrict values, size_t count,
                                                           gpufi_line *line, const unsigned step,
                                                           uint8_t *restrict residuals) {
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

static void F(forward)(const uint8_t *raw, size_t count, gpufi_line *line, uint8_t *residuals) {
  T space[2 + GPUFI_BLOCK_VALUES];
  T *const values = space + 2;
  if (line->transform == GPUFI_TRANSFORM_ROTATE) {
    F(outer)(values, raw, count, line, GPUFI_TRANSFORM_ROTATE);
  } else if (line->transform == GPUFI_TRANSFORM_ORDER) {
    F(outer)(values, raw, count, line, GPUFI_TRANSFORM_ORDER);
  } else {
    F(outer)(values, raw, count, line, GPUFI_TRANSFORM_NONE);
  }
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

#undef VALUES
#undef APPLY
#undef UNDO
#undef V
