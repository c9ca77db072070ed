/* The residuals of sampled groups and what they cost, for one width of value and one instruction
 * set; included by each_width.h after value_impl.h. A group is a vector of eight lanes. */

typedef T F(eight) __attribute__((vector_size(8 * sizeof(T))));
typedef S F(eight_signed) __attribute__((vector_size(8 * sizeof(T))));
typedef int8_t F(eight_flags) __attribute__((vector_size(8)));

/* Where some index is 0, value by value. The chain rule is for the subsets along all axes of which
 * the index is 0; and lanes without a value have a residual that is 0 when the offset is taken off.
 */
static void F(residuals_at_edge)(const gpufi_sample_batch *batch, const gpufi_sampled_group *group,
                                 unsigned subset_count, unsigned step, T offset,
                                 F(eight) all[GPUFI_SUBSETS]) {
  T lanes[GPUFI_SUBSETS][GPUFI_GROUP_VALUES];
  for (unsigned j = 0; j < GPUFI_GROUP_VALUES; j++) {
    T r[GPUFI_SUBSETS] = {0};
    const unsigned inside = group->inside[j];
    for (unsigned s = 0; s < subset_count && j < group->count; s++) {
      const size_t at = (size_t)group->at[s / 2] + j - (size_t)(s & 1) * step;
      r[s] = (s & ~inside) == 0 ? F(get)(batch->values, at) : 0;
    }
    const unsigned last = inside & -inside; /* of the axes whose index is not 0 */
    T chained = (T)(inside != 0 ? r[0] - r[last] : 0);
    if (inside == 0 && group->has_far) {
      chained = (T)(r[0] - F(get)(batch->values, (size_t)group->far + j));
    }
    for (unsigned bit = 1; bit < subset_count; bit <<= 1) {
      for (unsigned s = bit; s < subset_count; s = (s + 1) | bit) {
        r[s] = (T)(r[s ^ bit] - r[s]);
      }
    }
    for (unsigned s = 0; s < subset_count; s++) {
      const T here = s != 0 && (s & inside) == 0 ? chained : r[s];
      lanes[s][j] = j < group->count ? here : offset;
    }
  }
  memcpy(all, lanes, subset_count * sizeof(lanes[0]));
}

/* The residuals of a group with each subset of the axes. r[s] starts as the value one step back
 * along all axes of subset s, 0 outside the chunk. Then, axis by axis, r[s with the axis] becomes
 * r[s without it] - r[s with it]: after all axes this is the sum over the subsets U of s of
 * (-1)^|U| times the value at U. */
GPUFI_INLINE void F(residuals_of_group)(const gpufi_sample_batch *batch,
                                        const gpufi_sampled_group *group,
                                        const unsigned subset_count, unsigned step, T offset,
                                        F(eight) r[GPUFI_SUBSETS]) {
  if (!group->is_inner) {
    F(residuals_at_edge)(batch, group, subset_count, step, offset, r);
    return;
  }
  for (unsigned s = 0; s < subset_count; s++) {
    const size_t at = (size_t)group->at[s / 2] - (size_t)(s & 1) * step;
    memcpy(&r[s], batch->values + at * sizeof(T), sizeof(r[s]));
  }
  for (unsigned bit = 1; bit < subset_count; bit <<= 1) {
    for (unsigned s = bit; s < subset_count; s = (s + 1) | bit) {
      r[s] = r[s ^ bit] - r[s];
    }
  }
}

/* All lanes ORed into one. */
GPUFI_INLINE uint64_t F(any_of)(const F(eight) * x) {
  uint64_t words[sizeof(T)], any = 0;
  memcpy(words, x, sizeof(words));
  for (size_t k = 0; k < sizeof(T); k++) {
    any |= words[k];
  }
  for (unsigned by = 32; by >= BITS; by /= 2) {
    any |= any >> by;
  }
  return (T)any;
}

GPUFI_INLINE uint32_t F(used_lanes)(const F(eight) * x) {
  const F(eight_flags) used = __builtin_convertvector(*x != 0, F(eight_flags));
  uint64_t flags;
  memcpy(&flags, &used, sizeof(flags));
  return (uint32_t)__builtin_popcountll(flags) / 8;
}

GPUFI_INLINE void F(add_costs)(const gpufi_sample_batch *batch, const unsigned subset_count,
                               unsigned step, uint64_t offset, gpufi_sample_cost *cost) {
  F(eight) any[GPUFI_SUBSETS] = {0}, r[GPUFI_SUBSETS];
  for (size_t k = 0; k < batch->count; k++) {
    F(residuals_of_group)(batch, &batch->groups[k], subset_count, step, (T)offset, r);
    for (unsigned s = 0; s < subset_count; s++) {
      const F(eight) x = r[s] - (T)offset;
      const F(eight) z = (x << 1) ^ (F(eight))((F(eight_signed))x >> (BITS - 1));
      const uint64_t zigzags = F(any_of)(&z);
      const uint32_t width = zigzags ? 64 - (uint32_t)__builtin_clzll(zigzags) : 0;
      const uint32_t used = F(used_lanes)(&x);
      any[s] |= x;
      cost->width_sum[s] += width;
      cost->group_count[s] += zigzags != 0;
      cost->used_width_sum[s] += used * width;
      cost->used_count[s] += used;
    }
  }
  for (unsigned s = 0; s < subset_count; s++) {
    cost->residual_or[s] |= F(any_of)(&any[s]);
  }
}

/* With the numbers of subsets as constants, so that all vectors are registers. */
static void F(sample_costs)(const gpufi_sample_batch *batch, unsigned subset_count, unsigned step,
                            uint64_t offset, gpufi_sample_cost *cost) {
  switch (subset_count) {
  case 1:
    F(add_costs)(batch, 1, step, offset, cost);
    break;
  case 2:
    F(add_costs)(batch, 2, step, offset, cost);
    break;
  case 4:
    F(add_costs)(batch, 4, step, offset, cost);
    break;
  case 8:
    F(add_costs)(batch, 8, step, offset, cost);
    break;
  default:
    F(add_costs)(batch, 16, step, offset, cost);
  }
}

static void F(sample_residuals)(const gpufi_sample_batch *batch, unsigned subset_count,
                                unsigned step, unsigned subset, uint64_t offset,
                                uint8_t *residuals) {
  for (size_t k = 0; k < batch->count; k++) {
    F(eight) r[GPUFI_SUBSETS];
    F(residuals_of_group)(batch, &batch->groups[k], subset_count, step, (T)offset, r);
    r[subset] -= (T)offset;
    memcpy(residuals + k * sizeof(r[subset]), &r[subset], sizeof(r[subset]));
  }
}

/* A bit is so if it is 1 in some value, and also in some value's complement. */
static uint64_t F(busy_bits)(const uint8_t *residuals, size_t groups, bool zigzags) {
  uint64_t busy = 0;
  for (size_t k = 0; k < groups; k++) {
    F(eight) x;
    memcpy(&x, residuals + k * sizeof(x), sizeof(x));
    if (zigzags) {
      x = (x << 1) ^ (F(eight))((F(eight_signed))x >> (BITS - 1));
    }
    const F(eight) complement = ~x;
    busy += (uint64_t)__builtin_popcountll(F(any_of)(&x) & F(any_of)(&complement));
  }
  return busy;
}
