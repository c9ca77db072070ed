/* Prediction of whole chunks for one width of value; included by each_width.h in predict.c, which
 * has bswap_N(x) for each width N. */

#include "codec/value_impl.h"

/* `count` raw values to native ones, transformed. One loop for each step, so that each vectorizes.
 */
static void F(load)(T *v, const uint8_t *raw, size_t count, bool swap, unsigned transform) {
  if ((const uint8_t *)v != raw) {
    memcpy(v, raw, count * sizeof(T));
  }
  if (swap) {
    for (size_t i = 0; i < count; i++) {
      v[i] = F(bswap)(v[i]);
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

/* The inverse of load, in place. */
static void F(store)(uint8_t *raw, size_t count, bool swap, unsigned transform) {
  for (size_t i = 0; i < count && (swap || transform); i++) {
    T x;
    memcpy(&x, raw + i * sizeof(T), sizeof(T));
    x = F(undo)(x, transform);
    x = swap ? F(bswap)(x) : x;
    memcpy(raw + i * sizeof(T), &x, sizeof(T));
  }
}

/* One line of `count` values `stride` apart: each minus, or plus, the one before it. Differences
 * are taken from the end, so that the one before is still itself. */
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

/* dst[i] -= src[i], or += if inverse; the two do not overlap. */
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

/* Differences, or sums, along an axis of `count` indices, of which each has `inner` values that lie
 * side by side: each such range minus, or plus, the one before it. Where they are short it is done
 * by lines instead, one for each of the `inner` places. */
static void F(axis)(uint8_t *v, size_t count, size_t inner, bool inverse) {
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

/* v[i] += offset */
static void F(add)(uint8_t *v, size_t count, uint64_t offset) {
  for (size_t i = 0; i < count; i++) {
    F(put)(v, i, (T)(F(get)(v, i) + (T)offset));
  }
}

/* out[j] += the value number i + j, transformed, or -= it. */
static void F(term)(T *restrict out, const uint8_t *restrict raw, size_t i, size_t count, bool swap,
                    unsigned transform, bool minus) {
  for (size_t j = 0; j < count; j++) {
    T x = F(get)(raw, i + j);
    x = F(apply)(swap ? F(bswap)(x) : x, transform);
    out[j] = (T)(minus ? out[j] - x : out[j] + x);
  }
}

static void F(range)(const gpufi_geometry *g, const uint8_t *raw, bool swap, unsigned transform,
                     uint32_t axes, uint64_t offset, size_t first, size_t count,
                     uint8_t *residuals) {
  T sums[GPUFI_BLOCK_VALUES];
  value_terms terms;
  for (size_t i = 0; i < count; i++) {
    sums[i] = (T)(0 - offset);
  }
  for (size_t done = 0; done < count;) {
    const size_t alike = value_terms_of(g, axes, first + done, &terms);
    const size_t here = alike < count - done ? alike : count - done;
    for (unsigned k = 0; k < terms.count; k++) {
      F(term)(sums + done, raw, first + done - terms.back[k], here, swap, transform,
              terms.minus[k]);
    }
    done += here;
  }
  for (size_t c = first; c < g->component_count && axes != 0 && c < first + count; c++) {
    sums[c - first] = 0;
  }
  memcpy(residuals, sums, count * sizeof(T));
}
