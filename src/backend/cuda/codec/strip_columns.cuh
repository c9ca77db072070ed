/* A run of strips that is predicted along columns: see decode_strips.cu. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STRIP_COLUMNS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STRIP_COLUMNS_CUH

#include "backend/cuda/codec/strips.cuh"

namespace gpufi {

template <typename T> struct column_sums {
  T tails[kWarps];                /* as row_fronts has them */
  T starts[kPlanesMax];           /* of each plane that begins in the run: its first residual */
  value_pack<T> sums[kThreads];   /* of each segment of a column, since a plane began */
  bool has_begun[kThreads];       /* a plane begins in it */
  value_pack<T> fronts[kThreads]; /* what each column goes on from */
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
__device__ __forceinline__ column_part part_of(const strip_run<T> &run, const strip_plan &plan,
                                               uint32_t column, uint32_t segment) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
  const uint32_t count = run.at.count / kCount, before = run.at.column / kCount;
  column_part part;
  part.index = column + segment * plan.segment_rows * plan.row_packs;
  const uint32_t there =
      part.index < count ? divide((count - part.index - 1) * kCount, run.grid.row) + 1 : 0;
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

/* The pack of sums along the row at `at`, or, if kDeep, added up over the planes in the run, which
 * are `plane_at` packs apart. */
template <bool kDeep, typename T>
__device__ __forceinline__ value_pack<T> take_pack(const value_pack<T> *packs, uint32_t at,
                                                   uint32_t plane_at) {
  value_pack<T> v = packs[at];
  if constexpr (kDeep) {
    while (at >= plane_at) {
      at -= plane_at;
      v = add(v, packs[at]);
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
    return kDeep && i >= run.plane_values() ? add(v, negative(run.pack(i - run.plane_values())))
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

/* The sums along the rows of a run, and how a thread goes down a column of them. */
template <bool kDeep, typename T> struct column_walk {
  using pack = value_pack<T>;
  static constexpr uint32_t kCount = pack_of<pack>::kCount;
  /* Steps whose loads are on their way at once. */
  static constexpr uint32_t kAhead = 4;

  const strip_run<T> &run;
  const pack *packs;
  uint32_t row_packs, row_at;     /* a step, in the run and in `packs` */
  uint32_t plane_packs, plane_at; /* a plane, the same */

  __device__ column_walk(const strip_run<T> &run_, const strip_plan &plan, const pack *packs_)
      : run(run_), packs(packs_), row_packs(plan.row_packs), row_at(pack_at<T>(plan.row_packs)),
        plane_packs(run_.has_planes() ? run_.plane_values() / kCount : UINT32_MAX / 2),
        plane_at(run_.has_planes() ? pack_at<T>(plane_packs) : UINT32_MAX) {}

  /* The sum of `count` steps from `at` on and `sum`. */
  __device__ __forceinline__ pack add_up(pack sum, uint32_t at, uint32_t count) const {
#pragma unroll 4
    for (uint32_t k = 0; k < count; k++) {
      sum = add(sum, take_pack<kDeep>(packs, at, plane_at));
      at += row_at;
    }
    return sum;
  }

  /* The values that the column has in the last plane before the run, of kAhead steps or, if
   * kSome, of `count`; then zeros. `past` is where the first is from the run's place in its plane
   * on: where planes are predicted, a run begins with one or is not as long. */
  template <bool kSome>
  __device__ __forceinline__ void load_below(pack *to, uint32_t past, uint32_t count) const {
    const uint32_t plane = run.plane_values();
    T v[kAhead * kCount];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      const uint32_t i = run.at.first + past * kCount;
      to[k] = {};
      if ((!kSome || k < count) && i >= plane) {
        to[k].words = __ldcg(reinterpret_cast<const uint4 *>(run.at.raw + (i - plane)));
      }
      past += row_packs;
      past -= past >= plane_packs ? plane_packs : 0;
    }
    memcpy(v, to, sizeof(v));
    transform_values<T, kAhead * kCount>(v, run.how); /* which maps 0 to 0 */
    memcpy(to, v, sizeof(v));
  }

  /* Until the values in the last plane before the run are there that a part of `column` from pack
   * `index` on adds. */
  __device__ void wait_for_below(const strip_plan &plan, uint32_t index, uint32_t column) const {
    constexpr uint32_t kRunPacks = kRunValues / kCount;
    const run_place<T> &at = run.at;
    const uint32_t plane = run.plane_values();
    if (at.run == 0 || at.first + at.count <= plane) {
      return;
    }
    if (plane < kRunValues && run.grid.dims[1].d % plan.segment_rows == 0) {
      /* Those of one thread of the run before: each segment is as many packs. */
      while (index >= plane_packs) {
        index -= plane_packs;
      }
      const uint32_t segment = (index + kRunPacks - plane_packs) * plan.segment_count / kRunPacks;
      run.wait_for(at.run - 1, 1u << (segment * plan.row_packs + column) / kWarp);
      return;
    }
    const uint32_t begin = at.first > plane ? at.first - plane : 0;
    const uint32_t end = at.first + at.count - 1 - plane;
    run.wait_for(begin / kRunValues);
    run.wait_for(end / kRunValues < at.run ? end / kRunValues : at.run - 1);
  }

  /* The value that pack `index` of the run has in the last plane before the run; or zeros. */
  __device__ pack below(uint32_t index) const {
    while (index >= plane_packs) {
      index -= plane_packs;
    }
    const uint32_t i = run.at.first + index * kCount, plane = run.plane_values();
    return i >= plane ? run.pack(i - plane) : pack{};
  }

  /* Store the values of kAhead steps or, if kSome, of `count`, from pack `index` on; *sum goes on.
   */
  template <bool kSome>
  __device__ __forceinline__ void store(pack *sum, uint32_t index, uint32_t past,
                                        uint32_t count) const {
    const uint32_t at = pack_at<T>(index);
    pack v[kAhead];
    if constexpr (kDeep) {
      load_below<kSome>(v, past, count);
    }
#pragma unroll
    for (uint32_t t = 0; t < kAhead; t++) {
      if (!kSome || t < count) {
        *sum = add(*sum, take_pack<kDeep>(packs, at + t * row_at, plane_at));
      }
      v[t] = kDeep ? add(*sum, v[t]) : *sum;
    }
    store_packs<kAhead>(run, v, index, row_packs, kSome ? count : kAhead);
  }
};

/* How many planes begin in the part. */
__device__ inline uint32_t planes_begun(const column_part &part, uint32_t plane_rows) {
  return part.steps > part.left ? (part.steps - part.left - 1) / plane_rows + 1 : 0;
}

constexpr uint32_t kTellsRow = 1u << 16;

/* What `column` of the run goes on from: the sums of the columns of the runs before, back to the
 * last one whose last row is told. One thread a column. */
template <bool kDeep, typename T>
__device__ __forceinline__ value_pack<T> look_back_column(const strip_run<T> &run,
                                                          const strip_plan &plan, uint32_t column) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
  value_pack<T> front = {};
  for (uint32_t r = run.at.run; r-- > 0;) {
    uint32_t told;
    do {
      told = load_acquire(run.run_told + r);
    } while (told / kTellsRow != plan.tellers && told % kTellsRow != plan.tellers);
    if (told / kTellsRow == plan.tellers) {
      const values_before<kDeep, T> before = {run};
      const uint32_t end = (r + 1) * kRunValues;
      return add(front, before.pack(end - run.grid.row_values + column * kCount));
    }
    const uint4 *const sums =
        reinterpret_cast<const uint4 *>(run.run_sums + r * plan.row_packs + column);
    front = add(front, value_pack<T>{__ldcg(sums)});
  }
  return front;
}

/* Add `what` to what is told of the run, when the lanes of this warp that tell have stored it. */
template <typename T>
__device__ __forceinline__ void tell(const strip_run<T> &run, const strip_plan &plan,
                                     uint32_t what) {
  const uint32_t end = plan.segment_count * plan.row_packs, begin = end - plan.row_packs;
  const uint32_t lane = threadIdx.x % kWarp, first = threadIdx.x - lane; /* of the warp */
  const uint32_t low = begin > first ? begin - first : 0;
  const uint32_t high = end - first < kWarp ? end - first : kWarp;
  __syncwarp((kAllLanes << low) & (kAllLanes >> (kWarp - high)));
  if (lane == low) {
    add_release(run.run_told + run.at.run, what);
  }
}

/* From sums along the rows, in `packs`, to values, which are stored. kDeep: planes are predicted
 * too. All threads. */
template <bool kDeep, typename T>
__device__ __forceinline__ void finish_columns(const strip_run<T> &run, const strip_plan &plan,
                                               const value_pack<T> *packs, column_sums<T> *shared) {
  using pack = value_pack<T>;
  using walk = column_walk<kDeep, T>;
  const run_place<T> &at = run.at;
  const walk columns(run, plan, packs);
  const uint32_t segment =
      plan.segment_count > 1 ? divide(threadIdx.x * walk::kCount, run.grid.row) : 0;
  const uint32_t first_column = threadIdx.x - segment * plan.row_packs;
  const bool is_idle = segment >= plan.segment_count;
  const uint32_t plane_rows = run.has_planes() ? run.grid.dims[1].d : UINT32_MAX;
  const uint32_t first_plane = run.first_plane();
  const bool tells = plan.looks_back && segment + 1 == plan.segment_count &&
                     at.count == kRunValues && at.run + 1 != run.grid.run_count;
  column_part part = {};
  if (!is_idle) {
    part = part_of(run, plan, first_column, segment);
  }
  pack sum = {}, own = {}; /* of the segments before this one, since a plane began; of this one */
  bool has_begun = false, begins = false;
  if (plan.segment_count > 1) {
    column_part rest = part;
    while (rest.steps != 0) {
      if (rest.left == 0) {
        own = {};
        begins = true;
        rest.left = plane_rows;
      }
      const uint32_t span = rest.steps < rest.left ? rest.steps : rest.left;
      own = columns.add_up(own, pack_at<T>(rest.index), span);
      rest.index += span * plan.row_packs;
      rest.steps -= span;
      rest.left -= span;
    }
    shared->sums[threadIdx.x] = own;
    shared->has_begun[threadIdx.x] = begins;
    __syncthreads();
    for (uint32_t i = threadIdx.x; !is_idle && i >= plan.row_packs && !has_begun;) {
      i -= plan.row_packs;
      sum = add(sum, shared->sums[i]);
      has_begun = shared->has_begun[i];
    }
    if (tells && !has_begun && !begins) {
      run.run_sums[at.run * plan.row_packs + first_column] = add(sum, own);
    }
    if (tells && !has_begun && !begins) {
      tell(run, plan, 1);
    }
  }
  if (!plan.looks_back) {
    run.wait();
  }
  if (plan.segment_count > 1) {
    if (segment == 0) {
      pack front = {};
      if (part.steps != 0 && part.left != 0) {
        front = plan.looks_back ? look_back_column<kDeep>(run, plan, first_column)
                                : front_of_column<kDeep>(run, first_column);
      }
      shared->fronts[first_column] = front;
    }
    __syncthreads();
  }
  if (is_idle) {
    return;
  }
  if (kDeep && plan.looks_back) {
    columns.wait_for_below(plan, part.index, first_column);
  }
  T plane_front = 0; /* of the first plane that begins in the run */
  if (!kDeep && first_plane != 0 && run.has_planes() &&
      first_plane * run.plane_values() < at.first + at.count) {
    const uint32_t before = (first_plane - 1) * run.plane_values();
    if (plan.looks_back && before / kRunValues != at.run) {
      run.wait_for(before / kRunValues);
    }
    plane_front = run.value(before);
  }
  const uint32_t count = at.count / walk::kCount;
  const uint32_t column_count = plan.row_packs < count ? plan.row_packs : count;
  for (uint32_t column = first_column; column < column_count; column += kThreads) {
    if (column != first_column) {
      part = part_of(run, plan, column, segment);
      sum = {};
    }
    T front = plane_front; /* of plane part.plane */
    T last_front = 0;      /* and of the one before */
    if constexpr (!kDeep) {
      for (uint32_t p = first_plane; p < part.plane; p++) {
        last_front = front;
        front = static_cast<T>(front + shared->starts[p - first_plane]);
      }
    }
    if (has_begun) {
      sum = add(sum, pack_of_one(last_front));
    } else if (plan.segment_count > 1) {
      sum = add(sum, shared->fronts[column]);
    } else if (part.left != 0) {
      sum = add(sum, front_of_column<kDeep>(run, column));
    }
    if (tells) { /* the last row, which is stored once more below */
      const uint32_t index = (kRunValues - run.grid.row_values) / walk::kCount + column;
      const bool begins_here = shared->has_begun[threadIdx.x]; /* not kept in a register, */
      pack last = shared->sums[threadIdx.x];                   /* nor are the sums */
      if (!begins_here) {
        last = add(sum, last);
      }
      if (!kDeep && begins_here) {
        T of_plane = front;
        for (uint32_t p = part.plane; p + 1 < part.plane + planes_begun(part, plane_rows); p++) {
          of_plane = static_cast<T>(of_plane + shared->starts[p - first_plane]);
        }
        last = add(last, pack_of_one(of_plane));
      }
      if constexpr (kDeep) {
        last = add(last, columns.below(index));
      }
      store_packs<1>(run, &last, index, 0, 1);
      tell(run, plan, kTellsRow);
    }
    uint32_t past = part.index;
    while (kDeep && past >= columns.plane_packs) {
      past -= columns.plane_packs;
    }
    while (part.steps != 0) {
      if (part.left == 0) {
        sum = kDeep ? pack{} : pack_of_one(front);
        if constexpr (!kDeep) {
          front = static_cast<T>(front + shared->starts[part.plane - first_plane]);
          part.plane++;
        }
        part.left = plane_rows;
      }
      const uint32_t span = part.steps < part.left ? part.steps : part.left;
      const uint32_t steps = span < walk::kAhead ? span : walk::kAhead;
      if (steps == walk::kAhead) {
        columns.template store<false>(&sum, part.index, past, steps);
      } else {
        columns.template store<true>(&sum, part.index, past, steps);
      }
      part.index += steps * plan.row_packs;
      part.steps -= steps;
      part.left -= steps;
      past += steps * plan.row_packs;
      past -= past >= columns.plane_packs ? columns.plane_packs : 0;
    }
  }
}

} // namespace gpufi

#endif
