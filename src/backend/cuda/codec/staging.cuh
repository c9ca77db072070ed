/* A run of packed blocks in shared memory, and its way from there into the batch.
 *
 * Each warp packs its block into a staging area of its own, from the area's first byte on, whatever
 * the others do; in the batch the blocks follow each other byte by byte. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STAGING_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STAGING_CUH

#include "backend/cuda/codec/checksum.cuh"

namespace gpufi {

constexpr int kMeasuredAt = 24; /* above the bytes of any run */
/* Bytes behind a block's: whole groups are written and whole units read that begin in it. */
constexpr uint32_t kSlackNbytes = 80;
constexpr size_t staging_nbytes(size_t value_nbytes) {
  return GPUFI_BLOCK_VALUES * value_nbytes + kSlackNbytes;
}
template <typename T> constexpr uint32_t kStagingUnits = staging_nbytes(sizeof(T)) / 16;

/* A run of kBlocks as it is packed. */
template <uint32_t kBlocks> struct held_run {
  uint32_t measured;     /* bytes of the blocks that are measured; from kMeasuredAt on, how many */
  uint32_t packed_count; /* blocks */
  uint32_t nbytes[kBlocks]; /* of each block */
  uint32_t descriptors[kBlocks];
  uint4 heads[kBlocks];                  /* each staging area's first unit */
  unsigned long long chunk_start, start; /* in the batch: of the chunk, of this run's blocks */

  /* Where a block begins in the run; for kBlocks, where the run ends. */
  __device__ uint32_t offset_of(uint32_t block) const {
    uint32_t offset = 0;
#pragma unroll
    for (uint32_t b = 0; b < kBlocks; b++) {
      offset += b < block ? nbytes[b] : 0;
    }
    return offset;
  }
};

/* Zero the bytes that a block of `nbytes` and its slack take of the staging area. A whole warp. */
__device__ inline void clear_staging(uint4 *staging, uint32_t nbytes, int lane) {
  const uint32_t units = (nbytes + 15) / 16 + kSlackNbytes / 16;
  for (uint32_t u = static_cast<uint32_t>(lane); u < units; u += kWarp) {
    staging[u] = make_uint4(0, 0, 0, 0);
  }
  __syncwarp();
}

/* The 16 bytes from byte `at` of `words` on. */
__device__ __forceinline__ uint4 load_unit(const uint32_t *words, uint32_t at) {
  const uint32_t *const w = words + at / 4;
  const uint32_t bits = at % 4 * 8;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

/* Put the first bytes of the blocks behind `block` into its last unit, from byte `at` on. */
template <uint32_t kBlocks>
__device__ inline void complete_unit(const held_run<kBlocks> &held, uint32_t block, uint32_t at,
                                     uint4 *unit) {
  uint64_t low = low_of(*unit), high = high_of(*unit);
  for (uint32_t b = block + 1; b < kBlocks && at < 16; b++) {
    const uint64_t first = low_of(held.heads[b]), second = high_of(held.heads[b]);
    const uint32_t bits = 8 * at; /* at least 8 */
    if (bits < 64) {
      low |= first << bits;
      high |= second << bits | first >> (64 - bits);
    } else {
      high |= first << (bits - 64);
    }
    at += held.nbytes[b];
  }
  *unit = unit_of(low, high);
}

/* Write a block, which is the units of 16 bytes that begin in it, to its place, and add this lane's
 * share to `sum`. */
template <uint32_t kBlocks>
__device__ __forceinline__ void write_block(const held_run<kBlocks> &held, uint32_t block,
                                            const uint4 *staging, uint8_t *encoded, int lane,
                                            chunk_sum *sum) {
  const uint32_t begin = held.offset_of(block), end = begin + held.nbytes[block];
  const uint32_t first = (begin + 15) / 16;
  const uint64_t index = (held.start - held.chunk_start) / 8;
  uint4 *const to = reinterpret_cast<uint4 *>(encoded + held.start);
  for (uint32_t u = first + static_cast<uint32_t>(lane); 16 * u < end; u += kWarp) {
    uint4 unit = load_unit(reinterpret_cast<const uint32_t *>(staging), 16 * u - begin);
    if (16 * u + 16 > end) {
      complete_unit(held, block, end % 16, &unit);
    }
    to[u] = unit;
    sum->add(index + 2 * u, unit);
  }
}

} // namespace gpufi

#endif
