/* Lorenzo prediction: a value is predicted from its neighbours one step back along some of the axes
 * (the set), so that what varies along one of them only leaves nothing. Along two axes the residual
 * is
 *
 *   r[i][j] = v[i][j] - v[i][j-1] - v[i-1][j] + v[i-1][j-1]
 *
 * which is the difference along one axis of the differences along the other; so it is done, and
 * undone by running sums, axis by axis. Which axes are in the set, and which transform is taken, is
 * chosen by what the residuals of a sample would cost. */
#include "codec/predict.h"
#include "codec/cpu.h"
#include "codec/sample.h"
#include "codec/widths.h"

#include <string.h>

#define SUBSETS (1 << GPUFI_PREDICT_AXES)

/* The axes that prediction may go along, of which a chunk's set is some subset, as a number: bit 0
 * is the last such axis, bit 1 the one before it, and so on. */
typedef struct sample_axes {
  unsigned subset_count;
  int32_t axis[GPUFI_PREDICT_AXES]; /* axis of each bit */
  size_t offset[SUBSETS];           /* values from an element to its neighbour in the subset */
} sample_axes;

/* What the sampled residuals cost, for each subset. */
typedef struct sample_cost {
  uint64_t residual_or[SUBSETS];
  uint32_t width_sum[SUBSETS];      /* of the widest zigzagged residual of each group */
  uint32_t group_count[SUBSETS];    /* groups that are not all 0 */
  uint32_t used_width_sum[SUBSETS]; /* as width_sum, times the group's residuals that are not 0 */
  uint32_t used_count[SUBSETS];     /* residuals that are not 0 */
} sample_cost;

/* The bits of the axes along which value `i` has an index above 0. *before is the distance in
 * values to the one that the chain rule predicts it from: one step back along the last axis whose
 * index is not 0; 0 for the first element. */
static unsigned sample_locate(const gpufi_geometry *g, const sample_axes *axes, size_t i,
                              size_t *before) {
  uint32_t rest = (uint32_t)(i / g->component_count);
  unsigned nonzero = 0, inside = 0;
  *before = 0;
  for (int32_t a = g->ndim - 1; a >= 0 && rest != 0; a--) {
    const uint32_t dim = (uint32_t)g->dims[a];
    if (rest % dim != 0) {
      nonzero |= 1u << a;
      *before = *before ? *before : g->strides[a];
    }
    rest /= dim;
  }
  for (unsigned bit = 0; 1u << bit < axes->subset_count; bit++) {
    inside |= (nonzero >> axes->axis[bit] & 1) << bit;
  }
  return inside;
}

/* What a value's residual is the sum of: values some places back, each added or subtracted. */
typedef struct sample_terms {
  unsigned count;
  size_t back[SUBSETS];
  bool minus[SUBSETS];
} sample_terms;

/* The terms of value `i`'s residual, of which the first is the value itself; returns how many
 * values from there on have the same. The terms of the first element would be its value's alone,
 * but its residual is 0 if there is prediction. */
static size_t sample_terms_of(const gpufi_geometry *g, uint32_t axes, size_t i,
                              sample_terms *terms) {
  const size_t component = i % g->component_count;
  uint32_t rest = (uint32_t)(i / g->component_count), inside = 0;
  size_t before = 0, length = g->value_count - i;
  int32_t last = g->ndim - 1;
  *terms = (sample_terms){.count = 1};
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

/* The sampled values with one of the transforms. */
typedef struct sample_source {
  const gpufi_geometry *g;
  const uint8_t *raw;
  bool swap, based; /* based: by way of `numbers` */
  unsigned transform;
  gpufi_numbers numbers;
} sample_source;

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

static void sample_axes_init(sample_axes *axes, const gpufi_geometry *g) {
  const uint32_t usable = gpufi_geometry_axes(g);
  memset(axes, 0, sizeof(*axes));
  axes->subset_count = 1;
  for (int32_t a = g->ndim - 1; a >= 0; a--) {
    if (usable >> a & 1) {
      const unsigned bit = axes->subset_count;
      axes->axis[__builtin_ctz(bit)] = a;
      for (unsigned s = 0; s < bit; s++) {
        axes->offset[s | bit] = axes->offset[s] + g->strides[a];
      }
      axes->subset_count <<= 1;
    }
  }
}

static void sample_chunk(const sample_source *source, const sample_axes *axes, uint64_t offset,
                         sample_cost *cost) {
  const gpufi_geometry *const g = source->g;
  const size_t take = gpufi_sample_count(g);
  memset(cost, 0, sizeof(*cost));
  for (size_t k = 0; k < take; k++) {
    const size_t first = gpufi_sample_first(g, k);
    BY_WIDTH(g, sample, source, axes, offset, first, cost);
  }
}

/* Bits of the sampled groups with subset `s`: dense, 3 of a code for each and its values at its
 * width; sparse, the mask's and only the values that are not 0. Trailing zero bits that all
 * residuals share are not packed, and neither is the sign if none is negative. */
static uint64_t sampled_bits(const gpufi_geometry *g, const sample_cost *cost, unsigned s) {
  const uint64_t bits = cost->residual_or[s], take = gpufi_sample_count(g);
  const uint64_t shift = bits ? (uint64_t)__builtin_ctzll(bits) : 0;
  const uint64_t plain = !(bits >> (8 * g->value_nbytes - 1));
  const uint64_t less = shift + plain;
  const uint64_t dense =
      3 * take + GPUFI_GROUP_VALUES * (cost->width_sum[s] - less * cost->group_count[s]);
  const uint64_t sparse = take + (uint64_t)GPUFI_GROUP_VALUES * cost->group_count[s] +
                          cost->used_width_sum[s] - less * cost->used_count[s];
  return dense < sparse ? dense : sparse;
}

/* The median of the first residuals of some sampled groups, with subset `s`: sorted by insertion.
 */
static uint64_t sample_median(const sample_source *source, const sample_axes *axes, unsigned s) {
  const gpufi_geometry *const g = source->g;
  int64_t sorted[GPUFI_OFFSET_GROUPS];
  for (size_t n = 0; n < GPUFI_OFFSET_GROUPS; n++) {
    const size_t k = n * gpufi_sample_count(g) / GPUFI_OFFSET_GROUPS;
    int64_t r = 0;
    BY_WIDTH(g, residual, source, axes, gpufi_sample_first(g, k), s, &r);
    size_t at = n;
    for (; at > 0 && sorted[at - 1] > r; at--) {
      sorted[at] = sorted[at - 1];
    }
    sorted[at] = r;
  }
  const uint64_t median = (uint64_t)sorted[GPUFI_OFFSET_GROUPS / 2];
  return median & (UINT64_MAX >> (64 - 8 * g->value_nbytes));
}

/* Whether the residuals have an offset: those of integers, also of such as stand for floats, and of
 * places. The seed of a complex128 leaves no place for it in the header. */
static bool has_offset(const gpufi_sampled *sampled) {
  const bool is_number =
      sampled->numbers != NULL && gpufi_transform_has_parameters(sampled->numbers->transform);
  return !gpufi_chunk_dtype_is_float(sampled->dtype) ||
         (is_number && sampled->dtype != GPUF_DTYPE_COMPLEX128);
}

static sample_source source_of(const gpufi_sampled *sampled) {
  sample_source source = {.g = sampled->g, .raw = sampled->raw, .swap = sampled->swap};
  if (sampled->numbers != NULL) {
    source.based = true;
    source.numbers = *sampled->numbers;
  }
  return source;
}

uint64_t gpufi_predict_choose(const gpufi_sampled *sampled, uint8_t *transform, uint8_t *axes,
                              uint64_t *offset) {
  const gpufi_geometry *const g = sampled->g;
  const gpufi_numbers *const numbers = sampled->numbers;
  sample_source source = source_of(sampled);
  sample_axes usable;
  sample_cost cost;
  uint64_t best = UINT64_MAX;
  unsigned best_subset = 0, first = GPUFI_TRANSFORM_NONE, last = GPUFI_TRANSFORM_NONE;
  sample_axes_init(&usable, g);
  if (numbers != NULL && gpufi_transform_has_parameters(numbers->transform)) {
    first = last = numbers->transform;
  } else if (gpufi_chunk_dtype_is_float(sampled->dtype)) {
    first = GPUFI_TRANSFORM_ROTATE;
    last = GPUFI_TRANSFORM_ORDER;
  }
  for (unsigned t = first; t <= last; t++) {
    source.transform = source.numbers.transform = (uint8_t)t;
    sample_chunk(&source, &usable, 0, &cost);
    for (unsigned s = 0; s < usable.subset_count; s++) {
      const uint64_t total = sampled_bits(g, &cost, s);
      if (total < best) {
        best = total;
        best_subset = s;
        *transform = (uint8_t)t;
      }
    }
  }
  *axes = 0;
  for (unsigned bit = 0; 1u << bit < usable.subset_count; bit++) {
    *axes |= (uint8_t)((best_subset >> bit & 1) << usable.axis[bit]);
  }
  source.transform = source.numbers.transform = *transform;
  *offset = has_offset(sampled) ? sample_median(&source, &usable, best_subset) : 0;
  if (*offset != 0) {
    sample_chunk(&source, &usable, *offset, &cost);
    const uint64_t total = sampled_bits(g, &cost, best_subset);
    *offset = total < best ? *offset : 0;
    best = total < best ? total : best;
  }
  return best;
}

uint64_t gpufi_predict_corrections(const gpufi_sampled *sampled, uint8_t transform) {
  const gpufi_geometry *const g = sampled->g;
  sample_source source = source_of(sampled);
  sample_cost cost;
  source.numbers.transform = transform;
  memset(&cost, 0, sizeof(cost));
  for (size_t k = 0; k < gpufi_sample_count(g); k++) {
    BY_WIDTH(g, sample_corrections, &source, gpufi_sample_first(g, k), &cost);
  }
  return cost.used_count[0] != 0 ? sampled_bits(g, &cost, 0) : 0;
}
