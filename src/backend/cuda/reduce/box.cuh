/* The box of a cell: where its elements are. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_BOX_CUH
#define GPUFI_BACKEND_CUDA_REDUCE_BOX_CUH

#include "backend/cuda/reduce/params.cuh"

namespace gpufi {

/* gpufi_reduce_bound as a function of its own: its 64-bit divisions take much code, and none of its
 * many callers is in a loop over elements. */
static __device__ __noinline__ int64_t bound(int64_t length, int64_t cell_count, int64_t i) {
  const gpufi_reduce_axis axis = {length, 0, cell_count, 0};
  return gpufi_reduce_bound(&axis, i);
}

__device__ inline int64_t bound_of(const gpufi_reduce_axis &axis, int64_t i) {
  return bound(axis.length, axis.cell_count, i);
}

/* A cell of the first axes, or of all: its box in memory and its place in the result. */
struct box {
  int64_t offset; /* bytes from the base to its first element */
  int64_t out;    /* index in the result */
  int64_t rows;   /* combinations of all axes but the last of the job */
  int64_t length; /* along the last of the job */
  int64_t lengths[GPUF_NDIM_MAX];
};

/* The box of all elements. By one thread. */
__device__ inline void find_whole_box(const gpufi_reduce &job, box *b) {
  b->offset = 0;
  b->out = 0;
  b->rows = 1;
  b->length = job.ndim > 0 ? job.axes[job.ndim - 1].length : 1;
  for (int axis = 0; axis < job.ndim; axis++) {
    b->lengths[axis] = job.axes[axis].length;
    b->rows *= axis < job.ndim - 1 ? b->lengths[axis] : 1;
  }
}

/* The box of cell number `cell` of the first `ndim` axes (all, or all but the last). By one thread.
 */
__device__ inline void find_box(const gpufi_reduce &job, int64_t cell, int ndim, box *b) {
  b->offset = 0;
  b->out = 0;
  b->rows = 1;
  b->length = 1;
#pragma unroll 1 /* four 64-bit divisions each */
  for (int axis = ndim - 1; axis >= 0; axis--) {
    const gpufi_reduce_axis &a = job.axes[axis];
    const int64_t outer = cell / a.cell_count;
    const int64_t i = cell - outer * a.cell_count;
    const int64_t begin = bound_of(a, i);
    cell = outer;
    b->lengths[axis] = bound_of(a, i + 1) - begin;
    b->offset += begin * a.stride_nbytes;
    b->out += i * a.cell_stride;
    if (axis == job.ndim - 1) {
      b->length = b->lengths[axis];
    } else {
      b->rows *= b->lengths[axis];
    }
  }
}

/* Byte offsets, from the box's first element, of kCount elements, `step` apart in C order over the
 * first `ndim` axes. They take each axis together, so that their divisions overlap. Index: as for
 * packing, the narrowest type that holds the last index. */
template <int kCount, typename Index>
__device__ void offsets_in_box(const gpufi_reduce &job, const box &b, Index first, Index step,
                               int ndim, int64_t (&offsets)[kCount]) {
  Index index[kCount];
#pragma unroll
  for (int k = 0; k < kCount; k++) {
    index[k] = first + static_cast<Index>(k) * step;
    offsets[k] = 0;
  }
#pragma unroll 1 /* each copy of the loop's body would hold kCount divisions */
  for (int axis = ndim - 1; axis > 0; axis--) {
    const Index length = static_cast<Index>(b.lengths[axis]);
    const int64_t stride_nbytes = job.axes[axis].stride_nbytes;
#pragma unroll
    for (int k = 0; k < kCount; k++) {
      const Index outer = index[k] / length;
      offsets[k] += static_cast<int64_t>(index[k] - outer * length) * stride_nbytes;
      index[k] = outer;
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; k++) {
    offsets[k] += ndim > 0 ? static_cast<int64_t>(index[k]) * job.axes[0].stride_nbytes : 0;
  }
}

/* The same for a box of `count` elements over these axes. */
template <int kCount>
__device__ void box_offsets(const gpufi_reduce &job, const box &b, int64_t first, int64_t step,
                            int64_t count, int ndim, int64_t (&offsets)[kCount]) {
  if (count <= UINT32_MAX) {
    offsets_in_box(job, b, static_cast<uint32_t>(first), static_cast<uint32_t>(step), ndim,
                   offsets);
  } else {
    offsets_in_box(job, b, static_cast<uint64_t>(first), static_cast<uint64_t>(step), ndim,
                   offsets);
  }
}

__device__ inline int64_t box_offset(const gpufi_reduce &job, const box &b, int64_t index,
                                     int64_t count, int ndim) {
  int64_t offset[1];
  box_offsets(job, b, index, 0, count, ndim, offset);
  return offset[0];
}

} // namespace gpufi

#endif
