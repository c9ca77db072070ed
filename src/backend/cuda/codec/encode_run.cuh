/* A run of a chunk that a thread block encodes: each warp packs a block into shared memory, and the
 * blocks go from there into the batch.
 *
 * Where the run goes, a decoupled look-back over the sizes of the runs before it tells, by the warp
 * that has packed first. Runs are begun in the order of the batch, so whoever waits, waits for what
 * is under way already.
 *
 * There is a launch for each kind of run, which goes through those of all chunks and passes over
 * those of other kinds. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_ENCODE_RUN_CUH
#define GPUFI_BACKEND_CUDA_CODEC_ENCODE_RUN_CUH

#include "backend/cuda/codec/corrections.cuh"
#include "backend/cuda/codec/finish.cuh"
#include "backend/cuda/codec/lookback.cuh"
#include "backend/cuda/codec/pack.cuh"
#include "backend/cuda/codec/ranked_pack.cuh"
#include "backend/cuda/codec/residuals.cuh"
#include "backend/cuda/codec/staging.cuh"
#include "backend/cuda/launch.cuh"

#include <type_traits>

namespace gpufi {

/* The blocks of a run, each of which has a warp: those of corrections come behind the others. */
template <run_kind kKind>
constexpr uint32_t kWarps = kKind == kCorrectedRuns ? 2 * GPUFI_RUN_BLOCKS : GPUFI_RUN_BLOCKS;
template <run_kind kKind> constexpr uint32_t kThreads = kWarps<kKind> * kWarp;

/* The staging areas of a run, in dynamic shared memory. */
template <run_kind kKind> constexpr size_t run_staging_nbytes(size_t value_nbytes) {
  return kWarps<kKind> * staging_nbytes(value_nbytes);
}

template <run_kind kKind>
using table_of = std::conditional_t<kKind == kRankedRuns, rank_tables, uint32_t>;

/* A thread block's shared memory, without the staging areas. */
template <run_kind kKind> struct run_shared {
  held_run<kWarps<kKind>> held;
  chunk_sum partial[kWarps<kKind>];
  table_of<kKind> tables;
  bool is_last; /* of the chunk's runs to be written */
};

struct run_of_batch {
  uint32_t index, chunk, run; /* in the batch; that is run `run` of a chunk */
};

/* Between the header and the descriptors. */
template <run_kind kKind> __device__ uint32_t tables_nbytes(const encode_state &state) {
  return kKind == kRankedRuns ? state.ranks.padded_nbytes() : state.parameters_nbytes;
}

/* What the run takes in the batch, of which `blocks_nbytes` for its blocks. */
template <run_kind kKind>
__device__ uint32_t run_nbytes(const encode_job &job, const run_of_batch &at,
                               uint32_t blocks_nbytes) {
  uint32_t nbytes = static_cast<uint32_t>(gpufi_round_up_16(blocks_nbytes));
  if (at.run == 0) {
    nbytes += GPUFI_HEADER_NBYTES + tables_nbytes<kKind>(job.states[at.chunk]) +
              descriptors_nbytes<kKind>(job.grid);
  }
  return nbytes;
}

/* Where run `index` of the batch starts. A whole warp. */
template <run_kind kKind>
__device__ unsigned long long place_of(const encode_job &job, uint32_t index, int lane) {
  return front_of<kKind>(job) + look_back(job.runs_of[kKind], index, lane);
}

/* The last run of all tells where the batch ends. One thread. */
template <run_kind kKind>
__device__ void tell_end(const encode_job &job, uint32_t index, unsigned long long end) {
  if (index == job.chunk_count * job.grid.run_count - 1) {
    job.places[job.chunk_count] = {end < job.encoded_nbytes ? end : job.encoded_nbytes, 0};
    job.ends[kKind] = end;
  }
}

/* Set the run's place. A whole warp. */
template <run_kind kKind>
__device__ void place_run(const encode_job &job, const run_of_batch &at,
                          held_run<kWarps<kKind>> *held, int lane) {
  encode_state *const state = &job.states[at.chunk];
  const unsigned long long start = place_of<kKind>(job, at.index, lane);
  if (lane != 0) {
    return;
  }
  if (at.run == 0) {
    store_relaxed(&state->start, start + 1);
    held->chunk_start = start;
  } else {
    unsigned long long word;
    do {
      word = load_relaxed(&state->start);
    } while (word == 0);
    held->chunk_start = word - 1;
  }
  held->start = start + run_nbytes<kKind>(job, at, 0);
}

/* The residuals of the block that starts at value `first`, of `count` values; or its values if the
 * chunk is ranked. All lanes. */
template <typename T, int C, run_kind kKind>
__device__ __forceinline__ void load_residuals(const encode_job &job, uint32_t chunk,
                                               uint32_t first, uint32_t count, int lane,
                                               T values[kLaneGroups][kGroup]) {
  const encode_state &state = job.states[chunk];
  constexpr bool kRanked = kKind == kRankedRuns;
  const residual_source<T> from = {
      {job.grid,
       values_of<T>(job, chunk),
       {kRanked ? static_cast<uint8_t>(GPUFI_TRANSFORM_NONE) : state.transform,
        is_swapped(job, state)},
       kRanked ? static_cast<uint8_t>(0) : state.subset}};
  load_block(from, first, lane, values);
  if constexpr (!kRanked) {
    predict_block<T, C>(from, first, lane, values);
    if (state.offset != 0) {
      subtract_offset<T, C>(values, static_cast<T>(state.offset), count,
                            first == 0 && state.subset != 0, lane);
    }
  }
}

/* Measure the warp's block of the run, tell its size, and pack it. A whole warp. */
template <typename T, int C, run_kind kKind>
__device__ __forceinline__ void pack_block(const encode_job &job, const run_of_batch &at,
                                           uint32_t warp, table_of<kKind> *tables, uint4 *staging,
                                           held_run<kWarps<kKind>> *held, int lane) {
  const chunk_grid &grid = job.grid;
  const uint32_t block = at.run * GPUFI_RUN_BLOCKS + warp % GPUFI_RUN_BLOCKS;
  std::conditional_t<kKind == kRankedRuns, ranked_block<T>, packed_block<T>> packed;
  packed.clear();
  if (block < grid.block_count) {
    const uint32_t first = block * GPUFI_BLOCK_VALUES, left = grid.value_count - first;
    const uint32_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
    T *const list = reinterpret_cast<T *>(staging);
    if (kKind == kCorrectedRuns && warp >= GPUFI_RUN_BLOCKS) {
      load_corrections(job, at.chunk, first, count, lane, list, packed.values);
    } else {
      load_residuals<T, C, kKind>(job, at.chunk, first, count, lane, packed.values);
    }
    if constexpr (kKind == kRankedRuns) {
      packed.measure(*tables, count, lane, list);
    } else {
      packed.measure(count, lane, list);
    }
  }
  if (lane == 0) {
    held->nbytes[warp] = packed.nbytes;
    held->descriptors[warp] = packed.descriptor();
    const uint32_t before = atomicAdd(&held->measured, packed.nbytes | 1u << kMeasuredAt);
    if (before >> kMeasuredAt == kWarps<kKind> - 1) {
      const uint32_t all = (before & ((1u << kMeasuredAt) - 1)) + packed.nbytes;
      publish_size(job.runs_of[kKind], at.index, run_nbytes<kKind>(job, at, all));
    }
  }
  clear_staging(staging, packed.nbytes, lane);
  uint32_t *const words = reinterpret_cast<uint32_t *>(staging);
  if constexpr (kKind == kRankedRuns) {
    packed.write(*tables, words, lane);
  } else {
    packed.write(words, lane);
  }
  __syncwarp();
  if (lane == 0) {
    held->heads[warp] = *staging;
  }
}

/* The run's descriptors to the table at `to`, which is at byte `at` of the chunk; adds this
 * thread's share to `sum`. */
__device__ inline void write_descriptors(const chunk_grid &grid, uint32_t run,
                                         const held_run<GPUFI_RUN_BLOCKS> &held, uint8_t *to,
                                         uint32_t at, chunk_sum *sum) {
  const uint32_t past = run * GPUFI_RUN_BLOCKS * 4 + threadIdx.x * 16;
  if (threadIdx.x < GPUFI_RUN_BLOCKS / 4 && past < descriptors_nbytes<kPlainRuns>(grid)) {
    const uint32_t *const d = held.descriptors + 4 * threadIdx.x;
    const uint4 unit = make_uint4(d[0], d[1], d[2], d[3]);
    *reinterpret_cast<uint4 *>(to + past) = unit;
    sum->add((at + past) / 8, unit);
  }
}

/* The same with corrections, whose descriptors begin anywhere: they are added to the sum when all
 * of the chunk's are written. */
__device__ inline void write_descriptors(const chunk_grid &grid, uint32_t run,
                                         const held_run<2 * GPUFI_RUN_BLOCKS> &held, uint8_t *to,
                                         uint32_t, chunk_sum *) {
  const uint32_t k = threadIdx.x, block = run * GPUFI_RUN_BLOCKS + k % GPUFI_RUN_BLOCKS;
  const uint32_t words = descriptors_nbytes<kCorrectedRuns>(grid) / 4;
  uint32_t *const table = reinterpret_cast<uint32_t *>(to);
  if (k < 2 * GPUFI_RUN_BLOCKS && block < grid.block_count) {
    table[k / GPUFI_RUN_BLOCKS * grid.block_count + block] = held.descriptors[k];
  }
  if (run == 0 && k < words - 2 * grid.block_count) { /* what fills the last unit up */
    table[2 * grid.block_count + k] = 0;
  }
}

/* Add the descriptors at byte `at` of the chunk to `sum`. All threads. */
__device__ inline void sum_descriptors(const chunk_grid &grid, const uint8_t *chunk, uint32_t at,
                                       chunk_sum *sum) {
  for (uint32_t past = threadIdx.x * 16; past < descriptors_nbytes<kCorrectedRuns>(grid);
       past += kThreads<kCorrectedRuns> * 16) {
    sum->add((at + past) / 8, __ldcg(reinterpret_cast<const uint4 *>(chunk + at + past)));
  }
}

/* The parameters and the fill to their place; adds them to `sum`. One thread. */
__device__ inline void write_parameters(const encode_state &state, uint8_t *chunk, chunk_sum *sum) {
  const gpufi_numbers &numbers = state.numbers;
  const bool is_number = gpufi_transform_has_parameters(numbers.transform) != 0;
  uint8_t *to = chunk + GPUFI_HEADER_NBYTES;
  uint64_t at = GPUFI_HEADER_NBYTES / 8;
  if (is_number) {
    const uint4 unit = unit_of(gpufi_double_bits(numbers.a), gpufi_double_bits(numbers.b));
    *reinterpret_cast<uint4 *>(to) = unit;
    sum->add(at, unit);
    to += sizeof(unit);
    at += 2;
  }
  if (numbers.has_fill) {
    const uint4 unit = unit_of(numbers.fill, 0);
    *reinterpret_cast<uint4 *>(to) = unit;
    sum->add(at, unit);
  }
}

/* All of the run, which is packed, to its place, and what stands before the first one's blocks.
 * All threads; returns each one's share of the checksum. */
template <typename T, run_kind kKind>
__device__ __forceinline__ chunk_sum write_run(const encode_job &job, const run_of_batch &at,
                                               const run_shared<kKind> &shared,
                                               const uint4 *staging) {
  const encode_state &state = job.states[at.chunk];
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t descriptors_at = GPUFI_HEADER_NBYTES + tables_nbytes<kKind>(state);
  chunk_sum share = {0, 0};
  uint8_t *const to = job.encoded + shared.held.chunk_start;
  write_block(shared.held, warp, staging, job.encoded, threadIdx.x % kWarp, &share);
  write_descriptors(job.grid, at.run, shared.held, to + descriptors_at, descriptors_at, &share);
  if (kKind != kRankedRuns && at.run == 0 && state.parameters_nbytes != 0 && threadIdx.x == 0) {
    write_parameters(state, to, &share);
  }
  if (kKind == kRankedRuns && at.run == 0) {
    write_table(state.ranks, state.symbols, to, &share);
  }
  return share;
}

/* Add to the chunk's sum, and finish the chunk if this was the last of its runs. All threads. */
template <typename T, int C, run_kind kKind>
__device__ __forceinline__ void finish_run(const encode_job &job, const run_of_batch &at,
                                           chunk_sum share, run_shared<kKind> *shared) {
  encode_state *const state = &job.states[at.chunk];
  const chunk_sum sum = thread_block_sum<kWarps<kKind>>(share, shared->partial);
  bool is_last = false; /* in the first thread, which others ask only after a barrier */
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
    __threadfence();
    is_last = atomicAdd(&state->done_count, 1u) == job.grid.run_count - 1;
    shared->is_last = is_last;
    __threadfence();
  }
  if constexpr (kKind == kCorrectedRuns) {
    __syncthreads();
    if (shared->is_last && __ldcg(&state->is_lost) == 0) {
      chunk_sum rest = {0, 0};
      sum_descriptors(job.grid, job.encoded + shared->held.chunk_start,
                      GPUFI_HEADER_NBYTES + state->parameters_nbytes, &rest);
      rest = thread_block_sum<kWarps<kKind>>(rest, shared->partial);
      if (threadIdx.x == 0) {
        atomicAdd(&state->plain, static_cast<unsigned long long>(rest.plain));
        atomicAdd(&state->mixed, static_cast<unsigned long long>(rest.mixed));
        __threadfence();
      }
    }
  }
  if (is_last) {
    finish_chunk<T, C, kKind>(job, at.chunk, state);
  }
}

/* All threads. */
template <typename T, int C, run_kind kKind>
__device__ __forceinline__ void encode_run(const encode_job &job, const run_of_batch &at,
                                           run_shared<kKind> *shared) {
  const uint32_t warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  encode_state *const state = &job.states[at.chunk];
  auto *const held = &shared->held;
  uint4 *const staging = dynamic_shared() + warp * kStagingUnits<T>;
  if (threadIdx.x == 0) {
    held->measured = held->packed_count = 0;
  }
  if constexpr (kKind == kRankedRuns) {
    fill_tables(state->ranks, state->symbols, kThreads<kKind>, &shared->tables);
  }
  __syncthreads();
  pack_block<T, C, kKind>(job, at, warp, &shared->tables, staging, held, lane);
  const uint32_t order = lane == 0 ? atomicAdd(&held->packed_count, 1u) : 0;
  if (__shfl_sync(kAllLanes, order, 0) == 0) {
    place_run<kKind>(job, at, held, lane);
  }
  __syncthreads();
  const uint64_t end =
      held->start + static_cast<uint32_t>(gpufi_round_up_16(held->offset_of(kWarps<kKind>)));
  /* Two streams may take more than the buffer has for a chunk that is to be raw. */
  const bool fits = kKind != kCorrectedRuns || end <= job.encoded_nbytes;
  if (threadIdx.x == 0) {
    tell_end<kKind>(job, at.index, end);
    if (at.run == job.grid.run_count - 1) {
      state->end = end;
    }
    if (!fits) {
      state->is_lost = 1;
    }
  }
  finish_run<T, C, kKind>(
      job, at, fits ? write_run<T, kKind>(job, at, *shared, staging) : chunk_sum{0, 0}, shared);
}

/* A run that another launch encodes takes no place. All threads. */
template <run_kind kKind> __device__ void pass_run(const encode_job &job, const run_of_batch &at) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < kWarp) {
    if (lane == 0) {
      publish_size(job.runs_of[kKind], at.index, 0);
    }
    const unsigned long long place = place_of<kKind>(job, at.index, lane);
    if (lane == 0) {
      tell_end<kKind>(job, at.index, place);
    }
  }
}

/* Run `index` of the batch. All threads. */
template <typename T, int C, run_kind kKind>
__device__ __forceinline__ void take_run(const encode_job &job, uint32_t index,
                                         run_shared<kKind> *shared) {
  const uint32_t chunk = divide(index, job.runs);
  const run_of_batch at = {index, chunk, index - chunk * job.grid.run_count};
  if (job.states[chunk].kind() == kKind) {
    encode_run<T, C, kKind>(job, at, shared);
  } else {
    pass_run<kKind>(job, at);
  }
}

/* The runs of kinds of which most batches have none: thread blocks take them in their order, one
 * after the other. All threads. */
template <typename T, int C, run_kind kKind>
__device__ __forceinline__ void take_runs(const encode_job &job, run_shared<kKind> *shared,
                                          uint32_t *next) {
  while (*job.counts[kKind] != 0) {
    __syncthreads();
    if (threadIdx.x == 0) {
      *next = atomicAdd(job.taken[kKind], 1u);
    }
    __syncthreads();
    if (*next >= job.chunk_count * job.grid.run_count) {
      return;
    }
    take_run<T, C, kKind>(job, *next, shared);
  }
}

/* Launch a kernel that encodes runs of the kind, of values of T. */
template <typename T, run_kind kKind>
cudaError_t launch_runs(const encode_job &job, void (*kernel)(encode_job), cudaStream_t stream) {
  constexpr int kShared = static_cast<int>(run_staging_nbytes<kKind>(sizeof(T)));
  const uint32_t run_count = job.chunk_count * job.grid.run_count;
  const uint32_t thread_blocks = kKind == kPlainRuns ? run_count : taking_thread_blocks(run_count);
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  return code == cudaSuccess
             ? launch_early(kernel, thread_blocks, kThreads<kKind>, kShared, stream, job)
             : code;
}

} // namespace gpufi

#endif
