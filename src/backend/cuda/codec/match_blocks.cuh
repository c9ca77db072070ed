/* The blocks of a chunk of matches: docs/format.md, Mode 4. They are untrusted input. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_MATCH_BLOCKS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_MATCH_BLOCKS_CUH

#include "backend/cuda/codec/arrange.cuh"
#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/decode.cuh"
#include "backend/cuda/codec/scan.cuh"

namespace gpufi {

/* Offsets of a chunk's blocks, at most. */
inline uint32_t match_offsets(const chunk_grid &grid) {
  return match_block_count(grid, GPUFI_MATCHES_LOG2_MIN) + 1;
}

/* From the header's byte of levels; false if that is none of matches. */
__device__ inline bool read_arrangement(uint32_t levels, decode_state *state) {
  state->arrangement = levels & 15;
  state->log2 = static_cast<uint8_t>(levels >> 4);
  return state->arrangement <= GPUFI_ARRANGED_MAX && state->log2 >= GPUFI_MATCHES_LOG2_MIN &&
         state->log2 <= GPUFI_MATCHES_LOG2_MAX;
}

/* Where each block begins, from their sizes. True if these are possible, and the blocks end where
 * the chunk ends, but for zeros. All threads, of which there are kThreads; the answer is each one's
 * own. */
template <uint32_t kThreads>
__device__ bool find_blocks(const decode_job &job, uint32_t chunk, const decode_state *state,
                            chunk_sum *sum) {
  const uint32_t count = match_block_count(job.grid, state->log2);
  const uint32_t *const sizes =
      reinterpret_cast<const uint32_t *>(state->chunk + state->descriptors_at);
  const uint64_t blocks_at = state->descriptors_at + state->descriptors_nbytes;
  uint32_t *const offsets = job.block_offsets + static_cast<size_t>(chunk) * job.block_offset_count;
  uint64_t base = 0;
  bool good = true;
  for (uint32_t u = threadIdx.x; u < state->descriptors_nbytes / 16; u += kThreads) {
    const uint4 unit = reinterpret_cast<const uint4 *>(sizes)[u];
    const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    sum->add((state->descriptors_at + 16 * static_cast<uint64_t>(u)) / 8, unit);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
      good = good && (4 * u + k < count || words[k] == 0);
    }
  }
  for (uint32_t first = 0; first < count; first += kThreads) {
    const uint32_t block = first + threadIdx.x;
    const uint32_t nbytes = block < count ? sizes[block] : 0;
    good = good && (block >= count ||
                    (nbytes != 0 && nbytes <= arranged_nbytes(job.grid, block, state->log2)));
    uint64_t all;
    const uint64_t before = sum_before<kThreads>(nbytes, &all);
    if (block < count) {
      offsets[block] = static_cast<uint32_t>(base + before);
    }
    base += all;
  }
  good = good && gpufi_round_up_16(blocks_at + base) == state->nbytes;
  if (threadIdx.x == 0) {
    offsets[count] = static_cast<uint32_t>(base);
    for (uint64_t at = blocks_at + base; good && at < state->nbytes; at++) {
      good = state->chunk[at] == 0;
    }
  }
  return good;
}

} // namespace gpufi

#endif
