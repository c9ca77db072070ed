/* Choosing matches; codec/matches_choose.c is the reference. Warps try what is worth it by the
 * sample of a chunk, and the last of them decides. */
#include "backend/cuda/codec/match_window.cuh"
#include "backend/cuda/codec/repeats.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

constexpr uint32_t kPieceNbytes = 8192; /* what is tried of a block */
constexpr uint32_t kPieces = 3, kManyBlocks = 24;
constexpr uint32_t kTrials = kMatchTrials + 1; /* the last one tries W8 on the same pieces */

/* --- trials --- */

/* The blocks that are tried, or their beginnings. */
template <typename T> struct match_pieces {
  uint32_t blocks, count;
  uint32_t values; /* of each */
  bool are_first;  /* it is the first block; else that is encoded before them, for their matches */

  __device__ explicit match_pieces(const chunk_grid &grid)
      : blocks(match_block_count(grid, GPUFI_MATCHES_LOG2)) {
    are_first = blocks <= 2;
    count = blocks >= kManyBlocks ? kPieces : 1;
    values = kPieceNbytes / sizeof(T);
    if (are_first) {
      values = grid.value_count < kMatchValues<T> ? grid.value_count : kMatchValues<T>;
    }
  }

  /* The first value of piece k: neither in the first nor in the last block. */
  __device__ uint32_t first(uint32_t k) const {
    return are_first ? 0
                     : static_cast<uint32_t>(1 + (2 * k + 1) * static_cast<uint64_t>(blocks - 2) /
                                                     (2 * count)) *
                           kMatchValues<T>;
  }
};

/* What W8 would take of residuals, as it estimates the cost of a sample. */
template <typename T> struct w8_tally {
  T some;
  uint32_t groups, used_groups, widths, used, used_widths;

  /* All lanes: `total` residuals in shared memory, which is then read. */
  __device__ void add(const T *residuals, uint32_t total, uint32_t lane) {
    for (uint32_t first = lane * kGroup; first < total; first += kWarp * kGroup) {
      T zigzags = 0;
      uint32_t here = 0;
      for (uint32_t i = first; i < first + kGroup && i < total; i++) {
        some |= residuals[i];
        zigzags |= zigzagged(residuals[i]);
        here += residuals[i] != 0 ? 1 : 0;
      }
      const uint32_t width = bit_length(zigzags);
      groups++;
      used_groups += zigzags != 0 ? 1 : 0;
      widths += width;
      used += here;
      used_widths += here * width;
    }
    __syncwarp();
  }

  /* Of all lanes. */
  __device__ uint64_t bits() const {
    const uint64_t all = warp_or(some);
    const uint64_t less = trailing_zeros(all) + (all >> (kBits<T> - 1) & 1 ? 0 : 1);
    const uint64_t group_sum = warp_add(groups), used_group_sum = warp_add(used_groups);
    const uint64_t dense = 3 * group_sum + kGroup * (warp_add(widths) - less * used_group_sum);
    const uint64_t sparse =
        group_sum + kGroup * used_group_sum + warp_add(used_widths) - less * warp_add(used);
    return dense < sparse ? dense : sparse;
  }
};

struct trial_shared {
  match_window<kPieceNbytes> window;
  lz4_table first, table; /* as the first block left it; of the piece */
};

/* A warp tries the pieces in one way, after the first block if they are not that. */
template <typename T, int C>
__device__ void try_pieces(const encode_job &job, uint32_t chunk, uint32_t trial,
                           trial_shared *shared) {
  encode_state *const state = &job.states[chunk];
  const uint32_t lane = threadIdx.x;
  const bool is_w8 = trial == kMatchTrials;
  const match_pieces<T> pieces(job.grid);
  match_stream stream = is_w8 ? w8_stream(*state) : stream_of(*state, trial);
  stream.arrangement = is_w8 ? static_cast<uint8_t>(GPUFI_ARRANGED_BYTES) : stream.arrangement;
  uint64_t first_bits = 0, bits = 0;
  w8_tally<T> w8 = {};
  shared->first.clear(lane);
  for (uint32_t k = pieces.are_first || is_w8 ? 1 : 0; k <= pieces.count; k++) { /* 0: the first */
    const uint32_t first = k == 0 ? 0 : pieces.first(k - 1);
    const uint32_t total = k == 0 ? kMatchValues<T> : pieces.values;
    const uint32_t nbytes = total * static_cast<uint32_t>(sizeof(T));
    const uint32_t begin = k == 0 || pieces.are_first || is_w8 ? 0 : GPUFI_MATCHES_NBYTES_MAX;
    arrange_residuals<T, C>(job, chunk, stream, first, total, shared->window.bytes() + begin, lane);
    if (is_w8) {
      w8.add(reinterpret_cast<const T *>(shared->window.raw), total, lane);
      continue;
    }
    shared->table.copy(shared->first.words, lane);
    const uint32_t used = lz4_encode_after(shared->window.raw, begin, begin + nbytes,
                                           &shared->table, nullptr, 0, lane);
    const uint64_t taken = 8 * static_cast<uint64_t>(used < nbytes ? used : nbytes);
    if (k == 0) {
      first_bits = taken;
      shared->first.copy(shared->table.words, lane);
    } else {
      bits += taken + 32 * total / kMatchValues<T>; /* and its size */
    }
  }
  bits = is_w8 ? w8.bits() : bits;
  if (lane == 0 && is_w8) {
    state->pieces_bits = bits;
  } else if (lane == 0) {
    state->first_bits[trial] = first_bits;
    state->tried_bits[trial] = bits;
  }
  __syncwarp(); /* what is shared is for the next */
}

/* --- the decision --- */

/* The trial whose estimate is least, if it is less than what the chunk takes otherwise; else
 * kMatchTrials. */
__device__ uint32_t best_trial(const encode_job &job, const encode_state &state, uint32_t tries) {
  const uint32_t blocks = match_block_count(job.grid, GPUFI_MATCHES_LOG2);
  const uint64_t rest = state.w8_bits - (blocks <= 2 ? 0 : state.w8_bits / blocks);
  const uint64_t pieces_bits = __ldcg(&state.pieces_bits);
  uint64_t least = UINT64_MAX;
  uint32_t best = kMatchTrials;
  for (uint32_t t = 0; t < kMatchTrials && pieces_bits != 0; t++) {
    if (tries >> t & 1) {
      const uint64_t estimate =
          __ldcg(&state.first_bits[t]) + rest * __ldcg(&state.tried_bits[t]) / pieces_bits;
      best = estimate < least ? t : best;
      least = estimate < least ? estimate : least;
    }
  }
  return least < state.bits - state.bits / 32 ? best : kMatchTrials;
}

/* What the estimate is of noise: W8 has 3 bits for a group's code, and some groups are narrower. */
__device__ uint64_t noise_bits(const chunk_grid &grid) {
  return 8 * grid.raw_nbytes + 2 * static_cast<uint64_t>(group_count(grid));
}

/* One thread, when all trials of the chunk are done. */
__device__ void decide(const encode_job &job, encode_state *state, uint32_t tries) {
  const uint32_t best = best_trial(job, *state, tries);
  if (best != kMatchTrials) {
    const match_stream stream = stream_of(*state, best);
    state->is_match = true;
    state->arrangement = stream.arrangement;
    state->transform = stream.transform;
    state->subset = stream.subset;
    state->offset = stream.offset;
    state->is_based = state->is_ranked = false;
    state->parameters_nbytes = 0;
    atomicAdd(job.counts[kMatches], 1u);
  } else if (state->is_left == 0 && job.grid.axis_count != 0 &&
             state->bits >= noise_bits(job.grid)) { /* one element is always constant */
    state->is_based = state->is_ranked = false;
    state->seems_raw = true;
    state->slot = atomicAdd(job.counts[kRawCopies], 1u);
  } else if (state->is_based) {
    state->transform = GPUFI_TRANSFORM_NONE;
    state->subset = state->base_subset;
    state->offset = state->base_offset;
    state->is_ranked = false;
  }
  if (state->kind() == kPlainRuns) { /* with corrections or without, which is not known yet */
    atomicAdd(job.counts[kPlainRuns], 1u);
  }
}

/* A trial of a chunk, the last of which decides; of a chunk without trials, the first one does. All
 * lanes. */
template <typename T, int C>
__device__ void take_trial(const encode_job &job, uint32_t chunk, uint32_t trial,
                           trial_shared *shared) {
  encode_state *const state = &job.states[chunk];
  const uint32_t tries = matches_to_try(job.grid, *state), others = tries != 0 ? kTrials - 1 : 0;
  if (tries != 0 && (trial == kMatchTrials || (tries >> trial & 1))) {
    try_pieces<T, C>(job, chunk, trial, shared);
  }
  if (threadIdx.x == 0 && (tries != 0 || trial == 0)) {
    __threadfence();
    const bool is_last = atomicAdd(&state->tried_count, 1u) == others;
    __threadfence();
    if (is_last) {
      decide(job, state, tries);
    }
  }
}

template <typename T, int C>
__global__ void __launch_bounds__(kWarp) trial_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ trial_shared shared;
  for (uint32_t index = blockIdx.x; index < job.chunk_count * kTrials; index += gridDim.x) {
    take_trial<T, C>(job, index / kTrials, index % kTrials, &shared);
  }
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    return launch_early(trial_kernel<T, C>, rare_thread_blocks(job.chunk_count * kTrials), kWarp, 0,
                        stream, job);
  }
};

} // namespace

namespace gpufi {

cudaError_t choose_matches(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
