/* Values of one width: access and transforms; included by each_width.h. Values lie in the caller's
 * bytes, which need not be aligned, so they are reached through memcpy. */

static inline T F(get)(const uint8_t *p, size_t i) {
  T x;
  memcpy(&x, p + i * sizeof(T), sizeof(T));
  return x;
}

static inline void F(put)(uint8_t *p, size_t i, T x) {
  memcpy(p + i * sizeof(T), &x, sizeof(T));
}

/* The transform. T may be narrower than int, to which every operand is promoted, so each result is
 * cut to T before it is shifted down. */
static inline T F(apply)(T x, unsigned transform) {
  const T sign = (T)(x >> (BITS - 1));
  return transform == GPUFI_TRANSFORM_ROTATE  ? (T)((T)(x << 1) | sign)
         : transform == GPUFI_TRANSFORM_ORDER ? (T)(x ^ (T)((T)(0 - sign) >> 1))
                                              : x;
}

/* Its inverse; the order transform is its own, for it leaves the sign. */
static inline T F(undo)(T x, unsigned transform) {
  return transform == GPUFI_TRANSFORM_ROTATE ? (T)((T)(x >> 1) | (T)(x << (BITS - 1)))
                                             : F(apply)(x, transform);
}
