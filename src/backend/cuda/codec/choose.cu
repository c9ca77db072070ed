/* Choosing how a chunk is encoded by the cost of a sample, exactly as codec/predict_choose.c,
 * codec/ranked.c and codec/coding.c, and all else that a first look at the sample shows: whether
 * there may be numbers behind floats, and whether matches may pay. A thread block takes a chunk,
 * and each of its threads a group of the sample. */
#include "backend/cuda/codec/numbers.cuh"
#include "backend/cuda/codec/offset.cuh"
#include "backend/cuda/codec/repeats.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

/* Values of a row that are taken at once, and rows that a group has neighbours in, with its own:
 * subsets without axis 0. */
constexpr uint32_t kSide = kGroup / 2;
template <uint32_t kSubsets> constexpr uint32_t kRows = kSubsets / 2;

/* Sampled group k where rows start with a group and elements have one component, and its neighbours
 * in each row, as they are in the chunk. */
template <typename T, uint32_t kOuter> struct group_rows {
  const chunk_grid &grid;
  const T *raw;
  uint32_t i, inside, distance; /* of its first value, as neighbours_of() has them */
  bool valid;

  __device__ group_rows(const chunk_grid &grid_, const T *raw_, uint32_t k)
      : grid(grid_), raw(raw_), inside(0), distance(0) {
    const sampled_value first = sample_value(grid, k, 0);
    i = first.i;
    valid = first.valid;
    if (valid) {
      inside = neighbours_of(grid, i, &distance);
    }
  }

  __device__ bool starts_row() const {
    return (inside & 1) == 0;
  }
  __device__ bool has_row(uint32_t o) const {
    return (2 * o & ~inside) == 0;
  }

  /* kCount values of row o from value `t` of the group on; 0 if it is not there. */
  template <uint32_t kCount>
  __device__ __forceinline__ void load(uint32_t o, uint32_t t, T *v) const {
    if (has_row(o)) {
      load_values<kCount>(raw + (i + t - grid.offsets[2 * o]), v);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kCount; k++) {
        v[k] = 0;
      }
    }
  }
  __device__ __forceinline__ void load_side(uint32_t side, T row[kOuter][kSide]) const {
#pragma unroll
    for (uint32_t o = 0; o < kOuter; o++) {
      load<kSide>(o, side, row[o]);
    }
  }
  /* The value before those of row o, in the same row. */
  __device__ T last(uint32_t o) const {
    return has_row(o) && !starts_row() ? raw[i - 1 - grid.offsets[2 * o]] : static_cast<T>(0);
  }
  /* What stands before the group: in its row, or where its row has no neighbours. */
  __device__ T before() const {
    return starts_row() && distance != 0 ? raw[i - distance] : last(0);
  }
};

/* The groups of all threads with their rows in shared memory, so that all of a group is loaded at
 * once and but once. */
template <typename T, uint32_t kOuter> struct staged_rows {
  static constexpr uint32_t kRowWords = kGroup * sizeof(T) / 4;
  static constexpr uint32_t kPerWord = 4 / sizeof(T);
  uint32_t rows[kOuter * kRowWords][kSampleThreads];
  uint32_t lasts[kOuter + 1][kSampleThreads]; /* and what stands before the group */

  /* This thread's. */
  __device__ __forceinline__ void stage(const group_rows<T, kOuter> &from) {
    T v[kOuter][kGroup], last[kOuter + 1];
#pragma unroll
    for (uint32_t o = 0; o < kOuter; o++) {
      from.template load<kGroup>(o, 0, v[o]);
      last[o] = from.last(o);
    }
    last[kOuter] = from.before();
#pragma unroll
    for (uint32_t o = 0; o < kOuter; o++) {
      uint32_t words[kRowWords];
      values_to_words<T>(v[o], words);
#pragma unroll
      for (uint32_t k = 0; k < kRowWords; k++) {
        rows[o * kRowWords + k][threadIdx.x] = words[k];
      }
    }
#pragma unroll
    for (uint32_t o = 0; o <= kOuter; o++) {
      lasts[o][threadIdx.x] = last[o];
    }
  }

  __device__ __forceinline__ void load_side(uint32_t side, T row[kOuter][kSide]) const {
#pragma unroll
    for (uint32_t o = 0; o < kOuter; o++) {
      const uint32_t first = o * kRowWords + side / kPerWord;
#pragma unroll
      for (uint32_t t = 0; t < kSide; t++) {
        row[o][t] =
            static_cast<T>(rows[first + t / kPerWord][threadIdx.x] >> t % kPerWord * kBits<T>);
      }
    }
  }
  __device__ T last(uint32_t o) const {
    return static_cast<T>(lasts[o][threadIdx.x]);
  }
  __device__ T before() const {
    return last(kOuter);
  }
};

/* Whether there is room to stage the rows. */
template <typename T, uint32_t kSubsets> constexpr bool kStages = kRows<kSubsets> * sizeof(T) <= 16;

/* What cost_sample() takes of the shared memory, of which the costs are left to the others. */
template <typename T, uint32_t kSubsets, bool kStaged = kStages<T, kSubsets>>
struct costing_shared {
  residual_cost costs[kWarp];
  staged_rows<T, kRows<kSubsets>> staged;
};
template <typename T, uint32_t kSubsets> struct costing_shared<T, kSubsets, false> {
  residual_cost costs[kWarp];
};
static_assert(offsetof(sample_shared, costs) == 0, "both begin with the costs");

/* The group of one thread by one transform. There are kSubsets, of which those along axes that are
 * not there are not to be chosen. */
template <typename T, uint32_t kSubsets> struct sampled_residuals {
  static constexpr uint32_t kOuter = kRows<kSubsets>;
  group_tallies<T, kSubsets> tallies;
  loading how;

  /* values[s] is the value's neighbour along all of s, 0 if there is none. */
  __device__ __forceinline__ void add(T values[kSubsets], T before, uint32_t inside,
                                      bool has_before) {
    const T chained = has_before ? static_cast<T>(values[0] - before) : 0;
    tallies.add(values, chained, inside);
  }

  /* Sampled group k, in any shape. */
  __device__ __forceinline__ void take_group(const chunk_grid &grid, const T *raw, uint32_t k) {
    for (uint32_t t = 0; t < kGroup; t++) {
      const sampled_value here = sample_value(grid, k, t);
      if (here.valid) {
        uint32_t distance;
        const uint32_t inside = neighbours_of(grid, here.i, &distance);
        T values[kSubsets];
#pragma unroll
        for (uint32_t s = 0; s < kSubsets; s++) {
          values[s] = (s & ~inside) == 0 ? raw[here.i - grid.offsets[s]] : static_cast<T>(0);
        }
        T before = distance != 0 ? raw[here.i - distance] : static_cast<T>(0);
        transform_values<T, kSubsets>(values, how); /* which maps 0 to 0 */
        transform_values<T, 1>(&before, how);
        add(values, before, inside, distance != 0);
      }
    }
  }

  /* The group `at`, whose rows are from `rows`. */
  template <typename Rows>
  __device__ __forceinline__ void take_rows(const group_rows<T, kOuter> &at, const Rows &rows) {
    if (!at.valid) {
      return;
    }
    T last[kOuter + 1]; /* the values before, in the same rows, and before the group */
#pragma unroll
    for (uint32_t o = 0; o < kOuter; o++) {
      last[o] = rows.last(o);
    }
    last[kOuter] = rows.before();
    transform_values<T, kOuter + 1>(last, how);
    T before = last[kOuter];
    bool has_before = at.distance != 0;
    uint32_t inside = at.inside;
#pragma unroll 1
    for (uint32_t side = 0; side < kGroup; side += kSide) {
      T row[kOuter][kSide];
      rows.load_side(side, row);
      transform_values<T, kOuter * kSide>(row[0], how);
#pragma unroll
      for (uint32_t t = 0; t < kSide; t++) {
        T values[kSubsets];
#pragma unroll
        for (uint32_t o = 0; o < kOuter; o++) {
          values[2 * o] = row[o][t];
          values[2 * o + 1] = last[o];
          last[o] = row[o][t];
        }
        add(values, before, inside, has_before);
        before = row[0][t];
        has_before = true;
        inside |= 1;
      }
    }
  }
};

/* Costs of the sample by each transform: costs[16t + s] are those of transform t and subset s. All
 * threads, which are then synchronized. */
template <typename T, uint32_t kSubsets>
__device__ void cost_sample(const encode_job &job, const T *raw,
                            costing_shared<T, kSubsets> *shared) {
  const chunk_grid &grid = job.grid;
  const bool is_aligned = grid.row_values % kGroup == 0 && grid.component_count == 1;
  const group_rows<T, kRows<kSubsets>> rows(grid, raw, threadIdx.x);
  if (threadIdx.x < kWarp) {
    shared->costs[threadIdx.x] = {};
  }
  if constexpr (kStages<T, kSubsets>) {
    if (is_aligned && rows.valid) {
      shared->staged.stage(rows);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int t = 0; t < (grid.is_float ? kTransforms : 1); t++) {
    sampled_residuals<T, kSubsets> group = {};
    group.how = {transform_of(grid, t), job.swap};
    if (!is_aligned) {
      group.take_group(grid, raw, threadIdx.x);
    } else if constexpr (kStages<T, kSubsets>) {
      group.take_rows(rows, shared->staged);
    } else {
      group.take_rows(rows, rows);
    }
    group.tallies.add_to(shared->costs + t * kSubsetsMax);
  }
  __syncthreads();
}

/* The bits that are 1 in any value of the sample, which the first costs are those of. */
template <typename T> __device__ T any_bits(const encode_job &job, const sample_shared &shared) {
  T any = static_cast<T>(shared.costs[0].residual_or);
  restore_values<T, 1>(&any, {transform_of(job.grid, 0), false});
  return any;
}

/* A thread block chooses for a chunk, by the costs of its sample: transform, subset and offset of
 * W8, and whether it is ranked or left to the CPU. */
template <typename T, uint32_t kSubsets>
__device__ void choose_prediction(const encode_job &job, const T *raw, encode_state *state,
                                  sample_shared *shared) {
  const chunk_grid &grid = job.grid;
  if (threadIdx.x < kWarp) {
    uint32_t t, subset;
    const uint32_t bits =
        cheapest<T>(grid, shared->costs, grid.is_float ? kTransforms : 1, &t, &subset);
    if (threadIdx.x == 0) {
      state->subset = static_cast<uint8_t>(subset);
      state->transform = transform_of(grid, static_cast<int>(t));
      shared->bits = bits;
      shared->subset = subset;
    }
  }
  __syncthreads();
  uint64_t bits = shared->bits;
  if (!grid.is_float) {
    const residual_source<T> from = {{grid, raw, {GPUFI_TRANSFORM_NONE, job.swap}, shared->subset}};
    bits = choose_offset(from, shared->bits, shared, &state->offset);
  }
  bits = bits * group_count(grid) / sample_take(grid);
  const uint64_t w8_bits = bits, raw_bits = static_cast<uint64_t>(grid.value_count) * kBits<T>;
  const uint64_t limit = w8_bits < raw_bits ? w8_bits : raw_bits;
  const ranked_sample sample = survey_sample(job, shared->costs[0], any_bits<T>(job, *shared));
  const uint64_t ranked_bits = choose_ranks(job, raw, sample, limit, state, shared);
  bits = ranked_bits < limit ? ranked_bits : w8_bits;
  const bool is_left = sizeof(T) > 1 && has_few_values(job, raw, shared);
  if (threadIdx.x == 0) {
    state->is_left = is_left;
    state->w8_bits = w8_bits;
    state->bits = bits;
    if (bits != w8_bits && !is_left && grid.axis_count != 0) { /* one element is always constant */
      state->is_ranked = true;
      atomicAdd(job.counts[kRankedRuns], 1u);
    }
  }
  __syncthreads();
}

/* The shared memory of a thread block, one part after the other. */
template <typename T, uint32_t kSubsets> union choose_shared {
  costing_shared<T, kSubsets> costing;
  sample_shared sample;
  streams_shared streams;
  numbers_shared numbers;
};

/* Thread blocks that share a multiprocessor: bounds the registers, where many wait for memory. */
template <typename T, uint32_t kSubsets>
constexpr int kThreadBlocksPerSm = 4 / (sizeof(T) == 8 ? 2 : 1) / (kSubsets == kSubsetsMax ? 2 : 1);

/* Two thread blocks a chunk, those that look for numbers behind all others. `kSubsets`: at least as
 * many as there are. */
template <typename T, int C, uint32_t kSubsets>
__global__ void __launch_bounds__(kSampleThreads, kThreadBlocksPerSm<T, kSubsets>)
    choose_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ choose_shared<T, kSubsets> shared;
  const bool chooses = blockIdx.x < job.chunk_count;
  const uint32_t chunk = chooses ? blockIdx.x : blockIdx.x - job.chunk_count;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * job.grid.raw_pitch_nbytes);
  encode_state *const state = &job.states[chunk];
  if (!chooses) {
    const bool found = may_have_numbers(job, raw, &shared.numbers);
    if (threadIdx.x == 0) {
      state->may_have_base = found;
    }
    return;
  }
  cost_sample(job, raw, &shared.costing);
  choose_prediction<T, kSubsets>(job, raw, state, &shared.sample);
  if (state->is_left == 0 && job.grid.axis_count != 0) { /* one element is always constant */
    look_at_streams<T, C>(job, raw, state, &shared.streams);
  }
}

struct choose_launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    const bool few = job.grid.usable_count < GPUFI_PREDICT_AXES;
    return launch_early(
        few ? choose_kernel<T, C, kSubsetsMax / 2> : choose_kernel<T, C, kSubsetsMax>,
        (job.may_have_base ? 2 : 1) * job.chunk_count, kSampleThreads, 0, stream, job);
  }
};

} // namespace

namespace gpufi {

cudaError_t choose_predictions(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, choose_launch{job, stream});
}

} // namespace gpufi
