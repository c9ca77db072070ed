/* Residuals of a chunk, arranged in shared memory for LZ4, by a warp: codec/matches.c is the
 * reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_MATCH_WINDOW_CUH
#define GPUFI_BACKEND_CUDA_CODEC_MATCH_WINDOW_CUH

#include "backend/cuda/codec/arrange.cuh"
#include "backend/cuda/codec/encode.cuh"
#include "backend/cuda/codec/lz4.cuh"
#include "backend/cuda/codec/residuals.cuh"

namespace gpufi {

template <typename T> constexpr uint32_t kMatchValues = GPUFI_MATCHES_NBYTES_MAX / sizeof(T);

/* The first block and as much as kNbytes of another, which its matches may begin in. */
template <uint32_t kNbytes> struct match_window {
  alignas(16) uint32_t raw[(GPUFI_MATCHES_NBYTES_MAX + kNbytes) / 4 + 1];

  __device__ uint8_t *bytes() {
    return reinterpret_cast<uint8_t *>(raw);
  }
};

/* What is encoded: residuals, or, of subset 0, values less the offset. */
struct match_stream {
  uint8_t transform, subset, arrangement;
  unsigned long long offset;
};

/* What W8 would do for values as they are, which choose_predictions() has chosen. */
__device__ inline match_stream w8_stream(const encode_state &state) {
  const bool is_predicted = state.subset != 0 || state.offset != 0;
  return {state.transform, state.subset,
          static_cast<uint8_t>(is_predicted ? GPUFI_ARRANGED_ZIGZAG : GPUFI_ARRANGED_BITS),
          state.offset};
}

/* What trial number `trial` encodes, of those that matches_to_try() is of. */
__device__ inline match_stream stream_of(const encode_state &state, uint32_t trial) {
  match_stream stream =
      trial < 2 ? match_stream{GPUFI_TRANSFORM_NONE, 0, GPUFI_ARRANGED_BITS, 0} : w8_stream(state);
  if (trial % 2 == 0) {
    stream.arrangement = GPUFI_ARRANGED_BYTES;
  }
  return stream;
}

/* The stream's residuals of the block of up to GPUFI_BLOCK_VALUES that starts at value `first`;
 * zeros behind the chunk's end. *varies is set if they stand for elements other than the first one.
 * All lanes. */
template <typename T, int C>
__device__ __forceinline__ void load_stream(const encode_job &job, uint32_t chunk,
                                            const match_stream &stream, uint32_t first, int lane,
                                            bool *varies, T values[kLaneGroups][kGroup]) {
  const chunk_grid &grid = job.grid;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  const residual_source<T> from = {{grid, raw, {stream.transform, job.swap}, stream.subset}};
  load_block(from, first, lane, values);
  const uint32_t left = grid.value_count - first;
  T elements[C], differs = 0;
#pragma unroll
  for (uint32_t c = 0; c < C; c++) {
    elements[c] = from.value(c);
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      const bool is_there = index_of(j, lane) * kGroup + t < left;
      differs |= static_cast<T>((values[j][t] ^ elements[t % C]) & mask_if<T>(is_there));
    }
  }
  *varies = *varies || differs != 0;
  predict_block<T, C>(from, first, lane, values);
  if (stream.offset != 0) {
    subtract_offset<T, C>(values, static_cast<T>(stream.offset), left,
                          first == 0 && stream.subset != 0, lane);
  }
}

/* The `total` residuals from value `first` on, arranged, to `to`, which is aligned to 16 bytes.
 * Returns, on each lane, whether some that it had stand for elements other than the chunk's first
 * one. All lanes. A call, not inlined: it is what takes longest to compile. */
template <typename T, int C>
__device__ __noinline__ bool arrange_residuals(const encode_job &job, uint32_t chunk,
                                               const match_stream &stream, uint32_t first,
                                               uint32_t total, uint8_t *to, uint32_t lane) {
  bool varies = false;
#pragma unroll 1
  for (uint32_t past = 0; past < total; past += GPUFI_BLOCK_VALUES) {
    T values[kLaneGroups][kGroup];
    load_stream<T, C>(job, chunk, stream, first + past, static_cast<int>(lane), &varies, values);
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t group = past / kGroup + index_of(j, static_cast<int>(lane));
      if (group * kGroup < total) {
        store_arranged(to, stream.arrangement, total, group, values[j]);
      }
    }
  }
  __syncwarp();
  return varies;
}

} // namespace gpufi

#endif
