/* Prediction of whole chunks for one width of value; included by each_width.h in predict.c, which
 * has bswap_N(x) for each width N. */

#include "codec/value_impl.h"

#include "codec/base_impl.h"

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

/* Value `i` as it is predicted. */
static inline T F(native)(const sample_source *source, size_t i) {
  const T x = F(get)(source->raw, i);
  return source->swap ? F(bswap)(x) : x;
}

/* The values of the group of value `i`, or as many as there are; returns how many. */
static size_t F(load_group)(const sample_source *source, size_t i, T values[GPUFI_GROUP_VALUES]) {
  const size_t first = i / GPUFI_GROUP_VALUES * GPUFI_GROUP_VALUES;
  const size_t left = source->g->value_count - first;
  const size_t count = left < GPUFI_GROUP_VALUES ? left : GPUFI_GROUP_VALUES;
  for (size_t k = 0; k < count; k++) {
    values[k] = F(native)(source, first + k);
  }
  return count;
}

/* Value `i` by its base, as the encoder's kernels find it (number_impl.h): one that has nothing of
 * its own has that of the nearest one before it in its group, or else of the first one after it. */
static T F(based)(const sample_source *source, size_t i) {
  const gpufi_numbers *const numbers = &source->numbers;
  const size_t step = source->g->component_count, group = i / GPUFI_GROUP_VALUES;
  const T x = F(native)(source, i);
  if (F(has_own)(numbers, x)) {
    return F(own)(numbers, x);
  }
  for (size_t k = i; k >= step && (k - step) / GPUFI_GROUP_VALUES == group;) {
    k -= step;
    const T before = F(native)(source, k);
    if (F(has_own)(numbers, before)) {
      return F(own)(numbers, before);
    }
  }
  for (size_t k = i + step; k / GPUFI_GROUP_VALUES == group && k < source->g->value_count;
       k += step) {
    const T after = F(native)(source, k);
    if (F(has_own)(numbers, after)) {
      return F(own)(numbers, after);
    }
  }
  return F(has_own)(numbers, (T)numbers->filler) ? F(own)(numbers, (T)numbers->filler) : 0;
}

static inline T F(sampled)(const sample_source *source, size_t i) {
  return source->based ? F(based)(source, i) : F(apply)(F(native)(source, i), source->transform);
}

/* The residual of value `i` with each subset of the axes; the first element's is 0 with all but
 * none.
 *
 * r[s] starts as the value one step back along all axes of subset s, 0 outside the chunk. Then,
 * axis by axis, r[s with the axis] becomes r[s without it] - r[s with it]: after all axes this is
 * the sum over the subsets U of s of (-1)^|U| times the value at U. */
static void F(residuals)(const sample_source *source, const sample_axes *axes, size_t i,
                         T r[SUBSETS]) {
  size_t before; /* values back to the one that the chain rule predicts from; 0: there is none */
  const unsigned inside = sample_locate(source->g, axes, i, &before);
  for (unsigned s = 0; s < axes->subset_count; s++) {
    r[s] = (s & ~inside) == 0 ? F(sampled)(source, i - axes->offset[s]) : 0;
  }
  const T chained = before != 0 ? (T)(r[0] - F(sampled)(source, i - before)) : 0;
  for (unsigned bit = 1; bit < axes->subset_count; bit <<= 1) {
    for (unsigned s = bit; s < axes->subset_count; s = (s + 1) | bit) { /* each s with this bit */
      r[s] = (T)(r[s ^ bit] - r[s]);
    }
  }
  for (unsigned s = 1; s < axes->subset_count;
       s++) { /* the chain rule, where no index in s is above 0 */
    r[s] = (s & inside) == 0 ? chained : r[s];
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
  sample_terms terms;
  for (size_t i = 0; i < count; i++) {
    sums[i] = (T)(0 - offset);
  }
  for (size_t done = 0; done < count;) {
    const size_t alike = sample_terms_of(g, axes, first + done, &terms);
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

/* Cost of each subset of the axes over group `first` .. first + 7, added to `cost`. */
static void F(sample)(const sample_source *source, const sample_axes *axes, uint64_t offset,
                      size_t first, sample_cost *cost) {
  T zigzags[SUBSETS] = {0}, residuals[SUBSETS] = {0};
  uint32_t used[SUBSETS] = {0};
  const size_t end = first + GPUFI_GROUP_VALUES;
  for (size_t i = first; i < end && i < source->g->value_count; i++) {
    F(residuals)(source, axes, i, residuals);
    for (unsigned s = 0; s < axes->subset_count; s++) {
      const T r = (T)(residuals[s] - (T)offset);
      cost->residual_or[s] |= r;
      zigzags[s] |= (T)((T)(r << 1) ^ (T)(0 - (T)(r >> (BITS - 1))));
      used[s] += r != 0;
    }
  }
  for (unsigned s = 0; s < axes->subset_count; s++) {
    const uint32_t width = zigzags[s] ? 64 - (uint32_t)__builtin_clzll(zigzags[s]) : 0;
    cost->width_sum[s] += width;
    cost->group_count[s] += zigzags[s] != 0;
    cost->used_width_sum[s] += used[s] * width;
    cost->used_count[s] += used[s];
  }
}

/* The cost of the corrections of group `first` .. first + 7, as subset 0. */
static void F(sample_corrections)(const sample_source *source, size_t first, sample_cost *cost) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  const unsigned index = gpufi_value_index(sizeof(T)), step = (unsigned)source->g->component_count;
  T values[GPUFI_GROUP_VALUES] = {0}, c[GPUFI_GROUP_VALUES] = {0}, zigzags = 0;
  const size_t count = F(load_group)(source, first, values);
  uint32_t used = 0;
  cpu->to_base[index](&source->numbers, step, (const uint8_t *)values, count, (uint8_t *)c);
  cpu->from_base[index](&source->numbers, count, (uint8_t *)c);
  cpu->corrections[index](&source->numbers, (const uint8_t *)values, count, (uint8_t *)c);
  for (size_t k = 0; k < count; k++) {
    cost->residual_or[0] |= c[k];
    zigzags |= (T)((T)(c[k] << 1) ^ (T)(0 - (T)(c[k] >> (BITS - 1))));
    used += c[k] != 0;
  }
  const uint32_t width = zigzags ? 64 - (uint32_t)__builtin_clzll(zigzags) : 0;
  cost->width_sum[0] += width;
  cost->group_count[0] += zigzags != 0;
  cost->used_width_sum[0] += used * width;
  cost->used_count[0] += used;
}

/* The residual of value `i` with subset `s`, as a number. */
static void F(residual)(const sample_source *source, const sample_axes *axes, size_t i, unsigned s,
                        int64_t *number) {
  T residuals[SUBSETS] = {0};
  F(residuals)(source, axes, i, residuals);
  const uint64_t top = UINT64_C(1) << (BITS - 1);
  *number = (int64_t)((residuals[s] ^ top) - top);
}
