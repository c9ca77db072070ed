/* Encoding a batch of chunks; codec/encode.c is the reference.
 *
 * A thread block of nine warps encodes a run of eight blocks, a warp a block: residuals in
 * registers, packed into shared memory, from where they leave in one piece. The ninth warp finds
 * the run's place in the batch meanwhile, by a decoupled look-back over the sizes of the runs
 * before it. Thread blocks start in the order of their numbers, so whoever waits, waits for thread
 * blocks that run already. */
#include "backend/cuda/codec.h"
#include "backend/cuda/codec_encode.cuh"
#include "backend/cuda/codec_pack.cuh"
#include "backend/cuda/codec_residuals.cuh"

namespace {

using namespace gpufi;

constexpr int kPackWarps = GPUFI_RUN_BLOCKS;
constexpr int kThreads = (kPackWarps + 1) * kWarp;
/* Behind the run's bytes, for writers of whole groups. */
constexpr size_t kSlackNbytes = 80;

/* Thread blocks that share a multiprocessor: bounds the registers. */
#ifndef ENC_BLOCKS
#define ENC_BLOCKS 3
#endif
template <typename T> constexpr int kBlocksPerSm = sizeof(T) == 8 ? 1 : ENC_BLOCKS;

/* --- the header ------------------------------------------------------------------------ */

struct header_coding {
  uint8_t mode, transform, axes, flags;
  uint64_t payload_nbytes;
  uint64_t seed[2]; /* the offset included */
};

/* `sum` is that of the payload. */
__device__ void write_header(const chunk_grid &grid, uint8_t *chunk, const header_coding &coding,
                             chunk_sum sum) {
  uint64_t words[GPUFI_HEADER_NBYTES / 8] = {};
  words[0] = GPUFI_CHUNK_MAGIC | static_cast<uint64_t>(GPUFI_CHUNK_VERSION) << 32 |
             static_cast<uint64_t>(grid.dtype) << 40 | static_cast<uint64_t>(coding.mode) << 48 |
             static_cast<uint64_t>(coding.transform) << 56;
  words[1] = coding.axes | static_cast<uint64_t>(grid.ndim) << 8 |
             static_cast<uint64_t>(coding.flags) << 16;
  words[2] = grid.raw_nbytes;
  words[3] = coding.payload_nbytes;
#pragma unroll
  for (int k = 0; k < GPUFI_CODEC_NDIM_MAX / 2; k++) {
    words[4 + k] =
        static_cast<uint64_t>(grid.header_dims[2 * k + 1]) << 32 | grid.header_dims[2 * k];
  }
  words[8] = coding.seed[0];
  words[9] = coding.seed[1];
#pragma unroll
  for (int i = 0; i < GPUFI_AT_CHECKSUM / 8; i++) {
    sum.add(static_cast<uint64_t>(i), words[i]);
  }
  words[10] = sum.plain;
  words[11] = sum.mixed;
#pragma unroll
  for (int i = 0; i < GPUFI_HEADER_NBYTES / 8; i++) {
    reinterpret_cast<uint64_t *>(chunk)[i] = words[i];
  }
}

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

/* Once every run of the chunk is written: decide its mode, and write the header unless it has to
 * be raw. One thread. */
template <typename T, int C>
__device__ void finish_chunk(const encode_job &job, uint32_t chunk, encode_state *state) {
  const chunk_grid &grid = job.grid;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  const uint64_t start = __ldcg(&state->start) - 1, end = __ldcg(&state->end);
  const uint64_t capacity = (grid.raw_nbytes + 15) / 16 * 16;
  chunk_sum sum = {__ldcg(&state->plain), __ldcg(&state->mixed)};
  header_coding coding = {};
  coding.payload_nbytes = end - start - GPUFI_HEADER_NBYTES;
  const bool all_zero = coding.payload_nbytes == grid.descriptors_nbytes && state->offset == 0;
  if (all_zero || grid.axis_count == 0) {
    /* Every residual is 0 just where all elements equal the first, which may be the only one. */
    coding.mode = GPUFI_MODE_CONSTANT;
    coding.payload_nbytes = 0;
    sum = {0, 0};
    read_seed<T, C>(raw, {GPUFI_TRANSFORM_NONE, false}, coding.seed);
  } else if (state->is_left) {
    job.places[chunk] = {start, 0};
  } else if (coding.payload_nbytes < capacity) {
    coding.mode = GPUFI_MODE_W8;
    coding.transform = state->transform;
    coding.axes = static_cast<uint8_t>(header_axes(grid, state->subset));
    coding.flags = job.swap ? GPUFI_FLAG_BIG_ENDIAN : 0;
    if (state->subset != 0) {
      read_seed<T, C>(raw, {state->transform, job.swap}, coding.seed);
    }
    coding.seed[1] |= state->offset;
  } else {
    coding.mode = GPUFI_MODE_RAW;
    coding.payload_nbytes = capacity;
    state->is_raw = true;
    state->done_count = 0;
    state->plain = state->mixed = 0;
  }
  if (coding.mode != GPUFI_MODE_RAW) {
    write_header(grid, job.encoded + start, coding, sum);
  }
  if (!(state->is_left && coding.mode != GPUFI_MODE_CONSTANT)) {
    job.places[chunk] = {start, GPUFI_HEADER_NBYTES + coding.payload_nbytes};
  }
  if (chunk == job.chunk_count - 1) {
    job.places[job.chunk_count] = {end, 0};
  }
}

/* --- the place of a run ------------------------------------------------------------------ */

/* A prefix word: bit 0 set = the run's own size, bit 1 set = the end of the run in the batch. */
constexpr unsigned kFlagBits = 2;
constexpr unsigned long long kIsSize = 1, kIsEnd = 2;

__device__ inline unsigned long long load_relaxed(const unsigned long long *p) {
  return *static_cast<const volatile unsigned long long *>(p);
}

__device__ inline void store_relaxed(unsigned long long *p, unsigned long long value) {
  *static_cast<volatile unsigned long long *>(p) = value;
}

/* Publish that run `index` of the batch takes `nbytes`, and return where it starts. A whole warp.
 */
__device__ unsigned long long look_back(unsigned long long *prefixes, uint32_t index,
                                        unsigned long long nbytes, int lane) {
  unsigned long long start = 0;
  if (lane == 0 && index != 0) {
    store_relaxed(&prefixes[index], nbytes << kFlagBits | kIsSize);
  }
  for (int64_t window = static_cast<int64_t>(index) - 1; window >= 0; window -= kWarp) {
    const int64_t at = window - lane;
    unsigned long long word = at >= 0 ? load_relaxed(&prefixes[at]) : kIsEnd;
    while (__any_sync(kFull, word == 0)) {
      if (word == 0) {
        word = load_relaxed(&prefixes[at]);
      }
    }
    const uint32_t ends = __ballot_sync(kFull, (word & kIsEnd) != 0);
    const int last = ends ? __ffs(static_cast<int>(ends)) - 1 : kWarp - 1;
    const uint64_t part = lane <= last ? word >> kFlagBits : 0;
    start += warp_add(part);
    if (ends) {
      break;
    }
  }
  if (lane == 0) {
    store_relaxed(&prefixes[index], (start + nbytes) << kFlagBits | kIsEnd);
  }
  return start;
}

/* --- a run --------------------------------------------------------------------------------- */

struct run_shared {
  uint32_t nbytes[GPUFI_RUN_BLOCKS]; /* of each block */
  uint32_t descriptors[GPUFI_RUN_BLOCKS];
  unsigned long long chunk_start, start; /* in the batch: of the chunk, of this run's blocks */
  chunk_sum partial[kPackWarps + 1];
};

/* Offset in the run of block `warp`; of all of it for warp 8. */
__device__ inline uint32_t offset_in_run(const run_shared &shared, int warp) {
  uint32_t offset = 0;
#pragma unroll
  for (int b = 0; b < GPUFI_RUN_BLOCKS; b++) {
    offset += b < warp ? shared.nbytes[b] : 0;
  }
  return offset;
}

/* By the ninth warp. */
__device__ void place_run(const encode_job &job, run_shared *shared, uint32_t chunk, uint32_t run,
                          int lane) {
  encode_state *const state = &job.states[chunk];
  const uint32_t front = run == 0 ? GPUFI_HEADER_NBYTES + job.grid.descriptors_nbytes : 0;
  const uint32_t nbytes = (offset_in_run(*shared, GPUFI_RUN_BLOCKS) + 15) / 16 * 16;
  const unsigned long long start = look_back(job.prefixes, blockIdx.x, front + nbytes, lane);
  if (lane == 0) {
    if (run == 0) {
      store_relaxed(&state->start, start + 1);
      shared->chunk_start = start;
    } else {
      unsigned long long word;
      do {
        word = load_relaxed(&state->start);
      } while (word == 0);
      shared->chunk_start = word - 1;
    }
    shared->start = start + front;
    if (run == job.grid.run_count - 1) {
      state->end = start + front + nbytes;
    }
  }
}

/* The run's bytes and descriptors from shared memory to their place. Returns this thread's share
 * of the checksum. */
__device__ chunk_sum write_run(const encode_job &job, const run_shared &shared, const uint4 *bytes,
                               uint32_t run) {
  chunk_sum sum = {0, 0};
  const uint32_t units = (offset_in_run(shared, GPUFI_RUN_BLOCKS) + 15) / 16;
  const uint64_t index = (shared.start - shared.chunk_start) / 8;
  uint4 *const to = reinterpret_cast<uint4 *>(job.encoded + shared.start);
  for (uint32_t u = threadIdx.x; u < units; u += kThreads) {
    const uint4 unit = bytes[u];
    to[u] = unit;
    sum.add(index + 2 * u, unit);
  }
  const uint32_t at = run * GPUFI_RUN_BLOCKS * 4 + threadIdx.x * 16;
  if (threadIdx.x < GPUFI_RUN_BLOCKS / 4 && at < job.grid.descriptors_nbytes) {
    const uint32_t *const d = shared.descriptors + 4 * threadIdx.x;
    const uint4 unit = make_uint4(d[0], d[1], d[2], d[3]);
    *reinterpret_cast<uint4 *>(job.encoded + shared.chunk_start + GPUFI_HEADER_NBYTES + at) = unit;
    sum.add((GPUFI_HEADER_NBYTES + at) / 8, unit);
  }
  return sum;
}

/* Of the block's residuals, which are 0 from `count` on; not of the first element's where the seed
 * stands in for it. */
template <typename T, int C>
__device__ __forceinline__ void subtract_offset(T values[kLaneGroups][kGroup], T offset,
                                                uint32_t count, bool has_seed, int lane) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      const uint32_t i = static_cast<uint32_t>((j * kWarp + lane) * kGroup + t);
      if (i < count && !(has_seed && i < C)) {
        values[j][t] = static_cast<T>(values[j][t] - offset);
      }
    }
  }
}

/* Zero the run's bytes: each warp those where it kept its own block's list, the last one the rest.
 */
__device__ void clear_share(uint4 *run_bytes, uint32_t units, int warp, int lane) {
  const uint32_t share = units / kPackWarps;
  const uint32_t begin = static_cast<uint32_t>(warp) * share;
  const uint32_t end = warp < kPackWarps ? begin + share : begin + kSlackNbytes / 16;
  for (uint32_t u = begin + static_cast<uint32_t>(lane); u < end; u += kWarp) {
    run_bytes[u] = make_uint4(0, 0, 0, 0);
  }
}

template <typename T, int C>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<T>)
    encode_kernel(const __grid_constant__ encode_job job) {
  uint4 *const run_bytes = dynamic_shared();
  __shared__ run_shared shared;
  const chunk_grid &grid = job.grid;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t chunk = blockIdx.x / grid.run_count;
  const uint32_t run = blockIdx.x - chunk * grid.run_count;
  encode_state *const state = &job.states[chunk];
  const uint32_t block = run * GPUFI_RUN_BLOCKS + static_cast<uint32_t>(warp);
  packed_block<T> packed;
  packed.clear();
  if (warp < kPackWarps && block < grid.block_count) {
    const residual_source<T> from = {
        grid,
        reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes),
        {state->transform, job.swap},
        state->subset,
        state->subset & ~1u};
    const uint32_t first = block * GPUFI_BLOCK_VALUES, left = grid.value_count - first;
    const uint32_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
    block_residuals<T, C>(from, first, lane, packed.values);
    if (state->offset != 0) {
      subtract_offset<T, C>(packed.values, static_cast<T>(state->offset), count,
                            block == 0 && from.subset != 0, lane);
    }
    packed.measure(count, lane, reinterpret_cast<T *>(run_bytes) + warp * GPUFI_BLOCK_VALUES);
  }
  clear_share(run_bytes, kRunValues * sizeof(T) / 16, warp, lane);
  if (warp < kPackWarps && lane == 0) {
    shared.nbytes[warp] = packed.nbytes;
    shared.descriptors[warp] = packed.descriptor();
  }
  __syncthreads();
  if (warp == kPackWarps) {
    place_run(job, &shared, chunk, run, lane);
  } else {
    packed.write(reinterpret_cast<uint32_t *>(run_bytes), offset_in_run(shared, warp), lane);
  }
  __syncthreads();
  const chunk_sum share = write_run(job, shared, run_bytes, run);
  const chunk_sum sum = block_sum<kPackWarps + 1>(share, shared.partial);
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, sum.plain);
    atomicAdd(&state->mixed, sum.mixed);
    __threadfence();
    if (atomicAdd(&state->done_count, 1u) == grid.run_count - 1) {
      __threadfence();
      finish_chunk<T, C>(job, chunk, state);
    }
  }
}

/* --- chunks that W8 does not make smaller ------------------------------------------------------
 */

constexpr uint32_t kRawThreads = 256;
constexpr uint64_t kPieceNbytes = 1 << 18;

__global__ void __launch_bounds__(kRawThreads)
    raw_kernel(const __grid_constant__ encode_job job, uint32_t piece_count) {
  __shared__ chunk_sum partial[kRawThreads / kWarp];
  const chunk_grid &grid = job.grid;
  const uint32_t chunk = blockIdx.x / piece_count, piece = blockIdx.x % piece_count;
  encode_state *const state = &job.states[chunk];
  if (!state->is_raw) {
    return;
  }
  const uint8_t *const from = job.raw + chunk * grid.raw_pitch_nbytes;
  uint8_t *const to = job.encoded + (state->start - 1);
  const uint64_t end = (grid.raw_nbytes + 15) / 16 * 16;
  const uint64_t piece_end = (piece + 1) * kPieceNbytes < end ? (piece + 1) * kPieceNbytes : end;
  chunk_sum share = {0, 0};
  for (uint64_t at = piece * kPieceNbytes + threadIdx.x * 16; at < piece_end;
       at += kRawThreads * 16) {
    uint4 unit = make_uint4(0, 0, 0, 0);
    if (at + 16 <= grid.raw_nbytes) {
      unit = *reinterpret_cast<const uint4 *>(from + at);
    } else {
      memcpy(&unit, from + at, grid.raw_nbytes - at);
    }
    *reinterpret_cast<uint4 *>(to + GPUFI_HEADER_NBYTES + at) = unit;
    share.add((GPUFI_HEADER_NBYTES + at) / 8, unit);
  }
  const chunk_sum sum = block_sum<kRawThreads / kWarp>(share, partial);
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, sum.plain);
    atomicAdd(&state->mixed, sum.mixed);
    __threadfence();
    if (atomicAdd(&state->done_count, 1u) == piece_count - 1) {
      __threadfence();
      header_coding coding = {};
      coding.payload_nbytes = end;
      write_header(grid, to, coding, {__ldcg(&state->plain), __ldcg(&state->mixed)});
    }
  }
}

/* --- launching ----------------------------------------------------------------------------------
 */

constexpr size_t shared_nbytes(size_t value_nbytes) {
  return kRunValues * value_nbytes + kSlackNbytes;
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    constexpr int kShared = static_cast<int>(shared_nbytes(sizeof(T)));
    cudaError_t code = cudaFuncSetAttribute(encode_kernel<T, C>,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    if (code == cudaSuccess) {
      code = choose_predictions(job, stream);
    }
    if (code == cudaSuccess) {
      code = launch_kernel(encode_kernel<T, C>, job.chunk_count * job.grid.run_count, kThreads,
                           kShared, stream, job);
    }
    if (code == cudaSuccess) {
      const uint32_t piece_count =
          static_cast<uint32_t>((job.grid.raw_nbytes + kPieceNbytes - 1) / kPieceNbytes);
      code = launch_kernel(raw_kernel, job.chunk_count * piece_count, kRawThreads, 0, stream, job,
                           piece_count);
    }
    return code;
  }
};

/* The scratch in its order; each part's size is a multiple of 16. */
struct encode_scratch {
  size_t costs, states, prefixes;

  encode_scratch(const gpufi_chunks *chunks, const chunk_grid &grid)
      : costs(gpufi_round_up_16(sizeof(sample_cost) * chunks->count)),
        states(gpufi_round_up_16(sizeof(encode_state) * chunks->count)),
        prefixes(gpufi_round_up_16(sizeof(unsigned long long) * grid.run_count * chunks->count)) {}

  size_t total() const {
    return costs + states + prefixes;
  }
};

} // namespace

namespace gpufi {

chunk_grid make_grid(const gpufi_chunks *chunks) {
  chunk_grid grid = {};
  gpufi_geometry g;
  gpufi_geometry_init(&g, &chunks->shape);
  grid.value_count = static_cast<uint32_t>(g.value_count);
  grid.block_count = static_cast<uint32_t>(gpufi_block_count(&g));
  grid.run_count = (grid.block_count - 1) / GPUFI_RUN_BLOCKS + 1;
  grid.component_count = static_cast<uint32_t>(g.component_count);
  for (int32_t a = g.ndim - 1; a >= 0; a--) {
    grid.header_dims[a] = chunks->shape.dims[a];
    if (g.dims[a] > 1) {
      grid.axis_of[grid.axis_count] = static_cast<uint8_t>(a);
      grid.dims[grid.axis_count] = make_divisor(chunks->shape.dims[a]);
      grid.strides[grid.axis_count++] = static_cast<uint32_t>(g.strides[a]);
    }
  }
  grid.usable_count = grid.axis_count < GPUFI_PREDICT_AXES ? grid.axis_count : GPUFI_PREDICT_AXES;
  for (int s = 1; s < 1 << grid.usable_count; s++) {
    const int bit = __builtin_ctz(static_cast<unsigned>(s));
    grid.offsets[s] = grid.offsets[s & (s - 1)] + grid.strides[bit];
  }
  grid.row_values = grid.axis_count > 0 ? grid.dims[0].d * grid.component_count : grid.value_count;
  grid.row = make_divisor(grid.row_values);
  grid.raw_nbytes = chunks->raw_nbytes;
  grid.raw_pitch_nbytes = chunks->raw_pitch_nbytes;
  grid.dtype = static_cast<uint8_t>(chunks->shape.dtype);
  grid.ndim = static_cast<uint8_t>(chunks->shape.ndim);
  grid.value_nbytes = static_cast<uint8_t>(g.value_nbytes);
  grid.is_float = gpufi_chunk_dtype_is_float(chunks->shape.dtype);
  grid.descriptors_nbytes = static_cast<uint32_t>(gpufi_round_up_16(4 * gpufi_block_count(&g)));
  return grid;
}

} // namespace gpufi

size_t gpufi_cuda_encode_shared_nbytes(const gpufi_chunks *chunks) {
  return sizeof(run_shared) + shared_nbytes(make_grid(chunks).value_nbytes);
}

size_t gpufi_cuda_encode_scratch_nbytes(const gpufi_chunks *chunks) {
  return encode_scratch(chunks, make_grid(chunks)).total();
}

cudaError_t gpufi_cuda_encode(const gpufi_chunks *chunks, const void *d_raw, void *d_encoded,
                              gpufi_chunk_place *d_places, void *d_scratch, cudaStream_t stream) {
  encode_job job = {};
  job.grid = make_grid(chunks);
  const encode_scratch sizes(chunks, job.grid);
  gpufi_ranks ranks;
  uint8_t *at = static_cast<uint8_t *>(d_scratch);
  gpufi_ranks_init(&ranks, chunks->shape.dtype, job.grid.value_nbytes);
  job.symbol_at = ranks.symbol_at;
  job.symbol_bits = ranks.symbol_bits;
  job.swap = chunks->big_endian && job.grid.value_nbytes > 1;
  job.chunk_count = static_cast<uint32_t>(chunks->count);
  job.raw = static_cast<const uint8_t *>(d_raw);
  job.encoded = static_cast<uint8_t *>(d_encoded);
  job.places = d_places;
  job.costs = reinterpret_cast<sample_cost *>(at);
  job.states = reinterpret_cast<encode_state *>(at += sizes.costs);
  job.prefixes = reinterpret_cast<unsigned long long *>(at + sizes.states);
  const cudaError_t code = cudaMemsetAsync(d_scratch, 0, sizes.total(), stream);
  return code == cudaSuccess ? with_values(job.grid, launch{job, stream}) : code;
}
