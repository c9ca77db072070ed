/* Encoding a batch of chunks; codec/encode.c is the reference.
 *
 * A thread block of nine warps encodes a run of eight blocks, a warp a block: residuals in
 * registers, packed into shared memory, from where they leave in one piece. The ninth warp finds
 * the run's place in the batch meanwhile, by a decoupled look-back over the sizes of the runs
 * before it. Thread blocks start in the order of their numbers, so whoever waits, waits for thread
 * blocks that run already.
 *
 * Ranked chunks, whose blocks are packed in another way, are encoded by a second launch, behind all
 * others. */
#include "backend/cuda/bitshuffle.h"
#include "backend/cuda/codec.h"
#include "backend/cuda/codec_encode.cuh"
#include "backend/cuda/codec_header.cuh"
#include "backend/cuda/codec_lookback.cuh"
#include "backend/cuda/codec_pack.cuh"
#include "backend/cuda/codec_ranked_pack.cuh"
#include "backend/cuda/codec_residuals.cuh"

#include <type_traits>

namespace {

using namespace gpufi;

constexpr int kPackWarps = GPUFI_RUN_BLOCKS;
constexpr int kThreads = (kPackWarps + 1) * kWarp;
/* Behind the run's bytes, for writers of whole groups. */
constexpr size_t kSlackNbytes = 80;

/* Thread blocks that share a multiprocessor: bounds the registers. */
template <typename T> constexpr int kBlocksPerSm = sizeof(T) == 8 ? 1 : 3;

/* --- the header ------------------------------------------------------------------------ */

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
template <typename T, int C, bool kRanked>
__device__ void finish_chunk(const encode_job &job, uint32_t chunk, encode_state *state) {
  const chunk_grid &grid = job.grid;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  const uint64_t start = __ldcg(&state->start) - 1, end = __ldcg(&state->end);
  const uint64_t capacity = (grid.raw_nbytes + 15) / 16 * 16;
  chunk_sum sum = {__ldcg(&state->plain), __ldcg(&state->mixed)};
  header_coding coding = {};
  coding.payload_nbytes = end - start - GPUFI_HEADER_NBYTES;
  const bool all_zero = coding.payload_nbytes == grid.descriptors_nbytes && state->offset == 0;
  coding.flags = job.swap ? GPUFI_FLAG_BIG_ENDIAN : 0;
  if (kRanked && coding.payload_nbytes < capacity) {
    coding.mode = GPUFI_MODE_RANKED;
    coding.levels = state->levels;
  } else if (!kRanked && (all_zero || grid.axis_count == 0)) {
    /* Every residual is 0 just where all elements equal the first, which may be the only one. */
    coding.mode = GPUFI_MODE_CONSTANT;
    coding.payload_nbytes = 0;
    coding.flags = 0;
    sum = {0, 0};
    read_seed<T, C>(raw, {GPUFI_TRANSFORM_NONE, false}, coding.seed);
  } else if (state->is_left) {
    job.places[chunk] = {start, 0};
  } else if (coding.payload_nbytes < capacity) {
    coding.mode = GPUFI_MODE_W8;
    coding.transform = state->transform;
    coding.axes = static_cast<uint8_t>(header_axes(grid, state->subset));
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

/* Take the next `nbytes` of the batch, and return where they are; the last run of all tells where
 * the batch ends. By a whole warp. */
template <bool kRanked>
__device__ unsigned long long take_place(const encode_job &job, uint32_t nbytes, int lane) {
  const uint32_t last = job.chunk_count * job.grid.run_count - 1;
  const unsigned long long front = kRanked ? load_relaxed(&job.prefixes[last]) >> kFlagBits : 0;
  const unsigned long long start =
      front + look_back(kRanked ? job.ranked_prefixes : job.prefixes, blockIdx.x, nbytes, lane);
  if (blockIdx.x == last && lane == 0) {
    job.places[job.chunk_count] = {start + nbytes, 0};
  }
  return start;
}

/* By the ninth warp. `tables_nbytes` is what lies between the header and the descriptors. */
template <bool kRanked>
__device__ void place_run(const encode_job &job, run_shared *shared, uint32_t chunk, uint32_t run,
                          uint32_t tables_nbytes, int lane) {
  encode_state *const state = &job.states[chunk];
  const uint32_t front =
      run == 0 ? GPUFI_HEADER_NBYTES + tables_nbytes + job.grid.descriptors_nbytes : 0;
  const uint32_t nbytes = (offset_in_run(*shared, GPUFI_RUN_BLOCKS) + 15) / 16 * 16;
  const unsigned long long start = take_place<kRanked>(job, front + nbytes, lane);
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
                               uint32_t run, uint32_t descriptors_at) {
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
    *reinterpret_cast<uint4 *>(job.encoded + shared.chunk_start + descriptors_at + at) = unit;
    sum.add((descriptors_at + at) / 8, unit);
  }
  return sum;
}

/* The symbol table, behind the header of the chunk at `chunk`. Returns this thread's share of the
 * checksum. */
__device__ chunk_sum write_table(const rank_levels &ranks, const uint16_t *symbols,
                                 uint8_t *chunk) {
  chunk_sum sum = {0, 0};
  const uint32_t at = threadIdx.x * 16, each = ranks.place.nbytes();
  if (at < ranks.padded_nbytes()) {
    uint32_t words[4] = {};
    for (uint32_t k = 0; k < 16; k++) {
      const uint32_t i = (at + k) / each;
      const uint32_t byte = i < ranks.count() ? symbols[i] >> ((at + k) % each * 8) & 0xff : 0;
      words[k / 4] |= byte << (k % 4 * 8);
    }
    const uint4 unit = make_uint4(words[0], words[1], words[2], words[3]);
    *reinterpret_cast<uint4 *>(chunk + GPUFI_HEADER_NBYTES + at) = unit;
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

/* The residuals of the block that begins at value `first`, or its values if there is no subset. */
template <typename T, int C>
__device__ __forceinline__ void load_block(const encode_job &job, uint32_t chunk, uint32_t first,
                                           uint32_t count, int lane,
                                           T values[kLaneGroups][kGroup]) {
  const encode_state &state = job.states[chunk];
  const residual_source<T> from = {
      {job.grid,
       reinterpret_cast<const T *>(job.raw + chunk * job.grid.raw_pitch_nbytes),
       {state.transform, job.swap},
       state.subset}};
  block_residuals<T, C>(from, first, lane, values);
  if (state.offset != 0) {
    subtract_offset<T, C>(values, static_cast<T>(state.offset), count,
                          first == 0 && state.subset != 0, lane);
  }
}

/* The chunks that are ranked, or those that are not. */
template <typename T, int C, bool kRanked>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<T>)
    encode_kernel(const __grid_constant__ encode_job job) {
  uint4 *const run_bytes = dynamic_shared();
  __shared__ run_shared shared;
  __shared__ std::conditional_t<kRanked, rank_tables, uint32_t> tables;
  const chunk_grid &grid = job.grid;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t chunk = blockIdx.x / grid.run_count;
  const uint32_t run = blockIdx.x - chunk * grid.run_count;
  encode_state *const state = &job.states[chunk];
  if (kRanked && *job.ranked_count == 0) {
    return;
  }
  if (state->is_ranked != kRanked) {
    if (warp == kPackWarps) {
      take_place<kRanked>(job, 0, lane);
    }
    return;
  }
  const rank_levels ranks = {{job.symbol_at, job.symbol_bits}, state->levels};
  const uint32_t tables_nbytes = kRanked ? ranks.padded_nbytes() : 0;
  const uint32_t block = run * GPUFI_RUN_BLOCKS + static_cast<uint32_t>(warp);
  std::conditional_t<kRanked, ranked_block<T>, packed_block<T>> packed;
  packed.clear();
  if constexpr (kRanked) {
    fill_tables(ranks, state->symbols, kThreads, &tables);
  }
  if (warp < kPackWarps && block < grid.block_count) {
    const uint32_t first = block * GPUFI_BLOCK_VALUES, left = grid.value_count - first;
    const uint32_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
    T *const list = reinterpret_cast<T *>(run_bytes) + warp * GPUFI_BLOCK_VALUES;
    load_block<T, C>(job, chunk, first, count, lane, packed.values);
    if constexpr (kRanked) {
      packed.measure(tables, count, lane, list);
    } else {
      packed.measure(count, lane, list);
    }
  }
  clear_share(run_bytes, kRunValues * sizeof(T) / 16, warp, lane);
  if (warp < kPackWarps && lane == 0) {
    shared.nbytes[warp] = packed.nbytes;
    shared.descriptors[warp] = packed.descriptor();
  }
  __syncthreads();
  if (warp == kPackWarps) {
    place_run<kRanked>(job, &shared, chunk, run, tables_nbytes, lane);
  } else {
    uint32_t *const words = reinterpret_cast<uint32_t *>(run_bytes);
    if constexpr (kRanked) {
      packed.write(tables, tables.seconds[warp], words, offset_in_run(shared, warp), lane);
    } else {
      packed.write(words, offset_in_run(shared, warp), lane);
    }
  }
  __syncthreads();
  chunk_sum share = write_run(job, shared, run_bytes, run, GPUFI_HEADER_NBYTES + tables_nbytes);
  if (kRanked && run == 0) {
    const chunk_sum more = write_table(ranks, state->symbols, job.encoded + shared.chunk_start);
    share.plain += more.plain;
    share.mixed += more.mixed;
  }
  const chunk_sum sum = block_sum<kPackWarps + 1>(share, shared.partial);
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, sum.plain);
    atomicAdd(&state->mixed, sum.mixed);
    __threadfence();
    if (atomicAdd(&state->done_count, 1u) == grid.run_count - 1) {
      __threadfence();
      finish_chunk<T, C, kRanked>(job, chunk, state);
    }
  }
}

/* --- chunks that do not become smaller --------------------------------------------------------
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
    cudaError_t code = choose_predictions(job, stream);
    if (code == cudaSuccess) {
      code = encode<T>(encode_kernel<T, C, false>);
    }
    if (code == cudaSuccess && job.symbol_bits != 0) {
      code = encode<T>(encode_kernel<T, 1, true>);
    }
    if (code == cudaSuccess) {
      const uint32_t piece_count =
          static_cast<uint32_t>((job.grid.raw_nbytes + kPieceNbytes - 1) / kPieceNbytes);
      code = launch_kernel(raw_kernel, job.chunk_count * piece_count, kRawThreads, 0, stream, job,
                           piece_count);
    }
    return code;
  }

  template <typename T> cudaError_t encode(void (*kernel)(encode_job)) const {
    constexpr int kShared = static_cast<int>(shared_nbytes(sizeof(T)));
    const cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    return code == cudaSuccess ? launch_kernel(kernel, job.chunk_count * job.grid.run_count,
                                               kThreads, kShared, stream, job)
                               : code;
  }
};

/* The scratch in its order; each part's size is a multiple of 16. */
struct encode_scratch {
  size_t costs, states, prefixes, ranked_prefixes, ranked_count;

  encode_scratch(const gpufi_chunks *chunks, const chunk_grid &grid)
      : costs(gpufi_round_up_16(sizeof(sample_cost) * chunks->count)),
        states(gpufi_round_up_16(sizeof(encode_state) * chunks->count)),
        prefixes(gpufi_round_up_16(sizeof(unsigned long long) * grid.run_count * chunks->count)),
        ranked_prefixes(prefixes), ranked_count(16) {}

  size_t total() const {
    return costs + states + prefixes + ranked_prefixes + ranked_count;
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
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    return 0; /* as much as every GPU has */
  }
  return sizeof(run_shared) + sizeof(rank_tables) + shared_nbytes(make_grid(chunks).value_nbytes);
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
  job.prefixes = reinterpret_cast<unsigned long long *>(at += sizes.states);
  job.ranked_prefixes = reinterpret_cast<unsigned long long *>(at += sizes.prefixes);
  job.ranked_count = reinterpret_cast<uint32_t *>(at + sizes.ranked_prefixes);
  const cudaError_t code = cudaMemsetAsync(d_scratch, 0, sizes.total(), stream);
  return code == cudaSuccess ? with_values(job.grid, launch{job, stream}) : code;
}
