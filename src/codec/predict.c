/* Lorenzo prediction: a value is predicted from its neighbours one step back along some of the axes
 * (the set), so that what varies along one of them only leaves nothing. Along two axes the residual
 * is
 *
 *   r[i][j] = v[i][j] - v[i][j-1] - v[i-1][j] + v[i-1][j-1]
 *
 * which is the difference along one axis of the differences along the other; so it is done, and
 * undone by running sums, axis by axis. */
#include "codec/predict.h"
#include "codec/kernels.h"
#include "codec/widths.h"

#include <string.h>

/* What a value's residual is the sum of: values some places back, each added or subtracted. */
typedef struct value_terms {
  unsigned count;
  size_t back[GPUFI_SUBSETS];
  bool minus[GPUFI_SUBSETS];
} value_terms;

/* The terms of value `i`'s residual, of which the first is the value itself; returns how many
 * values from there on have the same. The terms of the first element would be its value's alone,
 * but its residual is 0 if there is prediction. */
static size_t value_terms_of(const gpufi_geometry *g, uint32_t axes, size_t i, value_terms *terms) {
  const size_t component = i % g->component_count;
  uint32_t rest = (uint32_t)(i / g->component_count), inside = 0;
  size_t before = 0, length = g->value_count - i;
  int32_t last = g->ndim - 1;
  *terms = (value_terms){.count = 1};
  if (axes == 0) {
    return length;
  }
  while (last > 0 && g->dims[last] == 1) {
    last--;
  }
  for (int32_t a = last; a >= 0; a--) {
    const uint32_t index = rest % (uint32_t)g->dims[a];
    if (a == last) {
      length = (index == 0 ? 1 : g->dims[a] - index) * g->component_count - component;
    }
    if (index != 0) {
      inside |= 1u << a;
      before = before ? before : g->strides[a];
    }
    rest /= (uint32_t)g->dims[a];
  }
  if ((axes & inside) == 0) { /* the chain rule */
    terms->back[1] = before;
    terms->minus[1] = true;
    terms->count = before ? 2 : 1;
    return length;
  }
  for (int32_t a = 0; a < g->ndim; a++) {
    for (unsigned k = 0, n = terms->count; (axes & inside) >> a & 1 && k < n; k++) {
      terms->back[n + k] = terms->back[k] + g->strides[a];
      terms->minus[n + k] = !terms->minus[k];
      terms->count++;
    }
  }
  return length;
}

static inline uint8_t bswap_8(uint8_t x) {
  return x;
}

#define bswap_16 __builtin_bswap16
#define bswap_32 __builtin_bswap32
#define bswap_64 __builtin_bswap64

#define GPUFI_EACH_WIDTH "codec/predict_impl.h"
#include "codec/each_width.h"

#define BY_WIDTH(g, function, ...)                                                                 \
  do {                                                                                             \
    switch ((g)->value_nbytes) {                                                                   \
    case 1:                                                                                        \
      function##_8(__VA_ARGS__);                                                                   \
      break;                                                                                       \
    case 2:                                                                                        \
      function##_16(__VA_ARGS__);                                                                  \
      break;                                                                                       \
    case 4:                                                                                        \
      function##_32(__VA_ARGS__);                                                                  \
      break;                                                                                       \
    default:                                                                                       \
      function##_64(__VA_ARGS__);                                                                  \
    }                                                                                              \
  } while (0)

/* Differences, or sums, along `axis` over all of the chunk. */
static void along_whole(const gpufi_geometry *g, uint8_t *v, int32_t axis, bool inverse) {
  const size_t inner = g->strides[axis], whole = inner * g->dims[axis];
  for (size_t at = 0; at < g->value_count; at += whole) {
    BY_WIDTH(g, axis, v + at * g->value_nbytes, g->dims[axis], inner, inverse);
  }
}

/* The same over those values of the chunk where every axis in `fixed` has index 0. */
static void along_face(const gpufi_geometry *g, uint8_t *v, int32_t axis, uint32_t fixed,
                       bool inverse) {
  size_t index[GPUFI_CODEC_NDIM_MAX] = {0};
  size_t at = 0;
  for (;;) {
    for (size_t c = 0; c < g->component_count; c++) {
      BY_WIDTH(g, line, v + (at + c) * g->value_nbytes, g->dims[axis], g->strides[axis], inverse);
    }
    int32_t a = g->ndim - 1; /* count up, the last free axis fastest */
    for (; a >= 0; a--) {
      if (a == axis || (fixed >> a & 1)) {
        continue;
      }
      if (++index[a] < g->dims[a]) {
        at += g->strides[a];
        break;
      }
      at -= (index[a] - 1) * g->strides[a];
      index[a] = 0;
    }
    if (a < 0) {
      return;
    }
  }
}

/* Differences along the axes of the set over the whole chunk are Lorenzo prediction. They change
 * nothing on the face, where every axis of the set has index 0 and no value comes before. So the
 * face still holds the transformed values, and the chain rule takes differences there: along each
 * axis outside the set, over the values where all later axes outside it have index 0. The last axis
 * comes first, for one step back from an index of 1 lie values that only earlier axes may change.
 * Going back, all of it is in the reverse order. */
static void forward_axes(const gpufi_geometry *g, uint8_t *v, uint32_t axes) {
  uint32_t fixed = axes;
  for (int32_t a = 0; a < g->ndim; a++) {
    if (axes >> a & 1) {
      along_whole(g, v, a, false);
    }
  }
  for (int32_t a = g->ndim - 1; a >= 0; a--) {
    if (!(axes >> a & 1)) {
      along_face(g, v, a, fixed, false);
      fixed |= 1u << a;
    }
  }
}

static void inverse_axes(const gpufi_geometry *g, uint8_t *v, uint32_t axes) {
  uint32_t fixed = (1u << g->ndim) - 1;
  for (int32_t a = 0; a < g->ndim; a++) {
    if (!(axes >> a & 1)) {
      fixed &= ~(1u << a);
      along_face(g, v, a, fixed, true);
    }
  }
  for (int32_t a = 0; a < g->ndim; a++) {
    if (axes >> a & 1) {
      along_whole(g, v, a, true);
    }
  }
}

void gpufi_predict_forward(const gpufi_geometry *g, const void *raw, bool swap, uint8_t transform,
                           uint8_t axes, uint64_t offset, void *residuals, uint8_t seed[16]) {
  memset(seed, 0, 16);
  BY_WIDTH(g, load, residuals, raw, g->value_count, swap, transform);
  if (axes != 0) {
    forward_axes(g, residuals, axes);
    memcpy(seed, residuals, g->component_count * g->value_nbytes);
  }
  if (offset != 0) {
    BY_WIDTH(g, add, residuals, g->value_count, 0 - offset);
  }
  if (axes != 0) {
    memset(residuals, 0, g->component_count * g->value_nbytes);
  }
}

void gpufi_predict_range(const gpufi_geometry *g, const void *raw, bool swap, uint8_t transform,
                         uint8_t axes, uint64_t offset, size_t first, size_t count,
                         void *residuals) {
  BY_WIDTH(g, range, g, raw, swap, transform, axes, offset, first, count, residuals);
}

void gpufi_predict_inverse(const gpufi_geometry *g, void *values, bool swap, uint8_t transform,
                           uint8_t axes, uint64_t offset, const uint8_t seed[16]) {
  if (offset != 0) {
    BY_WIDTH(g, add, values, g->value_count, offset);
  }
  if (axes != 0) {
    memcpy(values, seed, g->component_count * g->value_nbytes);
    inverse_axes(g, values, axes);
  }
  BY_WIDTH(g, store, values, g->value_count, swap, transform);
}
