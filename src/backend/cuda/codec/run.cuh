/* A run of a chunk that a thread block decodes: its blocks' bytes in, its values out. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RUN_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RUN_CUH

#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/decode.cuh"
#include "backend/cuda/codec/unpack.cuh"

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
  uint32_t first_unit; /* of the run's units of 16 bytes, where the stream's blocks begin */
  uint32_t offsets[GPUFI_RUN_BLOCKS + 1]; /* of the blocks from there on */
  uint32_t descriptors[GPUFI_RUN_BLOCKS];
};

/* The most bytes of a run's blocks, and of shared memory that holds them: those of corrections may
 * begin inside a unit. */
template <typename T> constexpr size_t kRunNbytes = GPUFI_RUN_BLOCKS * kBlockNbytesMax<T>;
template <typename T>
constexpr size_t kSharedNbytes = (kRunNbytes<T> + kMaskNbytesMax + 47) / 16 * 16;

/* The descriptors of a run's blocks, or, in stream 1, of those of its corrections, which follow.
 * All threads, which have to be synchronized. */
__device__ inline void read_descriptors(const chunk_grid &grid, const decode_state &state,
                                        uint32_t run, uint32_t stream, run_blocks *blocks) {
  if (threadIdx.x < kWarp) {
    const int lane = static_cast<int>(threadIdx.x);
    const uint32_t block = run * GPUFI_RUN_BLOCKS + static_cast<uint32_t>(lane);
    const uint32_t *const table =
        reinterpret_cast<const uint32_t *>(state.chunk + state.descriptors_at);
    const bool there = lane < GPUFI_RUN_BLOCKS && block < grid.block_count;
    const uint32_t word = there ? table[stream * grid.block_count + block] : 0;
    const uint32_t before = stream != 0 ? warp_add(there ? table[block] & 0x3fff : 0) : 0;
    const uint32_t ends = before % 16 + warp_scan(word & 0x3fff, lane);
    if (lane < GPUFI_RUN_BLOCKS) {
      blocks->descriptors[lane] = word;
      blocks->offsets[lane + 1] = ends;
    }
    if (lane == 0) {
      blocks->first_unit = before / 16;
      blocks->offsets[0] = before % 16;
    }
  }
}

/* The same; all threads are then synchronized. */
__device__ inline void load_descriptors(const chunk_grid &grid, const decode_state &state,
                                        uint32_t run, uint32_t stream, run_blocks *blocks) {
  read_descriptors(grid, state, run, stream, blocks);
  __syncthreads();
}

/* Load a stream's `nbytes` of the run, in units `begin` to `end` - 1, and add them to the sum. The
 * last stream's are followed by padding: false if that is not 0. Of any other's, the last unit is
 * left for the next to add, which may begin in it. */
__device__ inline bool load_run(const decode_state &state, uint32_t begin, uint32_t end,
                                uint32_t nbytes, bool is_last, uint4 *to, chunk_sum *sum) {
  const uint4 *const from = reinterpret_cast<const uint4 *>(state.chunk) + begin;
  bool good = true;
  for (uint32_t u = threadIdx.x; u < end - begin; u += kThreads) {
    const uint4 unit = from[u];
    const bool is_whole = 16 * u + 16 <= nbytes;
    if (is_whole || is_last) {
      sum->add(2 * static_cast<uint64_t>(begin + u), unit);
    }
    to[u] = unit;
    if (!is_whole && is_last) {
      const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(to + u);
      for (uint32_t k = nbytes - 16 * u; k < 16; k++) {
        good = good && bytes[k] == 0;
      }
    }
  }
  return good;
}

/* Unpack the run's blocks of `stream`, each warp its own into `r`, with the zeros of sparse ones
 * filled in. `unpack` takes a block's place in `run_bytes`, its descriptor and the number of its
 * values, and sets `r`, the mask and the length of the list as unpack_block does. Marks the chunk
 * if anything is not right. All threads, which are then synchronized. */
template <typename T, typename Unpack>
__device__ __forceinline__ void unpack_run(const decode_job &job, uint32_t chunk,
                                           const run_place<T> &at, uint32_t stream,
                                           uint4 *run_bytes, run_blocks *blocks, chunk_sum *sum,
                                           T r[kLaneGroups][kGroup], const Unpack &unpack) {
  decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint32_t *const runs =
      job.run_offsets + static_cast<size_t>(chunk) * (job.grid.run_count + 1) + at.run;
  load_descriptors(job.grid, *state, at.run, stream, blocks);
  const uint32_t nbytes = blocks->offsets[GPUFI_RUN_BLOCKS];
  const bool is_last = stream + 1 == state->stream_count;
  clear_groups(r);
  bool good = nbytes - blocks->offsets[0] <= kRunNbytes<T>, sparse = false;
  warp_mask mask;
  uint32_t list_count = 0;
  if (good) {
    const uint32_t begin = runs[0] + blocks->first_unit;
    const uint32_t end = is_last ? runs[1] : begin + (nbytes + 15) / 16;
    good = load_run(*state, begin, end, nbytes, is_last, run_bytes, sum);
    __syncthreads();
    const uint32_t past = static_cast<uint32_t>(warp) * GPUFI_BLOCK_VALUES;
    if (past < at.count) {
      const uint32_t left = at.count - past, word = blocks->descriptors[warp];
      const bool unpacked =
          unpack(blocks->offsets[warp], word, left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES,
                 &mask, &list_count);
      good = __all_sync(kAllLanes, good && unpacked);
      sparse = good && block_fields(word).form & GPUFI_FORM_SPARSE;
    }
  }
  if (__syncthreads_or(!good) != 0 && threadIdx.x == 0) {
    state->is_bad = 1;
  }
  if (sparse) { /* the run's bytes are read */
    T *const list = reinterpret_cast<T *>(run_bytes) + warp * GPUFI_BLOCK_VALUES;
    store_list(r, list_count, lane, list);
    expand_values(mask, list, lane, r);
  }
}

/* Add the shares of all threads to the chunk's checksum; `partial` is shared. All threads. */
__device__ inline void add_to_sum(decode_state *state, chunk_sum share, chunk_sum *partial) {
  const chunk_sum sum = thread_block_sum<kWarps>(share, partial);
  if (threadIdx.x == 0 && (sum.plain != 0 || sum.mixed != 0)) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
  }
}

/* Store a warp's block of the run as values of the chunk. */
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
