/* Prediction for one width of value; included by predict.c once a width, with
 *   T        the unsigned type      BITS     its width
 *   F(name)  the function's name    SWAP(x)  its bytes reversed */

static inline T F(apply)(T x, unsigned transform) {
  const T sign = (T)(x >> (BITS - 1));
  if (transform == GPUFI_TRANSFORM_ROTATE) {
    return (T)((T)(x << 1) | sign);
  }
  if (transform == GPUFI_TRANSFORM_ORDER) {
    return (T)(x ^ (T)((T)(0 - sign) >> 1));
  }
  return x;
}

static inline T F(undo)(T x, unsigned transform) {
  if (transform == GPUFI_TRANSFORM_ROTATE) {
    return (T)((T)(x >> 1) | (T)(x << (BITS - 1)));
  }
  return F(apply)(x, transform); /* the other two are their own inverse */
}

static void F(load)(T *restrict v, const uint8_t *restrict raw, size_t count, bool swap,
                    unsigned transform) {
  memcpy(v, raw, count * sizeof(T));
  if (swap) {
    for (size_t i = 0; i < count; i++) {
      v[i] = SWAP(v[i]);
    }
  }
  if (transform == GPUFI_TRANSFORM_ROTATE) {
    for (size_t i = 0; i < count; i++) {
      v[i] = F(apply)(v[i], GPUFI_TRANSFORM_ROTATE);
    }
  } else if (transform == GPUFI_TRANSFORM_ORDER) {
    for (size_t i = 0; i < count; i++) {
      v[i] = F(apply)(v[i], GPUFI_TRANSFORM_ORDER);
    }
  }
}

static void F(store)(uint8_t *raw, size_t count, bool swap, unsigned transform) {
  for (size_t i = 0; i < count && (swap || transform); i++) {
    T x;
    memcpy(&x, raw + i * sizeof(T), sizeof(T));
    x = F(undo)(x, transform);
    x = swap ? SWAP(x) : x;
    memcpy(raw + i * sizeof(T), &x, sizeof(T));
  }
}

/* One line of `count` values `stride` apart: each minus, or plus, the one before it. `v` may be
 * unaligned for T, so it is reached through memcpy. */
static inline T F(get)(const uint8_t *v, size_t i) {
  T x;
  memcpy(&x, v + i * sizeof(T), sizeof(T));
  return x;
}

static inline void F(put)(uint8_t *v, size_t i, T x) {
  memcpy(v + i * sizeof(T), &x, sizeof(T));
}

static void F(line)(uint8_t *v, size_t count, size_t stride, bool inverse) {
  if (inverse) {
    T sum = F(get)(v, 0);
    for (size_t i = 1; i < count; i++) {
      sum = (T)(sum + F(get)(v, i * stride));
      F(put)(v, i * stride, sum);
    }
    return;
  }
  for (size_t i = count - 1; i > 0; i--) {
    F(put)(v, i * stride, (T)(F(get)(v, i * stride) - F(get)(v, (i - 1) * stride)));
  }
}

/* dst[i] -= src[i], or +=; the two do not overlap. */
static void F(rows)(uint8_t *restrict dst, const uint8_t *restrict src, size_t count,
                    bool inverse) {
  if (inverse) {
    for (size_t i = 0; i < count; i++) {
      F(put)(dst, i, (T)(F(get)(dst, i) + F(get)(src, i)));
    }
    return;
  }
  for (size_t i = 0; i < count; i++) {
    F(put)(dst, i, (T)(F(get)(dst, i) - F(get)(src, i)));
  }
}

/* `count` slabs of `inner` values, one after the other. */
static void F(slabs)(uint8_t *v, size_t count, size_t inner, bool inverse) {
  const size_t nbytes = inner * sizeof(T);
  if (inner < 4) {
    for (size_t c = 0; c < inner; c++) {
      F(line)(v + c * sizeof(T), count, inner, inverse);
    }
    return;
  }
  for (size_t i = 1; i < count; i++) {
    const size_t k = inverse ? i : count - i;
    F(rows)(v + k * nbytes, v + (k - 1) * nbytes, inner, inverse);
  }
}

/* Cost of each axes subset over group `first` .. first + 7, added to `cost`. */
static void F(sample)(const gpufi_geometry *g, const sample_axes *axes, const uint8_t *raw,
                      bool swap, unsigned transform, size_t first, sample_cost *cost) {
  T zigzags[SUBSETS] = {0};
  const size_t end = first + GPUFI_GROUP_VALUES;
  for (size_t i = first; i < end && i < g->value_count; i++) {
    T f[SUBSETS];
    size_t before; /* distance to the value that the chain rule predicts from; 0 = none */
    const unsigned inside = sample_locate(g, axes, i, &before);
    for (unsigned s = 0; s < axes->subset_count; s++) {
      T x = 0;
      if ((s & ~inside) == 0) {
        x = F(get)(raw, i - axes->offset[s]);
        x = F(apply)(swap ? SWAP(x) : x, transform);
      }
      f[s] = x;
    }
    T chained = 0;
    if (before != 0) {
      chained = F(get)(raw, i - before);
      chained = (T)(f[0] - F(apply)(swap ? SWAP(chained) : chained, transform));
    }
    for (unsigned bit = 1; bit < axes->subset_count; bit <<= 1) {
      for (unsigned s = 0; s < axes->subset_count; s++) {
        f[s] = (s & bit) ? (T)(f[s ^ bit] - f[s]) : f[s];
      }
    }
    for (unsigned s = 0; s < axes->subset_count; s++) {
      const T r = (s != 0 && (s & inside) == 0) ? chained : f[s];
      cost->residual_or[s] |= r;
      zigzags[s] |= (T)((T)(r << 1) ^ (T)(0 - (T)(r >> (BITS - 1))));
    }
  }
  for (unsigned s = 0; s < axes->subset_count; s++) {
    cost->width_sum[s] += zigzags[s] ? 64 - (uint32_t)__builtin_clzll(zigzags[s]) : 0;
    cost->nonzero_count[s] += zigzags[s] != 0;
  }
}
