/* Encoding a batch of chunks; codec/encode.c is the reference. encode_run.cuh says how. */
#include "backend/cuda/codec/arrange.cuh"
#include "backend/cuda/codec/bitshuffle.h"
#include "backend/cuda/codec/codec.h"
#include "backend/cuda/codec/encode_run.cuh"
#include "backend/cuda/codec/planes.cuh"

namespace {

using namespace gpufi;

/* Thread blocks that share a multiprocessor: bounds the registers. */
template <typename T> constexpr int kThreadBlocksPerSm = sizeof(T) == 8 ? 2 : 3;

/* A thread block a run, if any is of this kind. */
template <typename T, int C>
__global__ void __launch_bounds__(kThreads<kPlainRuns>, kThreadBlocksPerSm<T>)
    encode_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ run_shared<kPlainRuns> shared;
  if (*job.counts[kPlainRuns] == 0) {
    return;
  }
  take_run<T, C, kPlainRuns>(job, blockIdx.x, &shared);
}

/* --- chunks that do not become smaller --- */

constexpr uint32_t kRawThreads = 256;
constexpr uint64_t kRangeNbytes = 1 << 16;

/* The unit of 16 bytes at byte `at` of the raw bytes, with zeros behind their end. */
__device__ __forceinline__ uint4 raw_unit(const uint8_t *raw, uint64_t at, uint64_t nbytes) {
  uint4 unit = make_uint4(0, 0, 0, 0);
  if (at + 16 <= nbytes) {
    unit = *reinterpret_cast<const uint4 *>(raw + at);
  } else {
    memcpy(&unit, raw + at, nbytes - at);
  }
  return unit;
}

__device__ uint64_t raw_chunk_nbytes(const chunk_grid &grid) {
  return GPUFI_HEADER_NBYTES + gpufi_round_up_16(grid.raw_nbytes);
}

/* Where the chunk begins. One that has not been encoded in any other way gets its place here, by
 * the thread with `is_first`. */
__device__ uint64_t raw_chunk_start(const encode_job &job, uint32_t chunk, bool is_first) {
  const encode_state &state = job.states[chunk];
  if (!state.seems_raw) {
    return state.start - 1;
  }
  const uint64_t nbytes = raw_chunk_nbytes(job.grid);
  const uint64_t start = front_of<kRawCopies>(job) + state.slot * nbytes;
  if (is_first) {
    job.places[chunk] = {start, nbytes};
  }
  return start;
}

/* Range `range` of a raw chunk's `range_count`. All threads. */
__device__ void copy_range(const encode_job &job, uint32_t chunk, uint32_t range,
                           uint32_t range_count, chunk_sum *partial) {
  constexpr uint32_t kAhead = 4, kStep = kRawThreads * 16;
  const chunk_grid &grid = job.grid;
  encode_state *const state = &job.states[chunk];
  const uint8_t *const from = job.original + chunk * grid.raw_pitch_nbytes;
  uint8_t *const to = job.encoded + raw_chunk_start(job, chunk, range == 0 && threadIdx.x == 0);
  const uint64_t end = gpufi_round_up_16(grid.raw_nbytes);
  const uint64_t range_end = (range + 1) * kRangeNbytes < end ? (range + 1) * kRangeNbytes : end;
  chunk_sum share = {0, 0};
  for (uint64_t at = range * kRangeNbytes + threadIdx.x * 16; at < range_end;
       at += kAhead * kStep) {
    uint4 units[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      if (at + k * kStep < range_end) {
        units[k] = raw_unit(from, at + k * kStep, grid.raw_nbytes);
      }
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      if (at + k * kStep < range_end) {
        *reinterpret_cast<uint4 *>(to + GPUFI_HEADER_NBYTES + at + k * kStep) = units[k];
        share.add((GPUFI_HEADER_NBYTES + at + k * kStep) / 8, units[k]);
      }
    }
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
  __syncthreads(); /* what is shared is for the next range */
}

__global__ void __launch_bounds__(kRawThreads)
    raw_kernel(const __grid_constant__ encode_job job, uint32_t range_count) {
  begin_early();
  __shared__ chunk_sum partial[kRawThreads / kWarp];
  const uint32_t count = *job.counts[kRawCopies];
  if (count + *job.unshrunk_count == 0) {
    return;
  }
  if (count != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    const uint64_t end = front_of<kRawCopies>(job) + count * raw_chunk_nbytes(job.grid);
    job.places[job.chunk_count] = {end < job.encoded_nbytes ? end : job.encoded_nbytes, 0};
  }
  for (uint32_t index = blockIdx.x; index < job.chunk_count * range_count; index += gridDim.x) {
    const uint32_t chunk = index / range_count;
    if (job.states[chunk].is_raw || job.states[chunk].seems_raw) {
      copy_range(job, chunk, index - chunk * range_count, range_count, partial);
    }
  }
}

/* --- launching --- */

struct launch {
  const encode_job &job;
  const planes_layout *planes; /* or null */
  uint8_t *coded;              /* for what it makes of the chunks */
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    cudaError_t code = cudaSuccess;
    if (job.has_planes) {
      code = split_planes(*planes, job.original, coded, stream);
    }
    if (code == cudaSuccess) {
      code = choose_predictions(job, stream);
    }
    if (code == cudaSuccess && job.may_have_base) {
      code = choose_bases(job, stream);
    }
    if (code == cudaSuccess) {
      code = choose_matches(job, stream);
    }
    if (code == cudaSuccess && job.may_have_base) {
      code = convert_bases(job, stream);
    }
    if (code == cudaSuccess) {
      code = launch_runs<T, kPlainRuns>(job, encode_kernel<T, C>, stream);
    }
    if (code == cudaSuccess) {
      code = encode_ranked_runs(job, stream);
    }
    if (code == cudaSuccess) {
      code = encode_matches(job, stream);
    }
    if (code == cudaSuccess && job.may_have_base && job.can_correct) {
      code = encode_corrected_runs(job, stream);
    }
    if (code == cudaSuccess) {
      const uint32_t range_count =
          static_cast<uint32_t>((job.grid.raw_nbytes + kRangeNbytes - 1) / kRangeNbytes);
      code = launch_early(raw_kernel, rare_thread_blocks(job.chunk_count * range_count),
                          kRawThreads, 0, stream, job, range_count);
    }
    return code;
  }
};

/* Whether a thread block may have as much shared memory. */
bool has_shared(size_t needed) {
  int device, there;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&there, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         needed <= static_cast<size_t>(there);
}

size_t match_blocks(const chunk_grid &grid) {
  return match_block_count(grid, GPUFI_MATCHES_LOG2);
}

size_t match_words_nbytes(size_t count) {
  return gpufi_round_up_16(sizeof(uint32_t) * count);
}

/* The scratch in its order; each part's size is a multiple of 16. */
struct encode_scratch {
  size_t states, sizes, sums, totals, work, match_sizes, match_offsets, first_blocks, planes;

  encode_scratch(const gpufi_chunks *chunks, const chunk_grid &grid)
      : states(gpufi_round_up_16(sizeof(encode_state) * chunks->count)),
        sizes(gpufi_round_up_16(sizeof(uint32_t) * grid.run_count * chunks->count)),
        sums(gpufi_round_up_16(sizeof(unsigned long long) *
                               (grid.run_count * chunks->count / kWindow + 1))),
        totals(gpufi_round_up_16(kRunKinds * sizeof(unsigned long long)) +
               gpufi_round_up_16((2 * kRunKinds + 2) * sizeof(uint32_t))),
        work(grid.raw_pitch_nbytes * chunks->count),
        match_sizes(match_words_nbytes(chunks->count * match_blocks(grid))),
        match_offsets(match_words_nbytes(chunks->count * (match_blocks(grid) + 1))),
        first_blocks(match_blocks(grid) > 1 ? sizeof(first_block) * chunks->count : 0),
        planes(gpufi_planes_pay(&chunks->shape) ? grid.raw_pitch_nbytes * chunks->count : 0) {}

  size_t total() const {
    return zeroed() + work + match_sizes + match_offsets + first_blocks + planes;
  }

  /* What is to be zero, which comes first. */
  size_t zeroed() const {
    return states + kRunKinds * (sizes + 2 * sums) + totals;
  }
};

} // namespace

size_t gpufi_cuda_encode_shared_nbytes(const gpufi_chunks *chunks) {
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    return 0; /* as much as every GPU has */
  }
  return ranked_runs_shared_nbytes(make_grid(chunks));
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
  job.has_planes = gpufi_planes_pay(&chunks->shape);
  job.grid = make_grid(chunks, job.has_planes);
  const encode_scratch sizes(chunks, job.grid);
  uint8_t *at = static_cast<uint8_t *>(d_scratch);
  job.cuts = gpufi_ranks_cuts(chunks->shape.dtype, job.grid.value_nbytes);
  job.swap = chunks->big_endian && job.grid.value_nbytes > 1;
  job.chunk_count = static_cast<uint32_t>(chunks->count);
  job.original = static_cast<const uint8_t *>(d_raw);
  job.encoded = static_cast<uint8_t *>(d_encoded);
  job.encoded_nbytes = gpufi_chunks_encoded_nbytes(chunks);
  job.can_correct = has_shared(corrected_runs_shared_nbytes(job.grid));
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
  uint32_t *const counts =
      reinterpret_cast<uint32_t *>(at + gpufi_round_up_16(kRunKinds * sizeof(*job.ends)));
  for (int k = 0; k < kRunKinds; k++) {
    job.counts[k] = counts + 2 * k;
    job.taken[k] = counts + 2 * k + 1;
  }
  job.based_count = counts + 2 * kRunKinds;
  job.unshrunk_count = job.based_count + 1;
  job.may_have_base = job.grid.is_float && job.grid.value_nbytes > 1;
  at = static_cast<uint8_t *>(d_scratch) + sizes.zeroed();
  job.work = at;
  job.match_sizes = reinterpret_cast<uint32_t *>(at += sizes.work);
  job.match_offsets = reinterpret_cast<uint32_t *>(at += sizes.match_sizes);
  job.first_blocks = reinterpret_cast<first_block *>(at += sizes.match_offsets);
  job.runs = make_divisor(job.grid.run_count);
  uint8_t *const coded = at + sizes.first_blocks;
  job.raw = job.has_planes ? coded : job.original;
  const planes_layout planes = job.has_planes ? make_planes_layout(chunks) : planes_layout{};
  const cudaError_t code = cudaMemsetAsync(d_scratch, 0, sizes.zeroed(), stream);
  const launch of = {job, job.has_planes ? &planes : nullptr, coded, stream};
  return code == cudaSuccess ? with_values(job.grid, of) : code;
}
