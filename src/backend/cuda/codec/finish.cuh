/* When all runs of a chunk are written: its mode, and its header. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_FINISH_CUH
#define GPUFI_BACKEND_CUDA_CODEC_FINISH_CUH

#include "backend/cuda/codec/encode.cuh"
#include "backend/cuda/codec/header.cuh"
#include "backend/cuda/codec/values.cuh"

namespace gpufi {

/* The first element's values as the header has them: lowest byte first. */
template <typename T, int C>
__device__ void read_seed(const T *raw, loading how, uint64_t seed[2]) {
  seed[0] = seed[1] = 0;
#pragma unroll
  for (int c = 0; c < C; c++) {
    const uint64_t v = load_value(raw, static_cast<uint32_t>(c), how);
    seed[c * kBits<T> / 64] |= v << (c * kBits<T> % 64);
  }
}

/* What is predicted: the raw values of a chunk, or what they are by way of a base. */
template <typename T> __device__ const T *values_of(const encode_job &job, uint32_t chunk) {
  const uint8_t *const values = job.states[chunk].is_based ? job.work : job.raw;
  return reinterpret_cast<const T *>(values + chunk * job.grid.raw_pitch_nbytes);
}

__device__ inline bool is_swapped(const encode_job &job, const encode_state &state) {
  return job.swap && !state.is_based;
}

/* Flags of a chunk that is neither raw nor constant. */
__device__ inline uint8_t coded_flags(const encode_job &job) {
  return static_cast<uint8_t>((job.swap ? GPUFI_FLAG_BIG_ENDIAN : 0) |
                              (job.has_planes ? GPUFI_FLAG_PLANES : 0));
}

/* Once every run of the chunk is written: decide its mode, and write the header unless it has to
 * be raw. One thread. */
template <typename T, int C, run_kind kKind>
__device__ void finish_chunk(const encode_job &job, uint32_t chunk, encode_state *state) {
  const chunk_grid &grid = job.grid;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  const uint64_t start = __ldcg(&state->start) - 1, end = __ldcg(&state->end);
  const uint64_t capacity = gpufi_round_up_16(grid.raw_nbytes);
  const bool is_left = state->is_left != 0 || __ldcg(&state->is_lost) != 0;
  chunk_sum sum = {__ldcg(&state->plain), __ldcg(&state->mixed)};
  header_coding coding = {};
  coding.payload_nbytes = end - start - GPUFI_HEADER_NBYTES;
  /* Those with corrections have several values. */
  constexpr bool kPlain = kKind == kPlainRuns;
  const bool all_zero =
      kPlain && state->offset == 0 && coding.payload_nbytes == descriptors_nbytes<kPlainRuns>(grid);
  coding.flags = coded_flags(job);
  if (kKind == kRankedRuns && coding.payload_nbytes < capacity) {
    coding.mode = GPUFI_MODE_RANKED;
    coding.levels = state->ranks.levels;
    coding.shift = state->ranks.place.shift;
    coding.symbol = state->ranks.place.at;
    for (uint32_t j = 1; j <= state->ranks.depth(); j++) {
      coding.seed[(j - 1) / 8] |= static_cast<uint64_t>(state->ranks.leaves_of(j))
                                  << (j - 1) % 8 * 8;
    }
  } else if (all_zero || (kPlain && grid.axis_count == 0)) {
    /* Every residual is 0 just where all elements equal the first, which may be the only one. */
    coding.mode = GPUFI_MODE_CONSTANT;
    coding.payload_nbytes = 0;
    coding.flags = 0;
    sum = {0, 0};
    read_seed<T, C>(raw, {GPUFI_TRANSFORM_NONE, false}, coding.seed);
  } else if (is_left) {
    job.places[chunk] = {start, 0};
  } else if (coding.payload_nbytes < capacity) {
    coding.mode = GPUFI_MODE_W8;
    coding.transform = state->is_based ? state->numbers.transform : state->transform;
    coding.shift = state->is_based ? state->numbers.shift : 0;
    coding.axes = static_cast<uint8_t>(header_axes(grid, state->subset));
    if (state->subset != 0) {
      read_seed<T, C>(values_of<T>(job, chunk), {state->transform, is_swapped(job, *state)},
                      coding.seed);
    }
    coding.seed[1] |= state->offset;
    if (kKind == kCorrectedRuns) {
      coding.flags |= GPUFI_FLAG_CORRECTIONS;
      coding.flags |= state->numbers.has_fill ? GPUFI_FLAG_FILL : 0;
    }
  } else {
    coding.mode = GPUFI_MODE_RAW;
    coding.flags = 0;
    coding.payload_nbytes = capacity;
    state->is_raw = true;
    atomicAdd(job.unshrunk_count, 1u);
    state->done_count = 0;
    state->plain = state->mixed = 0;
  }
  if (coding.mode != GPUFI_MODE_RAW) {
    write_header(grid, job.encoded + start, coding, sum);
  }
  if (!(is_left && coding.mode != GPUFI_MODE_CONSTANT)) {
    job.places[chunk] = {start, GPUFI_HEADER_NBYTES + coding.payload_nbytes};
  }
}

} // namespace gpufi

#endif
