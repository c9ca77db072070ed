/* Encoding chunks that seem raw by their sample: each run's raw bytes go straight to where a raw
 * chunk has them, while W8 is measured. If W8 takes less after all, the thread block that comes
 * last writes the chunk once more, over what is there, which takes more.
 *
 * So the place of such a chunk is known before anything of it is encoded, and no run waits for
 * another one. */
#include "backend/cuda/codec/encode_run.cuh"

namespace {

using namespace gpufi;

constexpr run_kind kKind = kRawRuns;

/* Thread blocks that share a multiprocessor: bounds the registers. */
template <typename T> constexpr int kThreadBlocksPerSm = sizeof(T) == 8 ? 2 : 3;

struct raw_shared {
  run_shared<kKind> run;
  uint32_t measured; /* bytes of the run's blocks */
  uint32_t next;     /* the run of the batch that the thread block takes */
};

__device__ uint64_t chunk_nbytes(const chunk_grid &grid) {
  return GPUFI_HEADER_NBYTES + gpufi_round_up_16(grid.raw_nbytes);
}

/* Unit `past` / 16 of the raw bytes from `from` on, of which `left` are the chunk's. */
__device__ __forceinline__ uint4 raw_unit(const uint8_t *from, uint64_t past, uint64_t left) {
  uint4 unit = make_uint4(0, 0, 0, 0);
  if (past + 16 <= left) {
    unit = *reinterpret_cast<const uint4 *>(from + past);
  } else {
    memcpy(&unit, from + past, left - past);
  }
  return unit;
}

/* A run's raw bytes, with the chunk's padding, to the chunk at `to`. All threads; returns each
 * one's share of the checksum. */
__device__ __forceinline__ chunk_sum copy_run(const encode_job &job, const run_of_batch &at,
                                              uint8_t *to) {
  constexpr uint32_t kAhead = 4, kStep = kThreads<kKind> * 16;
  const chunk_grid &grid = job.grid;
  const uint64_t begin = static_cast<uint64_t>(at.run) * kRunValues * grid.value_nbytes;
  const uint64_t left = grid.raw_nbytes - begin; /* without the padding */
  const uint64_t most = static_cast<uint64_t>(kRunValues) * grid.value_nbytes;
  const uint64_t end = left < most ? left : most;
  const uint8_t *const from = job.raw + at.chunk * grid.raw_pitch_nbytes + begin;
  to += GPUFI_HEADER_NBYTES + begin;
  chunk_sum share = {0, 0};
  for (uint64_t past = threadIdx.x * 16; past < end; past += kAhead * kStep) {
    uint4 units[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      if (past + k * kStep < end) {
        units[k] = raw_unit(from, past + k * kStep, left);
      }
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      if (past + k * kStep < end) {
        *reinterpret_cast<uint4 *>(to + past + k * kStep) = units[k];
        share.add((GPUFI_HEADER_NBYTES + begin + past + k * kStep) / 8, units[k]);
      }
    }
  }
  return share;
}

/* What the warp's block of the run takes in W8. A whole warp. */
template <typename T, int C>
__device__ __forceinline__ uint32_t measure_block(const encode_job &job, const run_of_batch &at,
                                                  uint32_t warp, T *list, int lane) {
  const uint32_t block = at.run * GPUFI_RUN_BLOCKS + warp;
  if (block >= job.grid.block_count) {
    return 0;
  }
  const uint32_t first = block * GPUFI_BLOCK_VALUES, left = job.grid.value_count - first;
  const uint32_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
  packed_block<T> packed;
  packed.clear();
  load_residuals<T, C, kKind>(job, at.chunk, first, count, lane, packed.values);
  packed.measure(count, lane, list);
  return packed.nbytes;
}

/* When all runs of a chunk at `start` are written: its header, if it is raw; false if it is not.
 * One thread. */
__device__ bool finish_raw(const encode_job &job, uint32_t chunk, uint64_t start,
                           encode_state *state) {
  const uint64_t measured = __ldcg(&state->measured),
                 capacity = gpufi_round_up_16(job.grid.raw_nbytes);
  if (measured == 0 || descriptors_nbytes<kKind>(job.grid) + measured < capacity) {
    state->done_count = 0; /* it may be constant, too */
    state->plain = state->mixed = 0;
    state->start = start + 1;
    return false;
  }
  header_coding coding = {};
  coding.mode = GPUFI_MODE_RAW;
  coding.payload_nbytes = capacity;
  write_header(job.grid, job.encoded + start, coding,
               {__ldcg(&state->plain), __ldcg(&state->mixed)});
  job.places[chunk] = {start, chunk_nbytes(job.grid)};
  return true;
}

/* A run of a chunk that seems raw. All threads. */
template <typename T, int C>
__device__ __forceinline__ void take_raw_run(const encode_job &job, run_of_batch at,
                                             raw_shared *shared) {
  const uint32_t warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  encode_state *const state = &job.states[at.chunk];
  T *const list = reinterpret_cast<T *>(dynamic_shared() + warp * kStagingUnits<T>);
  const uint64_t start = front_of<kKind>(job) + state->slot * chunk_nbytes(job.grid);
  if (threadIdx.x == 0) {
    shared->measured = 0;
  }
  __syncthreads();
  const chunk_sum share = copy_run(job, at, job.encoded + start);
  const uint32_t nbytes = measure_block<T, C>(job, at, warp, list, lane);
  if (lane == 0) {
    atomicAdd(&shared->measured, nbytes);
  }
  const chunk_sum sum = thread_block_sum<kWarps<kKind>>(share, shared->run.partial);
  bool is_misjudged = false;
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
    atomicAdd(&state->measured,
              static_cast<unsigned long long>(gpufi_round_up_16(shared->measured)));
    __threadfence();
    const bool is_last = atomicAdd(&state->done_count, 1u) == job.grid.run_count - 1;
    __threadfence();
    is_misjudged = is_last && !finish_raw(job, at.chunk, start, state);
  }
  if (__syncthreads_or(is_misjudged) == 0) {
    return;
  }
  for (at.run = 0; at.run < job.grid.run_count; at.run++) {
    encode_run<T, C, kKind>(job, at, &shared->run);
    __syncthreads(); /* what is shared is for the next run */
  }
}

/* Thread blocks take the runs of the batch one after the other, if any chunk seems raw. */
template <typename T, int C>
__global__ void __launch_bounds__(kThreads<kKind>, kThreadBlocksPerSm<T>)
    encode_raw_kernel(const __grid_constant__ encode_job job) {
  __shared__ raw_shared shared;
  const uint32_t raw_count = *job.counts[kKind];
  if (raw_count != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    const uint64_t end = front_of<kKind>(job) + raw_count * chunk_nbytes(job.grid);
    job.places[job.chunk_count] = {end < job.encoded_nbytes ? end : job.encoded_nbytes, 0};
    job.ends[kKind] = end;
  }
  while (raw_count != 0) {
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.next = atomicAdd(job.taken[kKind], 1u);
    }
    __syncthreads();
    const uint32_t index = shared.next, chunk = divide(index, job.runs);
    if (chunk >= job.chunk_count) {
      return;
    }
    if (job.states[chunk].kind() == kKind) {
      take_raw_run<T, C>(job, {index, chunk, index - chunk * job.grid.run_count}, &shared);
    }
  }
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    return launch_runs<T, kKind>(job, encode_raw_kernel<T, C>, stream);
  }
};

} // namespace

namespace gpufi {

cudaError_t encode_raw_runs(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
