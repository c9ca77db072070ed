/* A run of strips that is predicted along columns: see decode_strips.cu. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STRIP_COLUMNS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STRIP_COLUMNS_CUH

#include "backend/cuda/codec/strips.cuh"

namespace gpufi {

/* How threads share the columns of a run: a thread has a pack of each row of a segment. Rows of at
 * least as many packs as there are threads are one segment, and a thread has several columns. */
struct column_plan {
  uint32_t row_packs, segment_count, segment_rows;

  __host__ __device__ column_plan(uint32_t row_packs_, uint32_t run_packs)
      : row_packs(row_packs_), segment_count(1) {
    const uint32_t rows = (run_packs + row_packs - 1) / row_packs;
    if (row_packs < kThreads) {
      segment_count = kThreads / row_packs;
    }
    segment_rows = (rows + segment_count - 1) / segment_count;
  }
};

template <typename T> struct column_sums {
  T tails[kWarps];               /* as row_fronts has them */
  T starts[kPlanesMax];          /* of each plane that begins in the run: its first residual */
  value_pack<T> sums[kThreads];  /* of each segment of a column, since a plane began */
  bool has_begun[kThreads];      /* a plane begins in it */
};

/* Packs of one value. */
template <typename T> __device__ inline value_pack<T> pack_of_one(T value) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
  T v[kCount];
#pragma unroll
  for (uint32_t t = 0; t < kCount; t++) {
    v[t] = value;
  }
  value_pack<T> pack;
  memcpy(&pack, v, sizeof(pack));
  return pack;
}

/* The calling thread's part of a column: packs index, index + row_packs, ... of the run, `steps` of
 * them. */
struct column_part {
  uint32_t index, steps;
  uint32_t left;  /* steps until the next plane begins */
  uint32_t plane; /* that one */
};

template <typename T>
__device__ __forceinline__ column_part part_of(const strip_run<T> &run, const column_plan &plan,
                                               uint32_t column, uint32_t segment) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
  const uint32_t count = run.at.count / kCount, before = run.at.column / kCount;
  column_part part;
  part.index = column + segment * plan.segment_rows * plan.row_packs;
  const uint32_t there =
      part.index < count
          ? divide((count - part.index - 1) * kCount, run.grid.row) + 1
          : 0;
  part.steps = there < plan.segment_rows ? there : plan.segment_rows;
  const bool wraps = before + column >= plan.row_packs;
  const uint32_t row = run.at.row + segment * plan.segment_rows + (wraps ? 1 : 0);
  const uint32_t plane = run.plane_of(row), index = run.index_in_plane(row);
  /* A row that the run begins inside of has begun before. */
  const bool begins = index == 0 && (segment != 0 || wraps || before == 0);
  part.plane = begins ? plane : plane + 1;
  part.left = begins ? 0 : run.has_planes() ? run.grid.dims[1].d - index : UINT32_MAX;
  return part;
}

/* A pack of sums along the row, or, if kDeep, added up over the planes in the run. */
template <bool kDeep, typename T>
__device__ __forceinline__ value_pack<T> take_pack(const value_pack<T> *packs, uint32_t index,
                                                   uint32_t plane_packs) {
  value_pack<T> v = packs[pack_at<T>(index)];
  if constexpr (kDeep) {
    for (; index >= plane_packs;) {
      index -= plane_packs;
      v = add(v, packs[pack_at<T>(index)]);
    }
  }
  return v;
}

/* What a column goes on from that no plane begins before in the run: of the values of the plane
 * before it, or, if kDeep, of these less those one plane back. */
template <bool kDeep, typename T> struct values_before {
  const strip_run<T> &run;

  __device__ T value(uint32_t i) const {
    const T v = run.value(i);
    return kDeep && i >= run.plane_values() ? static_cast<T>(v - run.value(i - run.plane_values()))
                                            : v;
  }
  __device__ value_pack<T> pack(uint32_t i) const {
    const value_pack<T> v = run.pack(i);
    return kDeep && i >= run.plane_values()
               ? add(v, negative(run.pack(i - run.plane_values())))
               : v;
  }
};

template <bool kDeep, typename T>
__device__ __forceinline__ value_pack<T> front_of_column(const strip_run<T> &run, uint32_t column) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
  const run_place<T> &at = run.at;
  const chunk_grid &grid = run.grid;
  const values_before<kDeep, T> before = {run};
  const uint32_t past = column * kCount, index = run.index_in_plane(at.row);
  const bool wraps = at.column + past >= grid.row_values;
  value_pack<T> front = {};
  if (index != 0 || wraps) {
    front = before.pack(at.first + past - grid.row_values);
  }
  if (at.column != 0 && !wraps) {
    const bool is_face = index == 0 && (!kDeep || at.first < run.plane_values());
    if ((run.subset & 1) || is_face) {
      T rest = before.value(at.first - 1);
      if (index != 0) {
        rest = static_cast<T>(rest - before.value(at.first - 1 - grid.row_values));
      }
      front = add(front, pack_of_one(rest));
    }
  }
  return front;
}

/* From sums along the rows, in `packs`, to values, which are stored. kDeep: planes are predicted
 * too. All threads. */
template <bool kDeep, typename T>
__device__ __forceinline__ void finish_columns(const strip_run<T> &run, const column_plan &plan,
                                               const value_pack<T> *packs, column_sums<T> *shared) {
  using pack = value_pack<T>;
  constexpr uint32_t kCount = pack_of<pack>::kCount;
  constexpr int kAhead = 4;
  const chunk_grid &grid = run.grid;
  const run_place<T> &at = run.at;
  const uint32_t segment =
      plan.segment_count > 1 ? divide(threadIdx.x * kCount, grid.row) : 0;
  const uint32_t first_column = threadIdx.x - segment * plan.row_packs;
  const bool is_idle = segment >= plan.segment_count;
  const uint32_t plane_packs = run.has_planes() ? run.plane_values() / kCount : UINT32_MAX;
  const uint32_t plane_rows = run.has_planes() ? grid.dims[1].d : UINT32_MAX;
  if (plan.segment_count > 1) {
    pack sum = {};
    bool has_begun = false;
    if (!is_idle) {
      column_part part = part_of(run, plan, first_column, segment);
#pragma unroll 4
      for (uint32_t k = 0; k < part.steps; k++) {
        if (part.left == 0) {
          sum = {};
          has_begun = true;
          part.left = plane_rows;
        }
        part.left--;
        sum = add(sum, take_pack<kDeep>(packs, part.index, plane_packs));
        part.index += plan.row_packs;
      }
    }
    shared->sums[threadIdx.x] = sum;
    shared->has_begun[threadIdx.x] = has_begun;
  }
  run.wait();
  if (is_idle) {
    return;
  }
  const uint32_t first_plane = run.first_plane();
  T plane_front = 0; /* of the first plane that begins in the run */
  if (!kDeep && first_plane != 0 && run.has_planes() &&
      first_plane * run.plane_values() < at.first + at.count) {
    plane_front = run.value((first_plane - 1) * run.plane_values());
  }
  const uint32_t column_count = plan.row_packs < at.count / kCount ? plan.row_packs : at.count / kCount;
  for (uint32_t column = first_column; column < column_count; column += kThreads) {
    column_part part = part_of(run, plan, column, segment);
    T front = plane_front; /* of plane part.plane */
    T last_front = 0;      /* and of the one before */
    if constexpr (!kDeep) {
      for (uint32_t p = first_plane; p < part.plane; p++) {
        last_front = front;
        front = static_cast<T>(front + shared->starts[p - first_plane]);
      }
    }
    pack sum = {};
    bool has_begun = false;
    for (uint32_t i = threadIdx.x; segment != 0 && i >= plan.row_packs && !has_begun;) {
      i -= plan.row_packs;
      sum = add(sum, shared->sums[i]);
      has_begun = shared->has_begun[i];
    }
    if (has_begun) {
      sum = add(sum, pack_of_one(last_front));
    } else if (part.left != 0 || segment != 0) {
      sum = add(sum, front_of_column<kDeep>(run, column));
    }
    while (part.steps != 0) {
      pack v[kAhead], below[kAhead];
#pragma unroll
      for (uint32_t t = 0; t < kAhead; t++) {
        const uint32_t index = part.index + t * plan.row_packs;
        v[t] = below[t] = {};
        if (t < part.steps) {
          v[t] = take_pack<kDeep>(packs, index, plane_packs);
          if constexpr (kDeep) { /* the value in the last plane before the run */
            const uint32_t i = at.first + index * kCount;
            const uint32_t back = (index / plane_packs + 1) * run.plane_values();
            if (i >= back) {
              below[t] = run.pack(i - back);
            }
          }
        }
      }
#pragma unroll
      for (uint32_t t = 0; t < kAhead; t++) {
        if (part.left == 0) {
          sum = kDeep ? pack{} : pack_of_one(front);
          if (!kDeep && t < part.steps) {
            front = static_cast<T>(front + shared->starts[part.plane - first_plane]);
            part.plane++;
          }
          part.left = plane_rows;
        }
        part.left--;
        sum = add(sum, v[t]);
        v[t] = kDeep ? add(sum, below[t]) : sum;
      }
      store_packs<kAhead>(run, v, part.index, plan.row_packs, part.steps);
      part.index += kAhead * plan.row_packs;
      part.steps -= part.steps < kAhead ? part.steps : kAhead;
    }
  }
}

} // namespace gpufi

#endif
