/* Decoding a batch of chunks; codec/decode.c is the reference.
 *
 * A thread block decodes a run: its bytes go to shared memory, a warp unpacks a block of residuals
 * into registers, and where the chunk is predicted, they are summed up at once:
 *   1. along rows that are not short, by a prefix sum over the run from which each row's start is
 *      subtracted (sums.cuh);
 *   2. along the other axes in shared memory (axes.cuh).
 * What the values before the run contribute is read from the output, so that a run waits for those
 * runs of its chunk to be done. This works because a run is a contiguous range of the chunk: a sum
 * along an axis goes on from the value one step back along it, less what the axes that are not
 * summed up yet have to do with it. Thread blocks start in the order of their numbers, so that
 * whoever waits, waits for thread blocks that run already; neighbours in that order belong to
 * different chunks, so that they seldom wait for each other. */
#include "backend/cuda/codec/codec.h"
#include "backend/cuda/codec/match_blocks.cuh"
#include "backend/cuda/codec/restore_run.cuh"
#include "backend/cuda/launch.cuh"

#include <stdlib.h>
#include <string.h>

namespace {

using namespace gpufi;

/* Whether a block has no residuals with bits below the chunk's shift: by its own shift, or, in
 * kinds that have none, by what they are. */
template <typename T>
__device__ bool keeps_shift(uint32_t word, uint32_t shift, const T r[kLaneGroups][kGroup]) {
  const block_fields block(word);
  if (block.kind != GPUFI_BLOCK_RAW) {
    const bool shifts = block.kind != GPUFI_BLOCK_ZERO || (block.form & GPUFI_FORM_SPARSE);
    return !shifts || block.shift >= shift;
  }
  T any = 0;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      any |= r[j][t];
    }
  }
  return static_cast<T>(static_cast<T>(any >> shift) << shift) == any;
}

/* A run of a chunk in mode W8; where the values have a base, what was predicted is stored. All
 * threads. */
template <typename T, int C>
__device__ __forceinline__ void decode_run(const decode_job &job, uint32_t chunk,
                                           const run_place<T> &at, uint4 *run_bytes,
                                           run_shared<T, C> *shared, chunk_sum *sum) {
  decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  T r[kLaneGroups][kGroup];
  unpack_run(
      job, chunk, at, 0, run_bytes, &shared->blocks, sum, r,
      [&](uint32_t block_at, uint32_t word, uint32_t count, warp_mask *mask, uint32_t *list_count) {
        return unpack_block<T>(reinterpret_cast<const uint32_t *>(run_bytes), block_at, word, count,
                               lane, mask, list_count, r);
      });
  if (state->numbers.shift != 0 &&
      !keeps_shift(shared->blocks.descriptors[warp], state->numbers.shift, r)) {
    state->is_bad = 1;
  }
  restore_run<T, C>(job, chunk, at, run_bytes, shared, r);
}

/* The part of a raw or constant chunk that a run would cover. */
template <typename T, int C>
__device__ bool fill_run(const decode_state &state, const run_place<T> &at, chunk_sum *sum) {
  uint8_t *const to = reinterpret_cast<uint8_t *>(at.raw);
  const uint64_t begin = static_cast<uint64_t>(at.first) * sizeof(T);
  const uint64_t end = begin + static_cast<uint64_t>(at.count) * sizeof(T);
  bool good = true;
  for (uint64_t b = begin + threadIdx.x * 16; b < end; b += kThreads * 16) {
    uint4 unit;
    if (state.mode == GPUFI_MODE_RAW) {
      unit = *reinterpret_cast<const uint4 *>(state.chunk + GPUFI_HEADER_NBYTES + b);
      sum->add((GPUFI_HEADER_NBYTES + b) / 8, unit);
    } else {
      uint8_t bytes[16];
#pragma unroll
      for (uint32_t k = 0; k < 16; k++) {
        constexpr uint32_t kElement = C * sizeof(T);
        const uint32_t bit = k % kElement * 8;
        bytes[k] = static_cast<uint8_t>(state.seed[bit / 64] >> bit % 64);
      }
      memcpy(&unit, bytes, 16);
    }
    if (b + 16 <= end) {
      *reinterpret_cast<uint4 *>(to + b) = unit;
    } else {
      const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(&unit);
      for (uint32_t k = 0; k < 16; k++) {
        if (b + k < end) {
          to[b + k] = bytes[k];
        } else {
          good = good && (state.mode != GPUFI_MODE_RAW || bytes[k] == 0);
        }
      }
    }
  }
  return good;
}

/* Thread blocks take the runs in their order. */
template <typename T, int C>
__global__ void __launch_bounds__(kThreads, kThreadBlocksPerSm<T>)
    decode_kernel(const __grid_constant__ decode_job job) {
  begin_early();
  uint4 *const run_bytes = dynamic_shared();
  __shared__ run_shared<T, C> shared;
  __shared__ uint32_t next;
  while (take_next(job, &job.counts->general_taken, job.counts->general, &next)) {
    uint32_t run;
    const uint32_t chunk = chunk_in_turn(job, next, kChunksAtOnce, &run);
    decode_state *const state = &job.states[chunk];
    if (!state->is_general(job.has_planes)) {
      continue;
    }
    const run_place<T> at = place_in_chunk<T>(job, chunk, run);
    chunk_sum share = {0, 0};
    if (state->mode == GPUFI_MODE_W8) {
      decode_run<T, C>(job, chunk, at, run_bytes, &shared, &share);
    } else if (!fill_run<T, C>(*state, at, &share)) {
      state->is_bad = 1;
    }
    add_to_sum(state, share, shared.partial);
  }
}

/* --- launching --- */

/* The launches of a job, without those that open and judge the chunks. */
struct launch {
  const decode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    constexpr int kShared = static_cast<int>(kSharedNbytes<T>);
    cudaError_t code = cudaFuncSetAttribute(decode_kernel<T, C>,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    if (code == cudaSuccess) {
      code = launch_early(decode_kernel<T, C>,
                          taking_thread_blocks(job.chunk_count * job.grid.run_count), kThreads,
                          kShared, stream, job);
    }
    if (code == cudaSuccess && job.may_have_strips) {
      code = decode_strips(job, stream);
    }
    if (code == cudaSuccess && job.grid.is_float) {
      code = decode_bases(job, stream);
    }
    if (code == cudaSuccess) {
      code = decode_match_blocks(job, stream);
    }
    if (code == cudaSuccess) {
      code = predict_matches(job, stream);
    }
    return code == cudaSuccess ? decode_ranked_chunks(job, stream) : code;
  }
};

struct shared_nbytes {
  template <typename T, int C> size_t run() const {
    return sizeof(run_shared<T, C>) + kSharedNbytes<T>;
  }
};

/* Whether GPUFETCH_GPU asks for the general kernels alone, to compare them. */
bool is_general() {
  const char *const name = getenv("GPUFETCH_GPU");
  return name != nullptr && strcmp(name, "general") == 0;
}

/* The scratch in its order; each part's size is a multiple of 16. */
struct decode_scratch {
  size_t states, counts, done, told, offsets, block_offsets, first_blocks, planes, sums;

  decode_scratch(const gpufi_chunks *chunks, const chunk_grid &grid)
      : states(gpufi_round_up_16(sizeof(decode_state) * chunks->count)),
        counts(gpufi_round_up_16(2 * sizeof(decode_counts))),
        done(gpufi_round_up_16(sizeof(uint32_t) * chunks->count * grid.run_count)),
        told(strips_fit(grid) ? done : 0),
        offsets(gpufi_round_up_16(sizeof(uint32_t) * chunks->count * (grid.run_count + 1))),
        block_offsets(gpufi_round_up_16(sizeof(uint32_t) * chunks->count * match_offsets(grid))),
        first_blocks(chunks->count * GPUFI_MATCHES_NBYTES_MAX),
        planes(gpufi_planes_fit(&chunks->shape) ? grid.raw_pitch_nbytes * chunks->count : 0),
        sums(strips_fit(grid) ? strip_sums_nbytes(grid, chunks->count) : 0) {}

  size_t total() const {
    return zeroed() + offsets + block_offsets + first_blocks + planes + sums;
  }

  /* What is to be zero, which comes first. */
  size_t zeroed() const {
    return states + counts + done + told;
  }
};

} // namespace

size_t gpufi_cuda_decode_shared_nbytes(const gpufi_chunks *chunks) {
  const chunk_grid grid = make_grid(chunks);
  const size_t strips = strips_fit(grid) ? strips_shared_nbytes(grid) : 0;
  const size_t ranked = ranked_shared_nbytes(grid), other = with_values(grid, shared_nbytes{});
  const size_t most = ranked > other ? ranked : other;
  return strips > most ? strips : most;
}

size_t gpufi_cuda_decode_scratch_nbytes(const gpufi_chunks *chunks) {
  return decode_scratch(chunks, make_grid(chunks)).total();
}

cudaError_t gpufi_cuda_decode(const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, cudaStream_t stream) {
  decode_job job = {};
  job.grid = make_grid(chunks);
  const decode_scratch sizes(chunks, job.grid);
  uint8_t *at = static_cast<uint8_t *>(d_scratch);
  gpufi_cut cut;
  gpufi_levels_cut(&cut, chunks->shape.dtype, job.grid.value_nbytes);
  job.place = {cut.at, cut.bits, 0};
  job.chunk_count = static_cast<uint32_t>(chunks->count);
  job.encoded = static_cast<const uint8_t *>(d_encoded);
  job.encoded_nbytes = encoded_nbytes;
  job.places = d_places;
  job.raw = static_cast<uint8_t *>(d_raw);
  job.verdicts = d_verdicts;
  job.states = reinterpret_cast<decode_state *>(at);
  job.counts = reinterpret_cast<decode_counts *>(at += sizes.states);
  job.run_done = reinterpret_cast<uint32_t *>(at += sizes.counts);
  job.run_told = reinterpret_cast<uint32_t *>(at += sizes.done);
  job.run_offsets = reinterpret_cast<uint32_t *>(at += sizes.told);
  job.block_offsets = reinterpret_cast<uint32_t *>(at += sizes.offsets);
  job.block_offset_count = match_offsets(job.grid);
  job.first_blocks = at += sizes.block_offsets;
  job.run_sums = reinterpret_cast<uint4 *>(at + sizes.first_blocks + sizes.planes);
  job.may_have_strips = strips_fit(job.grid) && !is_general();
  if (job.may_have_strips) {
    job.strips = plan_strips(job.grid, job.chunk_count);
  }
  const bool planes_fit = gpufi_planes_fit(&chunks->shape);
  decode_job with_planes = job;
  if (planes_fit) {
    with_planes.has_planes = true;
    with_planes.may_have_strips = false;
    with_planes.counts++;
    with_planes.grid = make_grid(chunks, true);
    with_planes.raw = at + sizes.first_blocks;
  }
  cudaError_t code = cudaMemsetAsync(d_scratch, 0, sizes.zeroed(), stream);
  if (code == cudaSuccess) {
    code = open_chunks(job, planes_fit ? &with_planes.grid : nullptr, stream);
  }
  if (code == cudaSuccess) {
    code = with_values(job.grid, launch{job, stream});
  }
  if (code == cudaSuccess && planes_fit) {
    code = with_values(with_planes.grid, launch{with_planes, stream});
  }
  if (code == cudaSuccess && planes_fit) {
    code = join_planes(make_planes_layout(chunks), job.states, &with_planes.counts->all,
                       with_planes.raw, job.raw, stream);
  }
  return code == cudaSuccess ? judge_chunks(job, stream) : code;
}
