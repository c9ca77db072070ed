/* Choosing how a chunk is encoded by the cost of a sample, exactly as codec/predict.c and
 * codec/ranked.c. A thread block takes a chunk, and each of its threads a group of the sample. */
#include "backend/cuda/codec/offset.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

/* What is known of a group's residuals by one transform, along each subset. */
template <typename T, uint32_t kSubsets> struct group_tallies {
  group_tally<T> of[kSubsets];

  /* Add one value. values[s] is its neighbour along all of s, 0 if there is none. */
  __device__ __forceinline__ void add(const T values[kSubsets], T before, uint32_t inside,
                                      bool has_before, loading how) {
    T f[kSubsets];
#pragma unroll
    for (uint32_t s = 0; s < kSubsets; s++) {
      f[s] = values[s];
    }
    transform_values<T, kSubsets>(f, how); /* which maps 0 to 0 */
    transform_values<T, 1>(&before, how);
    const T chained = has_before ? static_cast<T>(f[0] - before) : 0;
#pragma unroll
    for (uint32_t bit = 1; bit < kSubsets; bit *= 2) {
#pragma unroll
      for (uint32_t s = 0; s < kSubsets; s++) {
        f[s] = (s & bit) ? static_cast<T>(f[s ^ bit] - f[s]) : f[s];
      }
    }
#pragma unroll
    for (uint32_t s = 0; s < kSubsets; s++) {
      of[s].add(s != 0 && (s & inside) == 0 ? chained : f[s]);
    }
  }
};

/* The group of one thread. There are kSubsets, of which those along axes that are not there are not
 * to be chosen. */
template <typename T, uint32_t kSubsets> struct sampled_residuals {
  group_tallies<T, kSubsets> tallies[kTransforms];

  __device__ __forceinline__ void add(const encode_job &job, const T values[kSubsets], T before,
                                      uint32_t inside, bool has_before) {
#pragma unroll
    for (int t = 0; t < kTransforms; t++) {
      if (t == 0 || job.grid.is_float) {
        tallies[t].add(values, before, inside, has_before, {transform_of(job.grid, t), job.swap});
      }
    }
  }

  /* Sampled group k, in any shape. */
  __device__ __forceinline__ void take_group(const encode_job &job, const T *raw, uint32_t k) {
    const chunk_grid &grid = job.grid;
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
        add(job, values, before != 0 ? raw[here.i - before] : static_cast<T>(0), inside,
            before != 0);
      }
    }
  }

  /* The same where rows start with a group and elements have one component: the neighbours in each
   * row are loaded side by side. */
  __device__ __forceinline__ void take_aligned_group(const encode_job &job, const T *raw,
                                                     uint32_t k) {
    constexpr uint32_t kOuter = kSubsets / 2; /* subsets without axis 0 */
    constexpr uint32_t kSide = kGroup / 2;
    const chunk_grid &grid = job.grid;
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
        add(job, values, before, inside, has_before);
        before = row[0][t];
        has_before = true;
        inside |= 1;
      }
    }
  }
};

/* Costs for the groups of a warp: lane 16t + s has those of transform t and subset s. */
template <typename T, uint32_t kSubsets>
__device__ residual_cost cost_groups(const encode_job &job, const T *raw) {
  sampled_residuals<T, kSubsets> group = {};
  if (job.grid.row_values % kGroup == 0 && job.grid.component_count == 1) {
    group.take_aligned_group(job, raw, threadIdx.x);
  } else {
    group.take_group(job, raw, threadIdx.x);
  }
  residual_cost mine = {};
#pragma unroll
  for (int t = 0; t < kTransforms; t++) {
#pragma unroll
    for (uint32_t s = 0; s < kSubsets; s++) {
      const residual_cost cost = warp_cost(group.tallies[t].of[s]);
      if (threadIdx.x % kWarp == static_cast<uint32_t>(t) * kSubsetsMax + s) {
        mine = cost;
      }
    }
  }
  return mine;
}

/* By one warp, from the costs of the whole sample: lane 16t + s takes transform t and subset s.
 * Returns the sample's bits. */
__device__ uint32_t pick(const encode_job &job, const residual_cost *costs, encode_state *state,
                         int value_bits) {
  const chunk_grid &grid = job.grid;
  const uint32_t lane = threadIdx.x, t = lane / kSubsetsMax, s = lane % kSubsetsMax;
  uint32_t key = UINT32_MAX;
  if (s < 1u << grid.usable_count && (t == 0 || grid.is_float)) {
    key = sampled_bits(costs[lane], sample_take(grid), value_bits) * kWarp + lane;
  }
  key = UINT32_MAX - warp_max(UINT32_MAX - key);
  if (lane == 0) {
    state->subset = static_cast<uint8_t>(key % kSubsetsMax);
    state->transform = transform_of(grid, static_cast<int>(key % kWarp / kSubsetsMax));
  }
  return key / kWarp;
}

/* `kSubsets`: at least as many as there are. */
template <typename T, uint32_t kSubsets>
__global__ void __launch_bounds__(kSampleThreads, sizeof(T) == 8 || kSubsets == kSubsetsMax ? 1 : 2)
    choose_kernel(const __grid_constant__ encode_job job) {
  __shared__ sample_shared shared;
  const chunk_grid &grid = job.grid;
  const uint32_t chunk = blockIdx.x;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  encode_state *const state = &job.states[chunk];
  if (threadIdx.x < kWarp) {
    shared.costs[threadIdx.x] = {};
  }
  __syncthreads();
  cost_groups<T, kSubsets>(job, raw).add_to(&shared.costs[threadIdx.x % kWarp]);
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const uint32_t bits = pick(job, shared.costs, state, kBits<T>);
    if (threadIdx.x == 0) {
      shared.bits = bits;
      shared.subset = state->subset;
    }
  }
  __syncthreads();
  uint64_t bits = shared.bits;
  if (!grid.is_float) {
    const residual_source<T> from = {{grid, raw, {GPUFI_TRANSFORM_NONE, job.swap}, shared.subset}};
    bits = choose_offset(from, shared.bits, &shared, &state->offset);
  }
  bits = bits * group_count(grid) / sample_take(grid);
  const uint64_t w8_bits = bits;
  bits = choose_ranks(job, raw, w8_bits, state, &shared);
  const bool is_left = sizeof(T) > 1 && has_few_values(job, raw, &shared);
  if (threadIdx.x == 0) {
    state->is_left = is_left;
    state->w8_bits = w8_bits;
    state->bits = bits;
    if (bits != w8_bits && !is_left && grid.axis_count != 0) { /* one element is always constant */
      state->is_ranked = true;
      atomicAdd(job.counts[kRankedRuns], 1u);
    }
  }
}

} // namespace

namespace gpufi {

cudaError_t choose_predictions(const encode_job &job, cudaStream_t stream) {
  const auto choose = [&](void (*kernel)(encode_job)) {
    return launch_kernel(kernel, job.chunk_count, kSampleThreads, 0, stream, job);
  };
  const bool few = job.grid.usable_count < GPUFI_PREDICT_AXES;
  constexpr uint32_t kFew = kSubsetsMax / 2;
  switch (job.grid.value_nbytes) {
  case 1:
    return choose(few ? choose_kernel<uint8_t, kFew> : choose_kernel<uint8_t, kSubsetsMax>);
  case 2:
    return choose(few ? choose_kernel<uint16_t, kFew> : choose_kernel<uint16_t, kSubsetsMax>);
  case 4:
    return choose(few ? choose_kernel<uint32_t, kFew> : choose_kernel<uint32_t, kSubsetsMax>);
  default:
    return choose(few ? choose_kernel<uint64_t, kFew> : choose_kernel<uint64_t, kSubsetsMax>);
  }
}

} // namespace gpufi
