/* A run of a chunk that a thread block decodes: its blocks' bytes in, its values out. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RUN_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RUN_CUH

#include "backend/cuda/codec_decode.cuh"
#include "backend/cuda/codec_unpack.cuh"

namespace gpufi {

constexpr int kWarps = GPUFI_RUN_BLOCKS;
constexpr int kThreads = kWarps * kWarp;

/* A run as its thread block sees it. */
template <typename T> struct run_place {
  uint32_t run, first, count; /* values [first, first + count) of the chunk */
  uint32_t row, column;       /* of the first */
  T *raw;
};

struct run_blocks {
  uint32_t offsets[GPUFI_RUN_BLOCKS + 1]; /* of the blocks in the run */
  uint32_t descriptors[GPUFI_RUN_BLOCKS];
};

/* The most bytes of a run, and of shared memory that holds one. */
template <typename T> constexpr size_t kRunNbytes = GPUFI_RUN_BLOCKS * kBlockNbytesMax<T>;
template <typename T>
constexpr size_t kSharedNbytes = (kRunNbytes<T> + kMaskNbytesMax + 31) / 16 * 16;

/* The descriptors of a run's blocks. All threads, which are then synchronized. */
__device__ inline void load_descriptors(const chunk_grid &grid, const decode_state &state,
                                        uint32_t run, run_blocks *blocks) {
  if (threadIdx.x < kWarp) {
    const int lane = static_cast<int>(threadIdx.x);
    const uint32_t block = run * GPUFI_RUN_BLOCKS + static_cast<uint32_t>(lane);
    const uint32_t *const table =
        reinterpret_cast<const uint32_t *>(state.chunk + state.descriptors_at);
    const bool there = lane < GPUFI_RUN_BLOCKS && block < grid.block_count;
    const uint32_t word = there ? table[block] : 0;
    const uint32_t ends = warp_scan(word & 0x3fff, lane);
    if (lane < GPUFI_RUN_BLOCKS) {
      blocks->descriptors[lane] = word;
      blocks->offsets[lane + 1] = ends;
    }
    if (lane == 0) {
      blocks->offsets[0] = 0;
    }
  }
  __syncthreads();
}

/* The run's bytes, checked for their padding and added to the sum. */
__device__ inline bool load_run(const decode_state &state, uint32_t begin, uint32_t end,
                                uint32_t nbytes, uint4 *to, chunk_sum *sum) {
  const uint4 *const from = reinterpret_cast<const uint4 *>(state.chunk) + begin;
  bool good = true;
  for (uint32_t u = threadIdx.x; u < end - begin; u += kThreads) {
    const uint4 unit = from[u];
    sum->add(2 * static_cast<uint64_t>(begin + u), unit);
    to[u] = unit;
    if (16 * u + 16 > nbytes) {
      const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(to + u);
      for (uint32_t k = nbytes - 16 * u; k < 16; k++) {
        good = good && bytes[k] == 0;
      }
    }
  }
  return good;
}

/* A warp's block of the run to the chunk's values. */
template <typename T>
__device__ __forceinline__ void store_block(const run_place<T> &at, int warp, int lane, loading how,
                                            T r[kLaneGroups][kGroup]) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past =
        static_cast<uint32_t>(warp * GPUFI_BLOCK_VALUES + (j * kWarp + lane) * kGroup);
    restore_values<T, kGroup>(r[j], how);
    if (past + kGroup <= at.count) {
      store_group(at.raw, at.first + past, r[j]);
    } else {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        if (past + static_cast<uint32_t>(t) < at.count) {
          at.raw[at.first + past + static_cast<uint32_t>(t)] = r[j][t];
        }
      }
    }
  }
}

} // namespace gpufi

#endif
