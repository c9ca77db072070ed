#include "codec/predict_choose.h"
#include "codec/bytes.h"
#include "codec/cpu.h"

static unsigned width_index(const gpufi_sampled *of) {
  return gpufi_value_index(of->g->value_nbytes);
}

/* What the sample costs with each subset of the axes, for each of the transforms first to last. */
static void add_up_costs(const gpufi_sampled *of, gpufi_numbers numbers, unsigned first,
                         unsigned last, uint64_t offset, gpufi_sample_cost *costs) {
  gpufi_sample_costs_fn *const add = gpufi_cpu_get()->sample_costs[width_index(of)];
  gpufi_sample_batch batch;
  memset(costs, 0, (last - first + 1) * sizeof(costs[0]));
  for (size_t k = 0; k < of->sample->count; k += batch.count) {
    gpufi_sample_gather(of, k, SIZE_MAX, &batch);
    for (unsigned t = first; t <= last; t++) {
      numbers.transform = (uint8_t)t;
      gpufi_sample_convert(of, &numbers, &batch);
      add(&batch, of->sample->subset_count, (unsigned)of->g->component_count, offset,
          &costs[t - first]);
    }
  }
}

/* Bits of the sampled groups with subset `s`: dense, 3 of a code for each and its values at its
 * width; sparse, the mask's and only the values that are not 0. Trailing zero bits that all
 * residuals share are not packed, and neither is the sign if none is negative. */
static uint64_t sampled_bits(const gpufi_geometry *g, const gpufi_sample_cost *cost, unsigned s) {
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

/* The first residual of the k-th sampled group with subset `s`, as a number. */
static int64_t first_residual(const gpufi_sampled *of, const gpufi_numbers *numbers, size_t k,
                              unsigned s) {
  const uint64_t top = UINT64_C(1) << (8 * of->g->value_nbytes - 1);
  uint8_t residuals[8 * GPUFI_GROUP_VALUES];
  gpufi_sample_batch batch;
  gpufi_sample_gather(of, k, 1, &batch);
  gpufi_sample_convert(of, numbers, &batch);
  gpufi_cpu_get()->sample_residuals[width_index(of)](
      &batch, of->sample->subset_count, (unsigned)of->g->component_count, s, 0, residuals);
  return (int64_t)((gpufi_load_value(residuals, of->g->value_nbytes) ^ top) - top);
}

/* The median of the first residuals of some sampled groups, with subset `s`: sorted by insertion.
 */
static uint64_t sample_median(const gpufi_sampled *of, const gpufi_numbers *numbers, unsigned s) {
  int64_t sorted[GPUFI_OFFSET_GROUPS];
  for (size_t n = 0; n < GPUFI_OFFSET_GROUPS; n++) {
    const int64_t r = first_residual(of, numbers, n * of->sample->count / GPUFI_OFFSET_GROUPS, s);
    size_t at = n;
    for (; at > 0 && sorted[at - 1] > r; at--) {
      sorted[at] = sorted[at - 1];
    }
    sorted[at] = r;
  }
  const uint64_t median = (uint64_t)sorted[GPUFI_OFFSET_GROUPS / 2];
  return median & (UINT64_MAX >> (64 - 8 * of->g->value_nbytes));
}

/* Whether the residuals have an offset: those of integers, also of such as stand for floats, and of
 * places. The seed of a complex128 leaves no place for it in the header. */
static bool has_offset(const gpufi_sampled *of, const gpufi_numbers *numbers) {
  return !gpufi_chunk_dtype_is_float(of->dtype) ||
         (gpufi_transform_has_parameters(numbers->transform) && of->dtype != GPUF_DTYPE_COMPLEX128);
}

uint64_t gpufi_predict_choose(const gpufi_sampled *of, const gpufi_numbers *numbers,
                              gpufi_w8_choice *choice) {
  const gpufi_sample *const sample = of->sample;
  gpufi_numbers tried = numbers != NULL ? *numbers : (gpufi_numbers){0};
  gpufi_sample_cost costs[2];
  uint64_t best = UINT64_MAX;
  unsigned best_subset = 0, first = tried.transform, last = tried.transform;
  if (!gpufi_transform_has_parameters(tried.transform) && gpufi_chunk_dtype_is_float(of->dtype)) {
    first = GPUFI_TRANSFORM_ROTATE;
    last = GPUFI_TRANSFORM_ORDER;
  }
  *choice = (gpufi_w8_choice){0};
  add_up_costs(of, tried, first, last, 0, costs);
  for (unsigned t = first; t <= last; t++) {
    for (unsigned s = 0; s < sample->subset_count; s++) {
      const uint64_t total = sampled_bits(of->g, &costs[t - first], s);
      if (total < best) {
        best = total;
        best_subset = s;
        choice->transform = (uint8_t)t;
      }
    }
  }
  for (unsigned bit = 0; 1u << bit < sample->subset_count; bit++) {
    choice->axes |= (uint8_t)((best_subset >> bit & 1) << sample->axis[bit]);
  }
  tried.transform = choice->transform;
  const uint64_t offset = has_offset(of, &tried) ? sample_median(of, &tried, best_subset) : 0;
  if (offset != 0) {
    add_up_costs(of, tried, tried.transform, tried.transform, offset, costs);
    const uint64_t total = sampled_bits(of->g, &costs[0], best_subset);
    choice->offset = total < best ? offset : 0;
    best = total < best ? total : best;
  }
  return best;
}

uint64_t gpufi_predict_corrections(const gpufi_sampled *of, const gpufi_numbers *numbers) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  const unsigned index = width_index(of), step = (unsigned)of->g->component_count;
  gpufi_sample_batch batch;
  gpufi_sample_cost cost = {0};
  for (size_t k = 0; k < of->sample->count; k += batch.count) {
    gpufi_sample_gather_alone(of, k, SIZE_MAX, &batch);
    gpufi_sample_convert(of, numbers, &batch);
    cpu->from_base[index](numbers, batch.value_count, batch.values);
    cpu->corrections[index](numbers, batch.raw, batch.value_count, batch.values);
    cpu->sample_costs[index](&batch, 1, step, 0, &cost);
  }
  return cost.used_count[0] != 0 ? sampled_bits(of->g, &cost, 0) : 0;
}
