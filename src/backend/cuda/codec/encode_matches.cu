/* Encoding chunks of matches; codec/matches.c and codec/lz4.c are the references.
 *
 * A warp arranges and encodes a block in its part of the scratch, the first one of each chunk
 * before all others, whose matches may begin in it. Once all sizes are known, they are summed up to
 * places, and the blocks are copied there. */
#include "backend/cuda/codec/finish.cuh"
#include "backend/cuda/codec/match_window.cuh"
#include "backend/cuda/codec/scan.cuh"
#include "backend/cuda/codec/staging.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

constexpr uint32_t kSumThreads = 256;
constexpr uint32_t kCopyWarps = 8;

static_assert(sizeof(first_block::units) == GPUFI_MATCHES_NBYTES_MAX &&
                  sizeof(first_block::table) == sizeof(lz4_table),
              "a whole block, and its table");

struct block_shared {
  match_window<GPUFI_MATCHES_NBYTES_MAX> window;
  lz4_table table;
};

__device__ uint32_t block_count(const encode_job &job) {
  return match_block_count(job.grid, GPUFI_MATCHES_LOG2);
}

/* Where a block's bytes are until they are copied. */
__device__ uint8_t *staging_of(const encode_job &job, uint32_t chunk, uint32_t block) {
  return job.work + chunk * job.grid.raw_pitch_nbytes +
         (static_cast<uint64_t>(block) << GPUFI_MATCHES_LOG2);
}

__device__ uint32_t *sizes_of(const encode_job &job, uint32_t chunk) {
  return job.match_sizes + static_cast<size_t>(chunk) * block_count(job);
}

__device__ uint32_t *offsets_of(const encode_job &job, uint32_t chunk) {
  return job.match_offsets + static_cast<size_t>(chunk) * (block_count(job) + 1);
}

/* --- blocks --- */

/* A block, at byte `begin` of the window; `table` and the window are those that the first block
 * left, if this is another. All lanes. */
template <typename T, int C>
__device__ void encode_block(const encode_job &job, uint32_t chunk, uint32_t block, uint32_t begin,
                             block_shared *shared, uint32_t lane) {
  encode_state *const state = &job.states[chunk];
  const match_stream stream = {state->transform, state->subset, state->arrangement, state->offset};
  const uint32_t nbytes = arranged_nbytes(job.grid, block, GPUFI_MATCHES_LOG2);
  uint8_t *const to = staging_of(job, chunk, block);
  const bool varies = arrange_residuals<T, C>(job, chunk, stream, block * kMatchValues<T>,
                                              nbytes / static_cast<uint32_t>(sizeof(T)),
                                              shared->window.bytes() + begin, lane);
  if (__any_sync(kAllLanes, varies) && lane == 0) {
    state->varies = 1;
  }
  const uint32_t used = lz4_encode_after(shared->window.raw, begin, begin + nbytes, &shared->table,
                                         to, nbytes - 1, lane);
  if (used >= nbytes) {
    for (uint32_t i = lane; i < nbytes; i += kWarp) {
      to[i] = shared->window.bytes()[begin + i];
    }
  }
  if (lane == 0) {
    sizes_of(job, chunk)[block] = used < nbytes ? used : nbytes;
  }
}

/* The first block of each chunk; what the others need of it goes to the scratch. */
template <typename T, int C>
__global__ void __launch_bounds__(kWarp) first_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ block_shared shared;
  const uint32_t chunk = blockIdx.x, lane = threadIdx.x;
  if (!job.states[chunk].is_match) {
    return;
  }
  shared.table.clear(lane);
  encode_block<T, C>(job, chunk, 0, 0, &shared, lane);
  if (block_count(job) > 1) {
    first_block *const first = &job.first_blocks[chunk];
    for (uint32_t i = lane; i < GPUFI_MATCHES_NBYTES_MAX / 16; i += kWarp) {
      first->units[i] = reinterpret_cast<const uint4 *>(shared.window.raw)[i];
    }
    for (uint32_t i = lane; i < kLz4Hashes / 2; i += kWarp) {
      first->table[i] = shared.table.words[i];
    }
  }
}

/* All others. */
template <typename T, int C>
__global__ void __launch_bounds__(kWarp) others_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ block_shared shared;
  const uint32_t lane = threadIdx.x, others = block_count(job) - 1;
  const uint32_t count = *job.counts[kMatches] != 0 ? job.chunk_count * others : 0;
  for (uint32_t index = blockIdx.x; index < count; index += gridDim.x) {
    const uint32_t chunk = index / others, block = 1 + index % others;
    if (job.states[chunk].is_match) {
      const first_block *const first = &job.first_blocks[chunk];
      for (uint32_t i = lane; i < GPUFI_MATCHES_NBYTES_MAX / 16; i += kWarp) {
        reinterpret_cast<uint4 *>(shared.window.raw)[i] = first->units[i];
      }
      shared.table.copy(first->table, lane);
      encode_block<T, C>(job, chunk, block, GPUFI_MATCHES_NBYTES_MAX, &shared, lane);
      __syncwarp(); /* what is shared is for the next block */
    }
  }
}

/* --- places --- */

/* A thread block takes a chunk: where its blocks begin, counted from the first. */
__global__ void __launch_bounds__(kSumThreads)
    measure_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  const uint32_t chunk = blockIdx.x, count = block_count(job);
  if (!job.states[chunk].is_match) {
    return;
  }
  uint64_t end = 0;
  for (uint32_t begin = 0; begin < count; begin += kSumThreads) {
    const uint32_t block = begin + threadIdx.x;
    uint64_t all;
    const uint64_t before =
        sum_before<kSumThreads>(block < count ? sizes_of(job, chunk)[block] : 0, &all);
    if (block < count) {
      offsets_of(job, chunk)[block] = static_cast<uint32_t>(end + before);
    }
    end += all;
  }
  if (threadIdx.x == 0) {
    offsets_of(job, chunk)[count] = static_cast<uint32_t>(end);
  }
}

__device__ uint32_t table_nbytes(const encode_job &job) {
  return static_cast<uint32_t>(gpufi_round_up_16(4 * static_cast<size_t>(block_count(job))));
}

__device__ uint64_t payload_nbytes(const encode_job &job, uint32_t chunk) {
  return gpufi_round_up_16(static_cast<uint64_t>(table_nbytes(job)) +
                           offsets_of(job, chunk)[block_count(job)]);
}

/* What a chunk takes: as matches, raw, or constant. */
__device__ uint64_t chunk_nbytes(const encode_job &job, uint32_t chunk) {
  const encode_state &state = job.states[chunk];
  const uint64_t capacity = gpufi_round_up_16(job.grid.raw_nbytes);
  const uint64_t payload = payload_nbytes(job, chunk);
  return GPUFI_HEADER_NBYTES + (!state.varies ? 0 : payload < capacity ? payload : capacity);
}

/* One thread block finds where the chunks of matches lie in the batch. */
__global__ void __launch_bounds__(kSumThreads)
    place_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  if (*job.counts[kMatches] == 0) {
    return;
  }
  uint64_t end = front_of<kMatches>(job);
  for (uint32_t begin = 0; begin < job.chunk_count; begin += kSumThreads) {
    const uint32_t chunk = begin + threadIdx.x;
    const bool is_match = chunk < job.chunk_count && job.states[chunk].is_match;
    const uint64_t nbytes = is_match ? chunk_nbytes(job, chunk) : 0;
    uint64_t all;
    const uint64_t before = sum_before<kSumThreads>(nbytes, &all);
    if (is_match) {
      encode_state *const state = &job.states[chunk];
      state->start = end + before + 1;
      state->is_raw =
          state->varies && payload_nbytes(job, chunk) >= gpufi_round_up_16(job.grid.raw_nbytes);
      if (state->is_raw) {
        atomicAdd(job.unshrunk_count, 1u);
      }
      job.places[chunk] = {end + before, nbytes};
    }
    end += all;
  }
  if (threadIdx.x == 0) {
    job.places[job.chunk_count] = {end, 0};
    job.ends[kMatches] = end;
  }
}

/* --- copies --- */

/* The unit of 16 bytes at byte `at` of the chunk's blocks, counted from the first, which begins in
 * `block`; those behind may end in it, and zeros follow the last. */
__device__ uint4 gather_unit(const encode_job &job, uint32_t chunk, uint32_t block, uint32_t at) {
  const uint32_t *const offsets = offsets_of(job, chunk);
  const uint32_t count = block_count(job);
  if (at + 16 <= offsets[block + 1]) {
    return load_unit(reinterpret_cast<const uint32_t *>(staging_of(job, chunk, block)),
                     at - offsets[block]);
  }
  uint64_t halves[2] = {0, 0};
  for (uint32_t k = 0; k < 16; k++) {
    while (block < count && at + k >= offsets[block + 1]) {
      block++;
    }
    const uint64_t byte =
        block < count ? staging_of(job, chunk, block)[at + k - offsets[block]] : 0;
    halves[k / 8] |= byte << k % 8 * 8;
  }
  return unit_of(halves[0], halves[1]);
}

/* Store a unit at byte `at` of the chunk. */
__device__ void store_unit(uint8_t *to, uint64_t at, uint4 unit, chunk_sum *sum) {
  *reinterpret_cast<uint4 *>(to + at) = unit;
  sum->add(at / 8, unit);
}

/* The header, when all of the chunk is written. One thread. */
template <typename T, int C>
__device__ void finish_matches(const encode_job &job, uint32_t chunk, uint8_t *to) {
  const chunk_grid &grid = job.grid;
  const encode_state &state = job.states[chunk];
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  chunk_sum sum = {__ldcg(&state.plain), __ldcg(&state.mixed)};
  header_coding coding = {};
  if (!state.varies) {
    coding.mode = GPUFI_MODE_CONSTANT;
    read_seed<T, C>(raw, {GPUFI_TRANSFORM_NONE, false}, coding.seed);
    write_header(grid, to, coding, {0, 0});
    return;
  }
  coding.mode = GPUFI_MODE_MATCHES;
  coding.transform = state.transform;
  coding.axes = static_cast<uint8_t>(header_axes(grid, state.subset));
  coding.flags = coded_flags(job);
  coding.levels = static_cast<uint8_t>(state.arrangement | GPUFI_MATCHES_LOG2 << 4);
  coding.payload_nbytes = payload_nbytes(job, chunk);
  if (state.subset != 0) {
    read_seed<T, C>(raw, {state.transform, job.swap}, coding.seed);
  }
  coding.seed[1] |= state.offset;
  write_header(grid, to, coding, sum);
}

/* A warp copies the units that begin in a block; and every fourth one a unit of the sizes. All
 * lanes. */
template <typename T, int C>
__device__ __forceinline__ void copy_block(const encode_job &job, uint32_t chunk, uint32_t block) {
  const uint32_t lane = threadIdx.x % kWarp, count = block_count(job);
  encode_state *const state = &job.states[chunk];
  uint8_t *const to = job.encoded + (state->start - 1);
  const uint32_t *const offsets = offsets_of(job, chunk), *const sizes = sizes_of(job, chunk);
  const uint64_t blocks_at = GPUFI_HEADER_NBYTES + table_nbytes(job);
  chunk_sum sum = {0, 0};
  if (state->varies) {
    for (uint32_t at = (offsets[block] + 15) / 16 * 16 + 16 * lane; at < offsets[block + 1];
         at += 16 * kWarp) {
      store_unit(to, blocks_at + at, gather_unit(job, chunk, block, at), &sum);
    }
    if (block % 4 == 0 && lane == 0) {
      uint32_t words[4];
#pragma unroll
      for (uint32_t k = 0; k < 4; k++) {
        words[k] = block + k < count ? sizes[block + k] : 0;
      }
      store_unit(to, GPUFI_HEADER_NBYTES + 4 * static_cast<uint64_t>(block),
                 make_uint4(words[0], words[1], words[2], words[3]), &sum);
    }
  }
  sum.plain = warp_add(sum.plain);
  sum.mixed = warp_add(sum.mixed);
  if (lane == 0) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
    __threadfence();
    if (atomicAdd(&state->done_count, 1u) == count - 1) {
      __threadfence();
      finish_matches<T, C>(job, chunk, to);
    }
  }
}

template <typename T, int C>
__global__ void __launch_bounds__(kCopyWarps *kWarp)
    copy_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  const uint32_t count = block_count(job), step = gridDim.x * kCopyWarps;
  const uint32_t end = *job.counts[kMatches] != 0 ? job.chunk_count * count : 0;
  for (uint32_t index = blockIdx.x * kCopyWarps + threadIdx.x / kWarp; index < end; index += step) {
    const uint32_t chunk = index / count;
    if (job.states[chunk].is_match && !job.states[chunk].is_raw) {
      copy_block<T, C>(job, chunk, index - chunk * count);
    }
  }
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    const uint32_t blocks = match_block_count(job.grid, GPUFI_MATCHES_LOG2);
    const uint32_t warps = job.chunk_count * blocks;
    cudaError_t code = launch_early(first_kernel<T, C>, job.chunk_count, kWarp, 0, stream, job);
    if (code == cudaSuccess && blocks > 1) {
      code = launch_early(others_kernel<T, C>, rare_thread_blocks(job.chunk_count * (blocks - 1)),
                          kWarp, 0, stream, job);
    }
    if (code == cudaSuccess) {
      code = launch_early(measure_kernel, job.chunk_count, kSumThreads, 0, stream, job);
    }
    if (code == cudaSuccess) {
      code = launch_early(place_kernel, 1, kSumThreads, 0, stream, job);
    }
    return code == cudaSuccess
               ? launch_early(copy_kernel<T, C>, rare_thread_blocks((warps - 1) / kCopyWarps + 1),
                              kCopyWarps * kWarp, 0, stream, job)
               : code;
  }
};

} // namespace

namespace gpufi {

cudaError_t encode_matches(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
