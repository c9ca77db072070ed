/* Choosing how a chunk is encoded by the cost of a sample, exactly as codec/predict.c and
 * codec/ranked.c, and all else that a first look at the sample shows: whether there may be numbers
 * behind floats, and whether matches may pay. A thread block takes a chunk, and each of its threads
 * a group of the sample. */
#include "backend/cuda/codec/numbers.cuh"
#include "backend/cuda/codec/offset.cuh"
#include "backend/cuda/codec/repeats.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

/* The group of one thread by one transform. There are kSubsets, of which those along axes that are
 * not there are not to be chosen. */
template <typename T, uint32_t kSubsets> struct sampled_residuals {
  group_tallies<T, kSubsets> tallies;
  loading how;

  /* values[s] is the value's neighbour along all of s, 0 if there is none. */
  __device__ __forceinline__ void add(T values[kSubsets], T before, uint32_t inside,
                                      bool has_before) {
    transform_values<T, kSubsets>(values, how); /* which maps 0 to 0 */
    transform_values<T, 1>(&before, how);
    const T chained = has_before ? static_cast<T>(values[0] - before) : 0;
    tallies.add(values, chained, inside);
  }

  /* Sampled group k, in any shape. */
  __device__ __forceinline__ void take_group(const chunk_grid &grid, const T *raw, uint32_t k) {
    for (uint32_t t = 0; t < kGroup; t++) {
      const sampled_value here = sample_value(grid, k, t);
      if (here.valid) {
        uint32_t before;
        const uint32_t inside = neighbours_of(grid, here.i, &before);
        T values[kSubsets];
#pragma unroll
        for (uint32_t s = 0; s < kSubsets; s++) {
          values[s] = (s & ~inside) == 0 ? raw[here.i - grid.offsets[s]] : static_cast<T>(0);
        }
        add(values, before != 0 ? raw[here.i - before] : static_cast<T>(0), inside, before != 0);
      }
    }
  }

  /* The same where rows start with a group and elements have one component: the neighbours in each
   * row are loaded side by side. */
  __device__ __forceinline__ void take_aligned_group(const chunk_grid &grid, const T *raw,
                                                     uint32_t k) {
    constexpr uint32_t kOuter = kSubsets / 2; /* subsets without axis 0 */
    constexpr uint32_t kSide = kGroup / 2;
    const sampled_value first = sample_value(grid, k, 0);
    if (!first.valid) {
      return;
    }
    const uint32_t i = first.i;
    uint32_t distance;
    const uint32_t first_inside = neighbours_of(grid, i, &distance);
    const bool starts_row = (first_inside & 1) == 0;
    T last[kOuter]; /* the values before, in the same rows */
#pragma unroll
    for (uint32_t o = 0; o < kOuter; o++) {
      const bool there = (2 * o & ~first_inside) == 0 && !starts_row;
      last[o] = there ? raw[i - 1 - grid.offsets[2 * o]] : static_cast<T>(0);
    }
    /* What stands before the group: in its row, or where its row has no neighbours. */
    T before = starts_row && distance != 0 ? raw[i - distance] : last[0];
    bool has_before = distance != 0;
    uint32_t inside = first_inside;
    for (uint32_t side = 0; side < kGroup; side += kSide) {
      T row[kOuter][kSide];
#pragma unroll
      for (uint32_t o = 0; o < kOuter; o++) {
        if ((2 * o & ~first_inside) == 0) {
          load_values<kSide>(raw + (i + side - grid.offsets[2 * o]), row[o]);
        } else {
#pragma unroll
          for (uint32_t t = 0; t < kSide; t++) {
            row[o][t] = 0;
          }
        }
      }
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
__device__ void cost_sample(const encode_job &job, const T *raw, residual_cost *costs) {
  const chunk_grid &grid = job.grid;
  const bool is_aligned = grid.row_values % kGroup == 0 && grid.component_count == 1;
  if (threadIdx.x < kWarp) {
    costs[threadIdx.x] = {};
  }
  __syncthreads();
#pragma unroll 1
  for (int t = 0; t < (grid.is_float ? kTransforms : 1); t++) {
    sampled_residuals<T, kSubsets> group = {};
    group.how = {transform_of(grid, t), job.swap};
    if (is_aligned) {
      group.take_aligned_group(grid, raw, threadIdx.x);
    } else {
      group.take_group(grid, raw, threadIdx.x);
    }
    group.tallies.add_to(costs + t * kSubsetsMax);
  }
  __syncthreads();
}

/* The bits that are 1 in any value of the sample, which the first costs are those of. */
template <typename T> __device__ T any_bits(const encode_job &job, const sample_shared &shared) {
  T any = static_cast<T>(shared.costs[0].residual_or);
  restore_values<T, 1>(&any, {transform_of(job.grid, 0), false});
  return any;
}

/* A thread block chooses for a chunk: transform, subset and offset of W8, and whether it is ranked
 * or left to the CPU. */
template <typename T, uint32_t kSubsets>
__device__ void choose_prediction(const encode_job &job, const T *raw, encode_state *state,
                                  sample_shared *shared) {
  const chunk_grid &grid = job.grid;
  cost_sample<T, kSubsets>(job, raw, shared->costs);
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
union choose_shared {
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
  __shared__ choose_shared shared;
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
    return launch_kernel(
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
