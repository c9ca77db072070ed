/* Encoding a batch of chunks; codec/encode.c is the reference.
 *
 * A thread block encodes a run: each warp packs a block, residuals in registers, into shared
 * memory. Where the run goes in the batch, a decoupled look-back over the sizes of the runs before
 * it tells, by the warp that has packed first. Runs are begun in the order of the batch, so whoever
 * waits, waits for what is under way already.
 *
 * Ranked chunks, whose blocks are packed in another way, are encoded by a second launch, behind all
 * others. */
#include "backend/cuda/codec/bitshuffle.h"
#include "backend/cuda/codec/codec.h"
#include "backend/cuda/codec/encode.cuh"
#include "backend/cuda/codec/finish.cuh"
#include "backend/cuda/codec/lookback.cuh"
#include "backend/cuda/codec/pack.cuh"
#include "backend/cuda/codec/ranked_pack.cuh"
#include "backend/cuda/codec/residuals.cuh"
#include "backend/cuda/codec/staging.cuh"
#include "backend/cuda/launch.cuh"

#include <type_traits>

namespace {

using namespace gpufi;

constexpr uint32_t kWarps = GPUFI_RUN_BLOCKS; /* of a thread block: each packs one */
constexpr uint32_t kThreads = kWarps * kWarp;
/* Thread blocks that share a multiprocessor: bounds the registers. */
template <typename T> constexpr int kThreadBlocksPerSm = sizeof(T) == 8 ? 2 : 3;

/* --- ranked chunks -----------------------------------------------------------------------------
 */

template <bool kRanked> using table_of = std::conditional_t<kRanked, rank_tables, uint32_t>;

/* Between the header and the descriptors. */
template <bool kRanked> __device__ uint32_t tables_nbytes(const encode_job &job, uint32_t chunk) {
  const encode_state &state = job.states[chunk];
  return kRanked ? state.ranks.padded_nbytes() : state.parameters_nbytes;
}

/* --- a run -------------------------------------------------------------------------------------
 */

struct run_of_batch {
  uint32_t index, chunk, run; /* in the batch; that is run `run` of a chunk */
};

/* What the run takes in the batch, of which `blocks_nbytes` for its blocks. */
template <bool kRanked>
__device__ uint32_t run_nbytes(const encode_job &job, const run_of_batch &at,
                               uint32_t blocks_nbytes) {
  uint32_t nbytes = static_cast<uint32_t>(gpufi_round_up_16(blocks_nbytes));
  if (at.run == 0) {
    nbytes +=
        GPUFI_HEADER_NBYTES + tables_nbytes<kRanked>(job, at.chunk) + job.grid.descriptors_nbytes;
  }
  return nbytes;
}

/* Where run `index` of the batch starts. A whole warp. */
template <bool kRanked>
__device__ unsigned long long place_of(const encode_job &job, uint32_t index, int lane) {
  const unsigned long long front = kRanked ? load_relaxed(job.ends) : 0;
  return front + look_back(job.runs_of[kRanked], index, lane);
}

/* The last run of all tells where the batch ends. One thread. */
template <bool kRanked>
__device__ void tell_end(const encode_job &job, uint32_t index, unsigned long long end) {
  if (index == job.chunk_count * job.grid.run_count - 1) {
    job.places[job.chunk_count] = {end, 0};
    job.ends[kRanked] = end;
  }
}

/* Set the run's place. A whole warp. */
template <bool kRanked>
__device__ void place_run(const encode_job &job, const run_of_batch &at, held_run *held, int lane) {
  encode_state *const state = &job.states[at.chunk];
  const unsigned long long start = place_of<kRanked>(job, at.index, lane);
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
  held->start = start + run_nbytes<kRanked>(job, at, 0);
}

/* Measure the warp's block of the run, tell its size, and pack it. A whole warp. */
template <typename T, int C, bool kRanked>
__device__ __forceinline__ void pack_block(const encode_job &job, const run_of_batch &at,
                                           uint32_t warp, table_of<kRanked> *tables, uint4 *staging,
                                           held_run *held, int lane) {
  const chunk_grid &grid = job.grid;
  const encode_state &state = job.states[at.chunk];
  const uint32_t block = at.run * GPUFI_RUN_BLOCKS + warp;
  std::conditional_t<kRanked, ranked_block<T>, packed_block<T>> packed;
  packed.clear();
  if (block < grid.block_count) {
    const uint32_t first = block * GPUFI_BLOCK_VALUES, left = grid.value_count - first;
    const uint32_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
    const residual_source<T> from = {
        {grid,
         values_of<T>(job, at.chunk),
         {kRanked ? static_cast<uint8_t>(GPUFI_TRANSFORM_NONE) : state.transform,
          is_swapped(job, state)},
         kRanked ? static_cast<uint8_t>(0) : state.subset}};
    load_block(from, first, lane, packed.values);
    T *const list = reinterpret_cast<T *>(staging);
    if constexpr (kRanked) {
      packed.measure(*tables, count, lane, list);
    } else {
      predict_block<T, C>(from, first, lane, packed.values);
      if (state.offset != 0) {
        subtract_offset<T, C>(packed.values, static_cast<T>(state.offset), count,
                              first == 0 && state.subset != 0, lane);
      }
      packed.measure(count, lane, list);
    }
  }
  if (lane == 0) {
    held->nbytes[warp] = packed.nbytes;
    held->descriptors[warp] = packed.descriptor();
    const uint32_t before = atomicAdd(&held->measured, packed.nbytes | 1u << kMeasuredAt);
    if (before >> kMeasuredAt == GPUFI_RUN_BLOCKS - 1) {
      const uint32_t all = (before & ((1u << kMeasuredAt) - 1)) + packed.nbytes;
      publish_size(job.runs_of[kRanked], at.index, run_nbytes<kRanked>(job, at, all));
    }
  }
  clear_staging(staging, packed.nbytes, lane);
  uint32_t *const words = reinterpret_cast<uint32_t *>(staging);
  if constexpr (kRanked) {
    packed.write(*tables, words, lane);
  } else {
    packed.write(words, lane);
  }
  __syncwarp();
  if (lane == 0) {
    held->heads[warp] = *staging;
  }
}

/* The run's descriptors to their place, at byte `at` of the chunk; adds this thread's share to
 * `sum`. */
__device__ void write_descriptors(const chunk_grid &grid, uint32_t run, const held_run &held,
                                  uint8_t *chunk, uint32_t at, chunk_sum *sum) {
  const uint32_t past = run * GPUFI_RUN_BLOCKS * 4 + threadIdx.x * 16;
  if (threadIdx.x < GPUFI_RUN_BLOCKS / 4 && past < grid.descriptors_nbytes) {
    const uint32_t *const d = held.descriptors + 4 * threadIdx.x;
    const uint4 unit = make_uint4(d[0], d[1], d[2], d[3]);
    *reinterpret_cast<uint4 *>(chunk + at + past) = unit;
    sum->add((at + past) / 8, unit);
  }
}

/* The parameters to their place; adds them to `sum`. One thread. */
__device__ void write_parameters(const gpufi_numbers &numbers, uint8_t *chunk, chunk_sum *sum) {
  const uint4 unit = unit_of(gpufi_double_bits(numbers.a), gpufi_double_bits(numbers.b));
  *reinterpret_cast<uint4 *>(chunk + GPUFI_HEADER_NBYTES) = unit;
  sum->add(GPUFI_HEADER_NBYTES / 8, unit);
}

template <bool kRanked> struct run_shared {
  held_run held;
  chunk_sum partial[kWarps];
  table_of<kRanked> tables;
};

/* All threads. */
template <typename T, int C, bool kRanked>
__device__ __forceinline__ void encode_run(const encode_job &job, const run_of_batch &at,
                                           run_shared<kRanked> *shared) {
  const chunk_grid &grid = job.grid;
  const uint32_t warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  encode_state *const state = &job.states[at.chunk];
  held_run *const held = &shared->held;
  uint4 *const staging = dynamic_shared() + warp * kStagingUnits<T>;
  if (threadIdx.x == 0) {
    held->measured = held->packed_count = 0;
  }
  if constexpr (kRanked) {
    fill_tables(state->ranks, state->symbols, kThreads, &shared->tables);
  }
  __syncthreads();
  pack_block<T, C, kRanked>(job, at, warp, &shared->tables, staging, held, lane);
  const uint32_t order = lane == 0 ? atomicAdd(&held->packed_count, 1u) : 0;
  if (__shfl_sync(kAllLanes, order, 0) == 0) {
    place_run<kRanked>(job, at, held, lane);
  }
  __syncthreads();
  chunk_sum share = {0, 0};
  uint8_t *const to = job.encoded + held->chunk_start;
  const uint32_t descriptors_at = GPUFI_HEADER_NBYTES + tables_nbytes<kRanked>(job, at.chunk);
  write_block(*held, warp, staging, job.encoded, lane, &share);
  write_descriptors(grid, at.run, *held, to, descriptors_at, &share);
  if (!kRanked && at.run == 0 && state->parameters_nbytes != 0 && threadIdx.x == 0) {
    write_parameters(state->numbers, to, &share);
  }
  if (kRanked && at.run == 0) {
    write_table(state->ranks, state->symbols, to, &share);
  }
  const chunk_sum sum = thread_block_sum<kWarps>(share, shared->partial);
  if (threadIdx.x == 0) {
    const uint64_t end =
        held->start + static_cast<uint32_t>(gpufi_round_up_16(held->offset_of(GPUFI_RUN_BLOCKS)));
    tell_end<kRanked>(job, at.index, end);
    if (at.run == grid.run_count - 1) {
      state->end = end;
    }
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
    __threadfence();
    if (atomicAdd(&state->done_count, 1u) == grid.run_count - 1) {
      __threadfence();
      finish_chunk<T, C, kRanked>(job, at.chunk, state);
    }
  }
}

/* A run that the other kernel encodes takes no place. All threads. */
template <bool kRanked> __device__ void pass_run(const encode_job &job, const run_of_batch &at) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < kWarp) {
    if (lane == 0) {
      publish_size(job.runs_of[kRanked], at.index, 0);
    }
    const unsigned long long place = place_of<kRanked>(job, at.index, lane);
    if (lane == 0) {
      tell_end<kRanked>(job, at.index, place);
    }
  }
}

template <typename T, int C, bool kRanked>
__device__ __forceinline__ void take_run(const encode_job &job, uint32_t index,
                                         run_shared<kRanked> *shared) {
  const uint32_t chunk = divide(index, job.runs);
  const run_of_batch at = {index, chunk, index - chunk * job.grid.run_count};
  if (job.states[chunk].is_ranked == kRanked) {
    encode_run<T, C, kRanked>(job, at, shared);
  } else {
    pass_run<kRanked>(job, at);
  }
}

/* The chunks that are not ranked: a thread block a run. */
template <typename T, int C>
__global__ void __launch_bounds__(kThreads, kThreadBlocksPerSm<T>)
    encode_kernel(const __grid_constant__ encode_job job) {
  __shared__ run_shared<false> shared;
  take_run<T, C, false>(job, blockIdx.x, &shared);
}

/* Those that are ranked, of which there are none in most batches: thread blocks take the runs in
 * their order, one after the other. */
constexpr uint32_t kRankedThreadBlocks = 1024; /* about as many as a large GPU holds */

template <typename T>
__global__ void __launch_bounds__(kThreads, kThreadBlocksPerSm<T>)
    encode_ranked_kernel(const __grid_constant__ encode_job job) {
  __shared__ run_shared<true> shared;
  __shared__ uint32_t next;
  while (*job.ranked_count != 0) {
    __syncthreads();
    if (threadIdx.x == 0) {
      next = atomicAdd(job.ranked_taken, 1u);
    }
    __syncthreads();
    if (next >= job.chunk_count * job.grid.run_count) {
      return;
    }
    take_run<T, 1, true>(job, next, &shared);
  }
}

/* --- chunks that do not become smaller ---------------------------------------------------------
 */

constexpr uint32_t kRawThreads = 256;
constexpr uint64_t kRangeNbytes = 1 << 18;

__global__ void __launch_bounds__(kRawThreads)
    raw_kernel(const __grid_constant__ encode_job job, uint32_t range_count) {
  __shared__ chunk_sum partial[kRawThreads / kWarp];
  const chunk_grid &grid = job.grid;
  const uint32_t chunk = blockIdx.x / range_count, range = blockIdx.x % range_count;
  encode_state *const state = &job.states[chunk];
  if (!state->is_raw) {
    return;
  }
  const uint8_t *const from = job.raw + chunk * grid.raw_pitch_nbytes;
  uint8_t *const to = job.encoded + (state->start - 1);
  const uint64_t end = gpufi_round_up_16(grid.raw_nbytes);
  const uint64_t range_end = (range + 1) * kRangeNbytes < end ? (range + 1) * kRangeNbytes : end;
  chunk_sum share = {0, 0};
  for (uint64_t at = range * kRangeNbytes + threadIdx.x * 16; at < range_end;
       at += kRawThreads * 16) {
    uint4 unit = make_uint4(0, 0, 0, 0);
    if (at + 16 <= grid.raw_nbytes) {
      unit = *reinterpret_cast<const uint4 *>(from + at);
    } else {
      memcpy(&unit, from + at, grid.raw_nbytes - at);
    }
    *reinterpret_cast<uint4 *>(to + GPUFI_HEADER_NBYTES + at) = unit;
    share.add((GPUFI_HEADER_NBYTES + at) / 8, unit);
  }
  const chunk_sum sum = thread_block_sum<kRawThreads / kWarp>(share, partial);
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, sum.plain);
    atomicAdd(&state->mixed, sum.mixed);
    __threadfence();
    if (atomicAdd(&state->done_count, 1u) == range_count - 1) {
      __threadfence();
      header_coding coding = {};
      coding.payload_nbytes = end;
      write_header(grid, to, coding, {__ldcg(&state->plain), __ldcg(&state->mixed)});
    }
  }
}

/* --- launching ---------------------------------------------------------------------------------
 */

/* The staging areas of a run. */
constexpr size_t run_staging_nbytes(size_t value_nbytes) {
  return GPUFI_RUN_BLOCKS * staging_nbytes(value_nbytes);
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    const uint32_t run_count = job.chunk_count * job.grid.run_count;
    cudaError_t code = choose_predictions(job, stream);
    if (code == cudaSuccess && job.based != nullptr) {
      code = choose_bases(job, stream);
    }
    if (code == cudaSuccess) {
      code = leave_chunks(job, stream);
    }
    if (code == cudaSuccess && job.based != nullptr) {
      code = convert_bases(job, stream);
    }
    if (code == cudaSuccess) {
      code = encode<T>(encode_kernel<T, C>, run_count);
    }
    if (code == cudaSuccess) {
      code = encode<T>(encode_ranked_kernel<T>,
                       run_count < kRankedThreadBlocks ? run_count : kRankedThreadBlocks);
    }
    if (code == cudaSuccess) {
      const uint32_t range_count =
          static_cast<uint32_t>((job.grid.raw_nbytes + kRangeNbytes - 1) / kRangeNbytes);
      code = launch_kernel(raw_kernel, job.chunk_count * range_count, kRawThreads, 0, stream, job,
                           range_count);
    }
    return code;
  }

  template <typename T>
  cudaError_t encode(void (*kernel)(encode_job), uint32_t thread_blocks) const {
    constexpr int kShared = static_cast<int>(run_staging_nbytes(sizeof(T)));
    const cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    return code == cudaSuccess
               ? launch_kernel(kernel, thread_blocks, kThreads, kShared, stream, job)
               : code;
  }
};

/* Whether there may be floats by way of a base. */
bool may_have_base(const chunk_grid &grid) {
  return grid.is_float && grid.value_nbytes > 1;
}

/* The scratch in its order; each part's size is a multiple of 16. */
struct encode_scratch {
  size_t states, sizes, sums, totals, based;

  encode_scratch(const gpufi_chunks *chunks, const chunk_grid &grid)
      : states(gpufi_round_up_16(sizeof(encode_state) * chunks->count)),
        sizes(gpufi_round_up_16(sizeof(uint32_t) * grid.run_count * chunks->count)),
        sums(gpufi_round_up_16(sizeof(unsigned long long) *
                               (grid.run_count * chunks->count / kWindow + 1))),
        totals(32),
        based(may_have_base(grid) ? gpufi_round_up_16(grid.raw_pitch_nbytes * chunks->count) : 0) {}

  size_t total() const {
    return zeroed() + based;
  }

  /* What is to be zero, which comes first. */
  size_t zeroed() const {
    return states + 2 * (sizes + 2 * sums) + totals;
  }
};

} // namespace

size_t gpufi_cuda_encode_shared_nbytes(const gpufi_chunks *chunks) {
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    return 0; /* as much as every GPU has */
  }
  const size_t of_ranked_kernel = sizeof(run_shared<true>) + sizeof(uint32_t);
  return of_ranked_kernel + run_staging_nbytes(make_grid(chunks).value_nbytes);
}

size_t gpufi_cuda_encode_scratch_nbytes(const gpufi_chunks *chunks) {
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    return gpufi_cuda_bitshuffle_scratch_nbytes(chunks);
  }
  return encode_scratch(chunks, make_grid(chunks)).total();
}

cudaError_t gpufi_cuda_encode(const gpufi_chunks *chunks, const void *d_raw, void *d_encoded,
                              gpufi_chunk_place *d_places, void *d_scratch, cudaStream_t stream) {
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    return gpufi_cuda_bitshuffle(chunks, d_raw, d_encoded, d_places, d_scratch, stream);
  }
  encode_job job = {};
  job.grid = make_grid(chunks);
  const encode_scratch sizes(chunks, job.grid);
  uint8_t *at = static_cast<uint8_t *>(d_scratch);
  job.cuts = gpufi_ranks_cuts(chunks->shape.dtype, job.grid.value_nbytes);
  job.swap = chunks->big_endian && job.grid.value_nbytes > 1;
  job.has_planes = gpufi_planes_pay(&chunks->shape);
  job.chunk_count = static_cast<uint32_t>(chunks->count);
  job.raw = static_cast<const uint8_t *>(d_raw);
  job.encoded = static_cast<uint8_t *>(d_encoded);
  job.places = d_places;
  job.states = reinterpret_cast<encode_state *>(at);
  at += sizes.states;
  for (run_sizes &runs : job.runs_of) {
    runs.sizes = reinterpret_cast<uint32_t *>(at);
    runs.sums = reinterpret_cast<unsigned long long *>(at += sizes.sizes);
    runs.starts = reinterpret_cast<unsigned long long *>(at += sizes.sums);
    at += sizes.sums;
  }
  job.ends = reinterpret_cast<unsigned long long *>(at);
  job.ranked_count = reinterpret_cast<uint32_t *>(at + 2 * sizeof(*job.ends));
  job.ranked_taken = job.ranked_count + 1;
  job.based =
      may_have_base(job.grid) ? static_cast<uint8_t *>(d_scratch) + sizes.zeroed() : nullptr;
  job.runs = make_divisor(job.grid.run_count);
  const cudaError_t code = cudaMemsetAsync(d_scratch, 0, sizes.zeroed(), stream);
  return code == cudaSuccess ? with_values(job.grid, launch{job, stream}) : code;
}
