/* Residuals of a block, from the raw values: see docs/format.md, Prediction. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RESIDUALS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RESIDUALS_CUH

#include "backend/cuda/codec/groups.cuh"
#include "backend/cuda/codec/neighbours.cuh"

namespace gpufi {

/* One chunk as a source of residuals, of its values as `Values` gives them. */
template <typename T, typename Values = chunk_values<T, false>> struct residual_source : Values {
  /* Whether values of a row, which has neighbours along the axes `inside` in other rows, are
   * predicted from those before them in the row: by Lorenzo's rule or by the chain rule. */
  __device__ bool goes_along_row(uint32_t inside) const {
    return (this->subset & 1) || inside == 0;
  }

  /* Value i where all indices along the subset are 0: the chain rule. */
  __device__ T chained(uint32_t i, T v) const {
    const chunk_grid &grid = this->grid;
    const uint32_t before = distance_before(grid, i / grid.component_count, 0);
    return before ? static_cast<T>(v - this->value(i - before)) : static_cast<T>(0);
  }

  /* Any value, at the price of a division for each axis. */
  __device__ T residual(uint32_t i) const {
    const chunk_grid &grid = this->grid;
    if (this->subset == 0) {
      return this->value(i);
    }
    const uint32_t row = divide(i, grid.row);
    uint32_t inside = this->axes_before(row, 0);
    if ((this->subset & 1) && i - row * grid.row_values >= grid.component_count) {
      inside |= 1;
    }
    return inside != 0 ? this->alternating(i, inside) : chained(i, this->value(i));
  }
};

/* Where a group lies among the rows; it is in one row or, if wrap < 8, in two. */
struct group_place {
  uint32_t column; /* of its first value */
  uint32_t wrap;   /* its value `wrap` and those behind it are in the next row */
  uint32_t inside; /* axes_before of the first row and of the next */
  uint32_t inside_next;
};

template <typename T>
__device__ __forceinline__ group_place place_group(const residual_source<T> &from, uint32_t i) {
  group_place at;
  const uint32_t row = divide(i, from.grid.row);
  at.column = i - row * from.grid.row_values;
  const uint32_t left = from.grid.row_values - at.column;
  at.wrap = left < kGroup ? left : kGroup;
  at.inside = from.axes_before(row, 0);
  at.inside_next = left < kGroup ? from.axes_before(row + 1, 0) : at.inside;
  return at;
}

/* Add to `sums`, which holds the group's values, those of their neighbours in other rows. */
template <typename T>
__device__ __forceinline__ void add_other_rows(const residual_source<T> &from, uint32_t i,
                                               const group_place &at, T *sums) {
  const uint32_t outer = from.subset & ~1u;
  for (uint32_t s = outer; s != 0; s = (s - 1) & outer) {
    const bool first = (s & ~at.inside) == 0, next = (s & ~at.inside_next) == 0;
    const uint32_t offset = from.grid.offsets[s];
    const bool minus = __popc(s) & 1;
    if (first && next) {
      T v[kGroup];
      load_group(from.raw, i - offset, v);
      transform_values<T, kGroup>(v, from.how);
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        sums[t] = static_cast<T>(minus ? sums[t] - v[t] : sums[t] + v[t]);
      }
    } else if (first || next) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        if (static_cast<uint32_t>(t) < at.wrap ? first : next) {
          const T v = from.value(i + static_cast<uint32_t>(t) - offset);
          sums[t] = static_cast<T>(minus ? sums[t] - v : sums[t] + v);
        }
      }
    }
  }
}

/* Start of a row at values t0 .. t0 + C - 1 of the group, that has no neighbour in another row: the
 * chain rule. */
template <typename T, int C>
__device__ __forceinline__ void chain_row_start(const residual_source<T> &from, uint32_t i,
                                                uint32_t t0, T *sums) {
  const uint32_t before = distance_before(from.grid, (i + t0) / from.grid.component_count, 0);
#pragma unroll
  for (uint32_t c = 0; c < C; c++) {
    const T v = before != 0 ? from.value(i + t0 + c - before) : static_cast<T>(0);
    const T keeps = mask_if<T>(before != 0); /* the first element is 0 */
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      const T all = mask_if<T>(t == t0 + c);
      sums[t] = static_cast<T>((sums[t] - (v & all)) & (keeps | ~all));
    }
  }
}

/* Subtract from each sum the one before it in its row: `before` holds those of the last C values
 * in front of the group, which is in one row, from `column` on. */
template <typename T, int C>
__device__ __forceinline__ void subtract_in_row(const residual_source<T> &from, uint32_t i,
                                                uint32_t column, uint32_t inside, const T *before,
                                                T *sums) {
#pragma unroll
  for (int t = kGroup - 1; t >= 0; t--) {
    const T below = t >= C ? sums[t >= C ? t - C : 0]
                           : (column < C ? static_cast<T>(0) : before[t < C ? t : 0]);
    sums[t] = static_cast<T>(sums[t] - below);
  }
  if (column < C && inside == 0) {
    chain_row_start<T, C>(from, i, 0, sums);
  }
}

/* The same of a group that may be in two rows, of those values that are predicted along their row.
 */
template <typename T, int C>
__device__ __forceinline__ void subtract_along_row(const residual_source<T> &from, uint32_t i,
                                                   const group_place &at, const T *before,
                                                   T *sums) {
#pragma unroll
  for (int t = kGroup - 1; t >= 0; t--) {
    const bool is_first = static_cast<uint32_t>(t) < at.wrap;
    const uint32_t column =
        static_cast<uint32_t>(t) - at.wrap + (is_first ? at.column + at.wrap : 0);
    if (column >= C && from.goes_along_row(is_first ? at.inside : at.inside_next)) {
      sums[t] =
          static_cast<T>(sums[t] - (t >= C ? sums[t >= C ? t - C : 0] : before[t < C ? t : 0]));
    }
  }
  const bool starts = at.column < C && at.inside == 0;
  if (starts || (at.wrap < kGroup && at.inside_next == 0)) {
    chain_row_start<T, C>(from, i, starts ? 0 : at.wrap, sums);
  }
}

/* The sums of the C values in front of value i, which is not the first of its row: what the lane
 * before would hold. */
template <typename T, int C>
__device__ __forceinline__ void sums_before(const residual_source<T> &from, uint32_t i,
                                            uint32_t inside, T *before) {
#pragma unroll
  for (int t = 0; t < C; t++) {
    before[t] = from.alternating(i - C + static_cast<uint32_t>(t), inside);
  }
}

template <typename T, int C>
__device__ __forceinline__ void group_residuals_slow(const residual_source<T> &from, uint32_t i,
                                                     T *r) {
#pragma unroll
  for (int t = 0; t < kGroup; t++) {
    const uint32_t at = i + static_cast<uint32_t>(t);
    r[t] = at >= i && at < from.grid.value_count ? from.residual(at) : static_cast<T>(0);
  }
}

/* The last C sums of the lane before; `carry` keeps them for lane 0 of the next 32 groups. All
 * lanes. */
template <typename T, int C>
__device__ __forceinline__ void sums_of_lane_before(const T *sums, int lane, T *carry, T *before) {
#pragma unroll
  for (int c = 0; c < C; c++) {
    const T rotated =
        static_cast<T>(__shfl_sync(kAllLanes, sums[kGroup - C + c], (lane + kWarp - 1) % kWarp));
    before[c] = lane == 0 ? carry[c] : rotated;
    carry[c] = rotated;
  }
}

/* Values to residuals where rows start with a group and the block is whole: no group is in two
 * rows, and the neighbours in other rows are aligned. The subset has kSubsets that are not empty,
 * without axis 0: none, one or three. All lanes. */
template <typename T, int C, int kSubsets>
__device__ __forceinline__ void aligned_residuals(const residual_source<T> &from, uint32_t first,
                                                  int lane, T r[kLaneGroups][kGroup]) {
  const uint32_t outer = from.subset & ~1u, lowest = outer & (0u - outer);
  const uint32_t subsets[3] = {lowest, outer ^ lowest, outer};
  T carry[C] = {}; /* of lane 0: the sums in front of its group */
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t i = first + index_of(j, lane) * kGroup;
    const uint32_t row = divide(i, from.grid.row);
    const uint32_t column = i - row * from.grid.row_values, inside = from.axes_before(row, 0);
    if constexpr (kSubsets != 0) {
      T v[kSubsets][kGroup];
#pragma unroll
      for (int k = 0; k < kSubsets; k++) { /* all on their way before the first is waited for */
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          v[k][t] = 0;
        }
        if ((subsets[k] & ~inside) == 0) {
          load_aligned_group(from.raw, i - from.grid.offsets[subsets[k]], v[k]);
        }
      }
      transform_values<T, kSubsets * kGroup>(v[0], from.how); /* which maps 0 to 0 */
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        T sum = static_cast<T>(r[j][t] - v[0][t]);
        if constexpr (kSubsets == 3) {
          sum = static_cast<T>(sum - v[1][t] + v[2][t]);
        }
        r[j][t] = sum;
      }
    }
    const bool along_row = from.goes_along_row(inside);
    if (__any_sync(kAllLanes, along_row)) {
      T before[C];
      sums_of_lane_before<T, C>(r[j], lane, carry, before);
      if (j == 0 && lane == 0 && column >= C && along_row) {
        sums_before<T, C>(from, i, inside, before);
      }
      if (along_row) {
        subtract_in_row<T, C>(from, i, column, inside, before, r[j]);
      }
    }
  }
}

/* Values to residuals, in any shape. All lanes. */
template <typename T, int C>
__device__ __forceinline__ void any_residuals(const residual_source<T> &from, uint32_t first,
                                              int lane, T r[kLaneGroups][kGroup]) {
  const uint32_t count = from.grid.value_count - first;
  const bool rows_too_short = from.grid.row_values < kGroup;
  T carry[C] = {};
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past = index_of(j, lane) * kGroup, i = first + past;
    const bool whole = past + kGroup <= count;
    group_place at = {};
    if (whole && !rows_too_short) {
      at = place_group(from, i);
      add_other_rows(from, i, at, r[j]);
    }
    T before[C];
    sums_of_lane_before<T, C>(r[j], lane, carry, before);
    if (!whole || rows_too_short) {
      if (past < count) {
        group_residuals_slow<T, C>(from, i, r[j]);
      }
    } else if (from.goes_along_row(at.inside) || from.goes_along_row(at.inside_next)) {
      if (j == 0 && lane == 0 && at.column >= C && from.goes_along_row(at.inside)) {
        sums_before<T, C>(from, i, at.inside, before);
      }
      subtract_along_row<T, C>(from, i, at, before, r[j]);
    }
  }
}

/* The values of the block that starts at value `first`, zeros behind the chunk's end. */
template <typename T>
__device__ __forceinline__ void load_block(const residual_source<T> &from, uint32_t first, int lane,
                                           T values[kLaneGroups][kGroup]) {
  const uint32_t count = from.grid.value_count - first; /* of values from the block's first on */
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past = index_of(j, lane) * kGroup;
    if (count >= GPUFI_BLOCK_VALUES) {
      load_aligned_group(from.raw, first + past, values[j]);
    } else {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const uint32_t at = past + static_cast<uint32_t>(t);
        values[j][t] = at < count ? from.raw[first + at] : static_cast<T>(0);
      }
    }
  }
  transform_values<T, kLaneGroups * kGroup>(values[0], from.how);
}

/* Such a block's values to residuals. All lanes. */
template <typename T, int C>
__device__ __forceinline__ void predict_block(const residual_source<T> &from, uint32_t first,
                                              int lane, T r[kLaneGroups][kGroup]) {
  if (from.subset == 0) {
    return;
  }
  const bool is_whole = from.grid.value_count - first >= GPUFI_BLOCK_VALUES;
  const int axes = is_whole && from.grid.row_values % kGroup == 0 ? __popc(from.subset & ~1u) : -1;
  if (axes == 0) {
    aligned_residuals<T, C, 0>(from, first, lane, r);
  } else if (axes == 1) {
    aligned_residuals<T, C, 1>(from, first, lane, r);
  } else if (axes == 2) {
    aligned_residuals<T, C, 3>(from, first, lane, r);
  } else {
    any_residuals<T, C>(from, first, lane, r);
  }
}

/* Subtract the offset from a block's residuals, which are 0 from `count` on, but not from the first
 * element's where the seed stands in for it. */
template <typename T, int C>
__device__ __forceinline__ void subtract_offset(T values[kLaneGroups][kGroup], T offset,
                                                uint32_t count, bool has_seed, int lane) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      const uint32_t i = index_of(j, lane) * kGroup + static_cast<uint32_t>(t);
      if (i < count && !(has_seed && i < C)) {
        values[j][t] = static_cast<T>(values[j][t] - offset);
      }
    }
  }
}

} // namespace gpufi

#endif
