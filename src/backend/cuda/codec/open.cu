/* Reading the headers and block descriptors of a batch, which are untrusted input:
 * codec/header.c and docs/format.md say what has to be checked. The verdict on each chunk. */
#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/decode.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

constexpr int kThreads = 256;

__device__ bool are_possible(const rank_levels &ranks) {
  return ranks.place.bits != 0 && ranks.first_bits() >= 1 &&
         ranks.first_bits() <= GPUFI_FIRST_BITS_MAX &&
         ranks.second_bits() <= GPUFI_SECOND_BITS_MAX && ranks.count() <= 1u << ranks.place.bits;
}

/* Everything about the header that can be known without the payload. One thread. */
__device__ bool read_header(const decode_job &job, const uint8_t *chunk, uint64_t nbytes,
                            decode_state *state) {
  const chunk_grid &grid = job.grid;
  uint64_t words[GPUFI_HEADER_NBYTES / 8];
#pragma unroll
  for (int i = 0; i < GPUFI_HEADER_NBYTES / 8; i++) {
    words[i] = reinterpret_cast<const uint64_t *>(chunk)[i];
  }
  const uint8_t version = words[0] >> 32 & 0xff;
  const uint8_t mode = words[0] >> 48 & 0xff, transform = words[0] >> 56;
  const uint32_t axes = words[1] & 0xff, flags = words[1] >> 16 & 0xff;
  const uint64_t capacity = gpufi_round_up_16(grid.raw_nbytes);
  const bool w8 = mode == GPUFI_MODE_W8, is_ranked = mode == GPUFI_MODE_RANKED;
  const rank_levels ranks = {job.place, static_cast<uint8_t>(words[1] >> 24)};
  bool good = static_cast<uint32_t>(words[0]) == GPUFI_CHUNK_MAGIC && version >= 1 &&
              version <= GPUFI_CHUNK_VERSION && (words[0] >> 40 & 0xff) == grid.dtype &&
              (words[1] >> 8 & 0xff) == grid.ndim && words[1] >> (is_ranked ? 32 : 24) == 0 &&
              words[2] == grid.raw_nbytes && words[3] == nbytes - GPUFI_HEADER_NBYTES &&
              words[3] % GPUFI_CHUNK_ALIGN == 0;
#pragma unroll
  for (int k = 0; k < GPUFI_CODEC_NDIM_MAX / 2; k++) {
    good = good && words[4 + k] == (static_cast<uint64_t>(grid.header_dims[2 * k + 1]) << 32 |
                                    grid.header_dims[2 * k]);
  }
  uint32_t subset = 0;
  for (int k = 0; k < grid.usable_count; k++) {
    subset |= (axes >> grid.axis_of[k] & 1) << k;
  }
  good = good && (mode <= GPUFI_MODE_W8 || (is_ranked && are_possible(ranks))) &&
         transform <= (w8 && grid.is_float ? GPUFI_TRANSFORM_ORDER : GPUFI_TRANSFORM_NONE) &&
         axes == (w8 ? header_axes(grid, subset) : 0) &&
         flags <= ((w8 || is_ranked) && grid.value_nbytes > 1 ? GPUFI_FLAG_BIG_ENDIAN : 0);
  const uint32_t tables_nbytes = is_ranked && good ? ranks.padded_nbytes() : 0;
  const bool has_seed = mode == GPUFI_MODE_CONSTANT || axes != 0;
  const uint32_t seed_nbytes = has_seed ? grid.value_nbytes * grid.component_count : 0;
  const bool has_offset = w8 && !grid.is_float;
  const uint32_t second_nbytes = has_offset        ? grid.value_nbytes
                                 : seed_nbytes > 8 ? seed_nbytes - 8
                                                   : 0;
  good = good && (seed_nbytes >= 8 || words[8] >> (8 * seed_nbytes) == 0) &&
         (second_nbytes >= 8 || words[9] >> (8 * second_nbytes) == 0);
  good =
      good && (mode == GPUFI_MODE_RAW        ? words[3] == capacity
               : mode == GPUFI_MODE_CONSTANT ? words[3] == 0
                                             : words[3] >= tables_nbytes + grid.descriptors_nbytes);
  chunk_sum sum = {0, 0};
#pragma unroll
  for (int i = 0; i < GPUFI_AT_CHECKSUM / 8; i++) {
    sum.add(static_cast<uint64_t>(i), words[i]);
  }
  state->chunk = chunk;
  state->nbytes = nbytes;
  state->mode = mode;
  state->transform = transform;
  state->subset = static_cast<uint8_t>(subset);
  state->levels = ranks.levels;
  state->descriptors_at = GPUFI_HEADER_NBYTES + tables_nbytes;
  state->swap = flags;
  state->seed[0] = words[8];
  state->seed[1] = words[9];
  state->offset = has_offset ? words[9] : 0;
  /* What these kernels do not read: places in a dictionary, values with a base other than
   * themselves, by the transform, the shift or corrections, planes, the codes of ranked chunks
   * since version 2, and matches. */
  const bool is_based = words[1] >> 40 != 0 || flags > GPUFI_FLAG_BIG_ENDIAN;
  state->is_left = mode == GPUFI_MODE_MATCHES ||
                   (w8 && (transform >= GPUFI_TRANSFORM_DICTIONARY || is_based)) ||
                   (is_ranked && (transform == GPUFI_TRANSFORM_DICTIONARY || version > 1));
  state->may_have_ranges = w8 && version > 1;
  state->wanted[0] = words[10];
  state->wanted[1] = words[11];
  state->plain = sum.plain;
  state->mixed = sum.mixed;
  return good;
}

/* The symbol table of a ranked chunk: true, on all threads, if its symbols are right and zeros
 * follow them. */
__device__ bool check_table(const decode_job &job, const decode_state *state, chunk_sum *sum) {
  const rank_levels ranks = {job.place, state->levels};
  const uint32_t at = threadIdx.x * 16, each = ranks.place.nbytes();
  bool good = true;
  if (GPUFI_HEADER_NBYTES + at < state->descriptors_at) {
    const uint8_t *const table = state->chunk + GPUFI_HEADER_NBYTES;
    sum->add((GPUFI_HEADER_NBYTES + at) / 8, *reinterpret_cast<const uint4 *>(table + at));
    for (uint32_t k = at; k < at + 16; k++) {
      const bool is_symbol = k < ranks.table_nbytes();
      /* The symbol's last byte, which alone may have bits beyond its end. */
      const bool is_top = k % each == each - 1;
      good = good && (is_symbol ? !is_top || table[k] >> (ranks.place.bits - 8 * (each - 1)) == 0
                                : table[k] == 0);
    }
  }
  return good;
}

/* Where each run begins, from the sizes of its blocks. True if they end where the chunk ends. The
 * chunk is left to the CPU if some block has two ranges of widths. */
__device__ bool find_runs(const decode_job &job, uint32_t chunk, decode_state *state,
                          chunk_sum *sum) {
  __shared__ uint64_t warp_units[kThreads / kWarp];
  const chunk_grid &grid = job.grid;
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  uint32_t *const offsets = job.run_offsets + static_cast<size_t>(chunk) * (grid.run_count + 1);
  uint64_t base = (state->descriptors_at + grid.descriptors_nbytes) / 16;
  uint32_t padding = 0;
  bool has_ranges = false;
  for (uint32_t first = 0; first < grid.run_count; first += kThreads) {
    const uint32_t run = first + threadIdx.x;
    uint32_t nbytes = 0;
#pragma unroll
    for (int half = 0; half < 2 && run < grid.run_count; half++) {
      const uint32_t at = run * 32 + static_cast<uint32_t>(half) * 16; /* in the table */
      if (at < grid.descriptors_nbytes) {
        const uint4 unit =
            *reinterpret_cast<const uint4 *>(state->chunk + state->descriptors_at + at);
        const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
        sum->add((state->descriptors_at + at) / 8, unit);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
          padding |= at / 4 + k >= grid.block_count ? words[k] : 0;
          has_ranges = has_ranges || (words[k] >> 30 == GPUFI_BLOCK_CODE4 &&
                                      (words[k] >> 27 & GPUFI_FORM_RANGES) != 0);
          nbytes += words[k] & 0x3fff;
        }
      }
    }
    const uint64_t units = (nbytes + 15) / 16;
    const uint64_t ends = warp_scan(units, lane);
    if (lane == kWarp - 1) {
      warp_units[warp] = ends;
    }
    __syncthreads();
    uint64_t before = base, all = base;
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; w++) {
      before += w < warp ? warp_units[w] : 0;
      all += warp_units[w];
    }
    if (run < grid.run_count) {
      offsets[run] = static_cast<uint32_t>(before + ends - units);
    }
    base = all;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    offsets[grid.run_count] = static_cast<uint32_t>(base);
  }
  if (has_ranges && state->may_have_ranges) {
    state->is_left = true;
  }
  return padding == 0 && base == state->nbytes / 16;
}

__global__ void __launch_bounds__(kThreads) open_kernel(const __grid_constant__ decode_job job) {
  __shared__ bool is_good;
  __shared__ chunk_sum partial[kThreads / kWarp];
  const uint32_t chunk = blockIdx.x;
  decode_state *const state = &job.states[chunk];
  if (threadIdx.x == 0) {
    const uint64_t offset = job.places[chunk].offset, nbytes = job.places[chunk].nbytes;
    is_good = offset % GPUFI_CHUNK_ALIGN == 0 && offset <= job.encoded_nbytes &&
              nbytes <= job.encoded_nbytes - offset && nbytes >= GPUFI_HEADER_NBYTES &&
              read_header(job, job.encoded + offset, nbytes, state);
  }
  __syncthreads();
  bool good = is_good;
  if (good && state->mode >= GPUFI_MODE_W8) {
    chunk_sum share = {0, 0};
    const bool is_table = state->mode != GPUFI_MODE_RANKED || check_table(job, state, &share);
    const bool fits = find_runs(job, chunk, state, &share) && is_table;
    const chunk_sum sum = thread_block_sum<kThreads / kWarp>(share, partial);
    if (threadIdx.x == 0) {
      state->plain += sum.plain;
      state->mixed += sum.mixed;
    }
    good = __syncthreads_or(!fits) == 0;
  }
  if (threadIdx.x == 0) {
    state->is_open = good && !state->is_left;
  }
}

__global__ void __launch_bounds__(kThreads) judge_kernel(const __grid_constant__ decode_job job) {
  const uint32_t chunk = blockIdx.x * kThreads + threadIdx.x;
  if (chunk < job.chunk_count) {
    const decode_state &state = job.states[chunk];
    const bool good = state.is_open && state.is_bad == 0 && state.plain == state.wanted[0] &&
                      state.mixed == state.wanted[1];
    job.verdicts[chunk] = state.is_left ? GPUFI_CHUNK_LEFT
                          : good        ? GPUFI_CHUNK_DONE
                                        : GPUFI_CHUNK_REFUSED;
  }
}

} // namespace

namespace gpufi {

cudaError_t open_chunks(const decode_job &job, cudaStream_t stream) {
  return launch_kernel(open_kernel, job.chunk_count, kThreads, 0, stream, job);
}

cudaError_t judge_chunks(const decode_job &job, cudaStream_t stream) {
  return launch_kernel(judge_kernel, (job.chunk_count + kThreads - 1) / kThreads, kThreads, 0,
                       stream, job);
}

} // namespace gpufi
