/* The sampled groups are far apart, and with each of them come its neighbours, one group of values
 * for each subset of the axes. All of it is copied side by side, whole aligned groups, so that the
 * kernels that convert blocks of values can be used, also those that look at the other values of a
 * group:
 *
 *   subset         {}, {x}             {y}, {x, y}         ...
 *   values         | 8 | group |       | 8 | 8 |
 *   neighbours in      ^{x} = one       ^ somewhere in 16: a step back along y from the group, and
 *                  step before {}         one more along x
 *
 * Two aligned groups hold the eight values of a subset without the last axis, and of that with it.
 */
#include "codec/sample.h"
#include "codec/bytes.h"
#include "codec/cpu.h"

#include <string.h>

#define WINDOW ((size_t)2 * GPUFI_GROUP_VALUES)

static void init_axes(gpufi_sample *sample, const gpufi_geometry *g) {
  const uint32_t usable = gpufi_geometry_axes(g);
  sample->subset_count = 1;
  sample->offset[0] = 0;
  for (int32_t a = g->ndim - 1; a >= 0; a--) {
    if (usable >> a & 1) {
      const unsigned bit = sample->subset_count;
      sample->axis[__builtin_ctz(bit)] = a;
      for (unsigned s = 0; s < bit; s++) {
        sample->offset[s | bit] = sample->offset[s] + g->strides[a];
      }
      sample->subset_count <<= 1;
    }
  }
}

/* Value `i` of the chunk, as number `j` of the place's group. */
static void locate(const gpufi_geometry *g, const gpufi_sample *sample, size_t i, size_t j,
                   gpufi_sample_place *place) {
  uint32_t rest = (uint32_t)(i / g->component_count);
  unsigned nonzero = 0, inside = 0;
  size_t before = 0;
  for (int32_t a = g->ndim - 1; a >= 0 && rest != 0; a--) {
    const uint32_t dim = (uint32_t)g->dims[a];
    if (rest % dim != 0) {
      nonzero |= 1u << a;
      before = before ? before : g->strides[a];
    }
    rest /= dim;
  }
  for (unsigned bit = 0; 1u << bit < sample->subset_count; bit++) {
    inside |= (nonzero >> sample->axis[bit] & 1) << bit;
  }
  place->inside[j] = (uint8_t)inside;
  if (inside == 0 && before != 0 && place->far == 0) {
    place->far = before;
    place->far_value = (uint8_t)j;
  }
}

/* Values of a line have the same indices but along the last axis, so those after its second element
 * are located as the second is. */
static void init_place(const gpufi_geometry *g, const gpufi_sample *sample, size_t k,
                       gpufi_sample_place *place) {
  const size_t first = gpufi_sample_first(g, k), step = g->component_count;
  const size_t left = g->value_count - first;
  const size_t count = left < GPUFI_GROUP_VALUES ? left : GPUFI_GROUP_VALUES;
  const size_t length = sample->subset_count > 1 ? g->dims[sample->axis[0]] * step : 1;
  size_t along = first % length; /* place in the line */
  *place = (gpufi_sample_place){.first = first};
  for (size_t j = 0; j < count; j++, along++) {
    along = along == length ? 0 : along;
    if (j != 0 && along >= 2 * step) {
      place->inside[j] = place->inside[j - 1];
    } else {
      locate(g, sample, first + j, j, place);
    }
  }
}

/* Memory is far away, and all of it can be on the way at once. */
static void prefetch(const gpufi_geometry *g, const gpufi_sample *sample, size_t first,
                     const uint8_t *raw) {
  for (unsigned s = 0; s < sample->subset_count; s += 2) {
    if (sample->offset[s] <= first) {
      const uint8_t *const at = raw + (first - sample->offset[s]) * g->value_nbytes;
      __builtin_prefetch(at);
    }
  }
}

void gpufi_sample_init(gpufi_sample *sample, const gpufi_geometry *g, const uint8_t *raw) {
  init_axes(sample, g);
  sample->count = gpufi_sample_count(g);
  for (size_t k = 0; k < sample->count; k++) {
    init_place(g, sample, k, &sample->places[k]);
    prefetch(g, sample, sample->places[k].first, raw);
  }
}

/* The aligned group of values from number `first` on. It may be outside the chunk, where it is
 * zeros; the last one of the chunk is filled up with its last element, which changes nothing for
 * those before. */
static void load_group(const gpufi_sampled *of, ptrdiff_t first, uint8_t *to) {
  const gpufi_geometry *const g = of->g;
  const size_t nbytes = g->value_nbytes, step_nbytes = g->component_count * nbytes;
  if (first < 0 || (size_t)first >= g->value_count) {
    memset(to, 0, GPUFI_GROUP_VALUES * nbytes);
    return;
  }
  const uint8_t *const from = of->raw + (size_t)first * nbytes;
  const size_t left = g->value_count - (size_t)first;
  if (left >= GPUFI_GROUP_VALUES) {
    GPUFI_BY_NBYTES(nbytes, memcpy(to, from, GPUFI_GROUP_VALUES * sizeof(T)));
    return;
  }
  memcpy(to, from, left * nbytes);
  for (size_t at = left * nbytes; at < GPUFI_GROUP_VALUES * nbytes; at += nbytes) {
    memcpy(to + at, to + at - step_nbytes, nbytes);
  }
}

/* Two groups that hold the eight values from number `first` on, and those a step before; returns
 * where the eight begin. */
static size_t load_window(const gpufi_sampled *of, ptrdiff_t first, uint8_t *to) {
  const size_t nbytes = of->g->value_nbytes;
  const ptrdiff_t begin = first - (ptrdiff_t)of->g->component_count;
  const ptrdiff_t group = begin - (begin & (GPUFI_GROUP_VALUES - 1));
  if (group >= 0 && (size_t)group + WINDOW <= of->g->value_count) {
    GPUFI_BY_NBYTES(nbytes, memcpy(to, of->raw + (size_t)group * sizeof(T), WINDOW * sizeof(T)));
  } else {
    load_group(of, group, to);
    load_group(of, group + GPUFI_GROUP_VALUES, to + GPUFI_GROUP_VALUES * nbytes);
  }
  return (size_t)(first - group);
}

/* A group and its neighbours, to `raw` and from number `at` of the batch's values on; returns how
 * many values that are. Nobody looks at neighbours along an axis where all indices are 0. */
static size_t load_place(const gpufi_sampled *of, const gpufi_sample_place *place, size_t at,
                         uint8_t *raw, gpufi_sampled_group *group) {
  const gpufi_sample *const sample = of->sample;
  const size_t nbytes = of->g->value_nbytes, begin = at;
  const ptrdiff_t first = (ptrdiff_t)place->first;
  const size_t left = of->g->value_count - place->first;
  const unsigned all = sample->subset_count - 1;
  unsigned some = 0;
  *group = (gpufi_sampled_group){
      .count = (uint8_t)(left < GPUFI_GROUP_VALUES ? left : GPUFI_GROUP_VALUES)};
  group->is_inner = group->count == GPUFI_GROUP_VALUES;
  memcpy(group->inside, place->inside, sizeof(group->inside));
  for (size_t j = 0; j < group->count; j++) {
    some |= place->inside[j];
    group->is_inner &= place->inside[j] == all;
  }
  for (unsigned s = 0; s < sample->subset_count; s += 2) {
    if ((s & ~some) == 0) {
      const size_t here = load_window(of, first - (ptrdiff_t)sample->offset[s], raw + at * nbytes);
      group->at[s / 2] = (uint16_t)(at + here);
      at += WINDOW;
    }
  }
  if (place->far != 0) {
    const ptrdiff_t from = first + place->far_value - (ptrdiff_t)place->far;
    const size_t here = load_window(of, from, raw + at * nbytes);
    group->far = (uint16_t)(at + here - place->far_value);
    group->has_far = true;
    at += WINDOW;
  }
  return at - begin;
}

static void reverse_bytes(size_t nbytes, size_t count, uint8_t *values) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t x = gpufi_load_swapped(values + i * nbytes, nbytes);
    memcpy(values + i * nbytes, &x, nbytes);
  }
}

void gpufi_sample_gather(const gpufi_sampled *of, size_t k, size_t most,
                         gpufi_sample_batch *batch) {
  const gpufi_sample *const sample = of->sample;
  const size_t values = WINDOW * ((sample->subset_count + 1) / 2 + 1); /* of one group at most */
  const size_t end = sample->count - k < most ? sample->count : k + most;
  size_t at = 0;
  batch->count = 0;
  for (; k < end && GPUFI_BLOCK_VALUES - at >= values; k++) {
    at += load_place(of, &sample->places[k], at, batch->raw, &batch->groups[batch->count++]);
  }
  batch->value_count = at;
  if (of->swap) {
    reverse_bytes(of->g->value_nbytes, at, batch->raw);
  }
}

void gpufi_sample_gather_alone(const gpufi_sampled *of, size_t k, size_t most,
                               gpufi_sample_batch *batch) {
  const gpufi_sample *const sample = of->sample;
  const size_t nbytes = of->g->value_nbytes, group_nbytes = GPUFI_GROUP_VALUES * nbytes;
  const size_t left = sample->count - k;
  most = left < most ? left : most;
  batch->count = most < GPUFI_BLOCK_GROUPS ? most : GPUFI_BLOCK_GROUPS;
  for (size_t n = 0; n < batch->count; n++) {
    const size_t first = sample->places[k + n].first, more = of->g->value_count - first;
    const uint8_t count = (uint8_t)(more < GPUFI_GROUP_VALUES ? more : GPUFI_GROUP_VALUES);
    load_group(of, (ptrdiff_t)first, batch->raw + n * group_nbytes);
    batch->groups[n] = (gpufi_sampled_group){.at = {(uint16_t)(n * GPUFI_GROUP_VALUES)},
                                             .count = count,
                                             .is_inner = count == GPUFI_GROUP_VALUES};
  }
  batch->value_count = batch->count * GPUFI_GROUP_VALUES;
  if (of->swap) {
    reverse_bytes(nbytes, batch->value_count, batch->raw);
  }
}

void gpufi_sample_convert(const gpufi_sampled *of, const gpufi_numbers *numbers,
                          gpufi_sample_batch *batch) {
  const gpufi_geometry *const g = of->g;
  gpufi_cpu_get()->to_base[gpufi_value_index(g->value_nbytes)](
      numbers, (unsigned)g->component_count, batch->raw, batch->value_count, batch->values);
}
