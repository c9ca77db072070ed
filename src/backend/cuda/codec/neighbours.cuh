/* A chunk's values as the neighbours of others: see docs/format.md, Prediction. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_NEIGHBOURS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_NEIGHBOURS_CUH

#include "backend/cuda/codec/values.cuh"

namespace gpufi {

/* A value that another thread block of the same launch wrote: read past the L1 cache, which may
 * hold what was there before. */
template <typename T> __device__ inline T load_done(const T *p, loading how) {
  T v = __ldcg(p);
  transform_values<T, 1>(&v, how);
  return v;
}

/* `kDone`: load_done is how to load them. */
template <typename T, bool kDone> struct chunk_values {
  const chunk_grid &grid;
  const T *raw;
  loading how;
  uint32_t subset;

  __device__ T value(uint32_t i) const {
    return kDone ? load_done(raw + i, how) : load_value(raw, i, how);
  }

  /* The axes of the subset beyond `axis` along which a line has an index other than 0; lines along
   * `axis` (and all that is inside it) are numbered as they lie. */
  __device__ uint32_t axes_before(uint32_t line, int axis) const {
    uint32_t inside = 0;
    for (int k = axis + 1; subset >> k != 0; k++) {
      const uint32_t rest = divide(line, grid.dims[k]);
      inside |= (line != rest * grid.dims[k].d ? 1u : 0u) << k;
      line = rest;
    }
    return inside & subset;
  }

  /* The residual of value i along the axes `inside` alone, each of which has an index above 0. */
  __device__ T alternating(uint32_t i, uint32_t inside) const {
    T sum = value(i);
    for (uint32_t s = inside; s != 0; s = (s - 1) & inside) {
      const T v = value(i - grid.offsets[s]);
      sum = static_cast<T>(__popc(s) & 1 ? sum - v : sum + v);
    }
    return sum;
  }
};

/* From step `step` along `axis`, counted through the chunk, back to what the chain rule predicts it
 * from, of steps along that axis and those beyond it; 0 for the first. In values. */
__device__ inline uint32_t distance_before(const chunk_grid &grid, uint32_t step, int axis) {
  for (int k = axis; k < grid.axis_count; k++) {
    const uint32_t rest = divide(step, grid.dims[k]);
    if (step != rest * grid.dims[k].d) {
      return grid.strides[k];
    }
    step = rest;
  }
  return 0;
}

/* The usable axes along which value i has a neighbour; and the distance to the value that stands
 * before it along the last axis whose index is not 0, or 0. */
__device__ inline uint32_t neighbours_of(const chunk_grid &grid, uint32_t i, uint32_t *before) {
  uint32_t rest = i >> (grid.component_count - 1), inside = 0; /* one component or two */
  *before = 0;
  for (int k = 0; k < grid.axis_count; k++) {
    const uint32_t outer = divide(rest, grid.dims[k]);
    if (rest != outer * grid.dims[k].d) {
      inside |= 1u << k;
      *before = *before ? *before : grid.strides[k];
    }
    rest = outer;
  }
  return inside & ((1u << grid.usable_count) - 1);
}

} // namespace gpufi

#endif
