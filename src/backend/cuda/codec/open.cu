/* Reading the headers and block descriptors of a batch, which are untrusted input:
 * codec/header.c and docs/format.md say what has to be checked. The verdict on each chunk. */
#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/decode.cuh"
#include "backend/cuda/codec/match_blocks.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

constexpr int kThreads = 256;

/* The codes of a ranked chunk, from the header's words; false if there are no such codes. */
__device__ bool read_ranks(const decode_job &job, const uint64_t *words, rank_codes *ranks) {
  const bool is_first = (words[0] >> 32 & 0xff) == 1; /* version */
  const uint8_t levels = words[1] >> 24 & 0xff;
  *ranks = {};
  if (is_first) {
    ranks->place = job.place;
    ranks->levels = levels;
    return ranks->place.bits != 0 && words[1] >> 32 == 0 && ranks->first_bits() >= 1 &&
           ranks->first_bits() <= GPUFI_FIRST_BITS_MAX &&
           ranks->second_bits() <= GPUFI_SECOND_BITS_MAX &&
           ranks->count() <= 1u << ranks->place.bits;
  }
  const uint32_t entries = words[1] >> 32 & 0xff, reserved = words[1] >> 56;
  ranks->place = {static_cast<uint8_t>(words[1] >> 48), static_cast<uint8_t>(levels >> 4),
                  static_cast<uint8_t>(words[1] >> 40)};
  const symbol_place &place = ranks->place;
  uint8_t leaves[16];
  memcpy(leaves, words + GPUFI_AT_SEED / 8, sizeof(leaves));
  return entries == 0 && reserved == 0 && place.bits >= 1 && place.bits <= GPUFI_SYMBOL_BITS_MAX &&
         place.at + place.bits <= 8 * job.grid.value_nbytes && place.shift <= place.at &&
         ranks->set_tree(levels & 15, leaves) && ranks->count() <= 1u << place.bits;
}

/* The most bytes of a seed. */
__device__ uint32_t seed_nbytes_max(const chunk_grid &grid) {
  return grid.value_nbytes * grid.component_count;
}

/* What is read of the header's coding fields. */
struct coding_fields {
  uint8_t version, mode, transform, flags, shift;
  bool planes_fit; /* the shape */
};

/* Whether a chunk of this mode and dtype may have the transform, the shift and the flags, of those
 * that are read here. */
__device__ bool are_possible(const chunk_grid &grid, const coding_fields &fields) {
  uint32_t flags =
      grid.value_nbytes > 1 && fields.mode >= GPUFI_MODE_W8 ? GPUFI_FLAG_BIG_ENDIAN : 0;
  flags |= fields.version > 1 && fields.mode >= GPUFI_MODE_W8 && fields.planes_fit
               ? GPUFI_FLAG_PLANES
               : 0;
  if (fields.mode != GPUFI_MODE_W8 || fields.version == 1 || !grid.is_float) {
    const bool is_predicted = fields.mode == GPUFI_MODE_W8 || fields.mode == GPUFI_MODE_MATCHES;
    const uint32_t last =
        is_predicted && grid.is_float ? GPUFI_TRANSFORM_ORDER : GPUFI_TRANSFORM_NONE;
    return fields.transform <= last && (fields.flags & ~flags) == 0 &&
           (fields.shift == 0 || fields.mode == GPUFI_MODE_RANKED);
  }
  const bool is_number = gpufi_transform_has_parameters(fields.transform);
  const bool has_fill = (fields.flags & GPUFI_FLAG_FILL) != 0;
  const bool is_wide = grid.value_nbytes == 4 ||
                       (grid.value_nbytes == 8 && fields.transform != GPUFI_TRANSFORM_SINGLE);
  if (grid.value_nbytes > 1) {
    flags |= fields.shift != 0 || is_number || has_fill ? GPUFI_FLAG_CORRECTIONS : 0;
    flags |= fields.flags & GPUFI_FLAG_CORRECTIONS ? GPUFI_FLAG_FILL : 0;
  }
  return (fields.transform <= GPUFI_TRANSFORM_ORDER || (is_number && is_wide)) &&
         (fields.shift == 0 || (!is_number && fields.shift <= 8 * grid.value_nbytes - 2)) &&
         (fields.flags & ~flags) == 0;
}

/* Of a seed, as of every value, the low `shift` bits are 0. */
__device__ bool keeps_shift(const chunk_grid &grid, const uint64_t seed[2], uint32_t shift) {
  const uint32_t bits = 8 * grid.value_nbytes;
  const uint64_t low = (UINT64_C(1) << shift) - 1; /* a shift is below 63 */
  bool good = (seed[0] & low) == 0;
  if (grid.component_count == 2) {
    good = good && ((bits == 64 ? seed[1] : seed[0] >> bits % 64) & low) == 0;
  }
  return good;
}

/* Everything about the header that can be known without the payload. One thread. */
__device__ bool read_header(const decode_job &job, const chunk_grid &planes, const uint8_t *chunk,
                            uint64_t nbytes, decode_state *state) {
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
  const bool is_matches = version > 1 && mode == GPUFI_MODE_MATCHES;
  rank_codes ranks = {};
  const coding_fields fields = {version,
                                mode,
                                transform,
                                static_cast<uint8_t>(flags),
                                static_cast<uint8_t>(words[1] >> 40),
                                planes.value_count != 0};
  const bool has_planes = fields.planes_fit && (flags & GPUFI_FLAG_PLANES) != 0;
  const chunk_grid &coded = has_planes ? planes : grid;
  const uint64_t used = UINT64_C(0xff) << 40 | (is_matches ? 0xff000000 : 0); /* shift, levels */
  const uint64_t unused = is_ranked ? 0 : (words[1] & ~used) >> 24;
  bool good = static_cast<uint32_t>(words[0]) == GPUFI_CHUNK_MAGIC && version >= 1 &&
              version <= GPUFI_CHUNK_VERSION && (words[0] >> 40 & 0xff) == grid.dtype &&
              (words[1] >> 8 & 0xff) == grid.ndim && unused == 0 && words[2] == grid.raw_nbytes &&
              words[3] == nbytes - GPUFI_HEADER_NBYTES && words[3] % GPUFI_CHUNK_ALIGN == 0;
#pragma unroll
  for (int k = 0; k < GPUFI_CODEC_NDIM_MAX / 2; k++) {
    good = good && words[4 + k] == (static_cast<uint64_t>(grid.header_dims[2 * k + 1]) << 32 |
                                    grid.header_dims[2 * k]);
  }
  uint32_t subset = 0;
  for (int k = 0; k < coded.usable_count; k++) {
    subset |= (axes >> coded.axis_of[k] & 1) << k;
  }
  good = good &&
         (mode <= GPUFI_MODE_W8 || (is_ranked && read_ranks(job, words, &ranks)) ||
          (is_matches && read_arrangement(words[1] >> 24 & 0xff, state))) &&
         are_possible(grid, fields) && axes == (w8 || is_matches ? header_axes(coded, subset) : 0);
  const bool is_number = gpufi_transform_has_parameters(transform) != 0;
  const bool has_fill = (flags & GPUFI_FLAG_FILL) != 0;
  const uint32_t parameters_nbytes =
      (is_number ? GPUFI_PARAMETERS_NBYTES : 0) + (has_fill ? GPUFI_FILL_NBYTES : 0);
  const uint32_t tables_nbytes =
      is_ranked && good ? ranks.padded_nbytes()
                        : static_cast<uint32_t>(gpufi_round_up_16(w8 ? parameters_nbytes : 0));
  const uint32_t stream_count = w8 && flags & GPUFI_FLAG_CORRECTIONS ? 2 : 1;
  const size_t block_count =
      is_matches && good ? match_block_count(grid, state->log2) : stream_count * grid.block_count;
  const uint64_t descriptors_nbytes = gpufi_round_up_16(4 * block_count);
  const bool has_seed = mode == GPUFI_MODE_CONSTANT || axes != 0;
  const uint32_t seed_nbytes = has_seed         ? grid.value_nbytes * grid.component_count
                               : ranks.has_tree ? ranks.depth()
                                                : 0;
  const bool has_offset =
      (w8 || is_matches) && (!grid.is_float || (is_number && seed_nbytes_max(grid) <= 8));
  const uint32_t second_nbytes = has_offset        ? grid.value_nbytes
                                 : seed_nbytes > 8 ? seed_nbytes - 8
                                                   : 0;
  good = good && (seed_nbytes >= 8 || words[8] >> (8 * seed_nbytes) == 0) &&
         (second_nbytes >= 8 || words[9] >> (8 * second_nbytes) == 0);
  good = good && (mode == GPUFI_MODE_RAW        ? words[3] == capacity
                  : mode == GPUFI_MODE_CONSTANT ? words[3] == 0
                                                : words[3] >= tables_nbytes + descriptors_nbytes);
  good = good && keeps_shift(grid, words + 8, w8 ? fields.shift : 0);
  chunk_sum sum = {0, 0};
#pragma unroll
  for (int i = 0; i < GPUFI_AT_CHECKSUM / 8; i++) {
    sum.add(static_cast<uint64_t>(i), words[i]);
  }
  state->chunk = chunk;
  state->nbytes = nbytes;
  state->mode = mode;
  state->is_based = w8 && (fields.shift != 0 || is_number || has_fill);
  state->transform = state->is_based ? static_cast<uint8_t>(GPUFI_TRANSFORM_NONE) : transform;
  state->has_planes = has_planes;
  state->numbers.transform = transform;
  state->numbers.shift = w8 ? fields.shift : 0;
  state->numbers.has_fill = w8 && has_fill;
  state->stream_count = stream_count;
  state->descriptors_nbytes = static_cast<uint32_t>(descriptors_nbytes);
  state->subset = static_cast<uint8_t>(subset);
  state->ranks = ranks;
  state->descriptors_at = GPUFI_HEADER_NBYTES + tables_nbytes;
  state->base_swap = (flags & GPUFI_FLAG_BIG_ENDIAN) != 0;
  state->swap = state->is_based ? 0 : flags & GPUFI_FLAG_BIG_ENDIAN;
  state->seed[0] = words[8];
  state->seed[1] = words[9];
  state->offset = has_offset ? words[9] : 0;
  /* What these kernels do not read: places in a dictionary. */
  state->is_left = transform == GPUFI_TRANSFORM_DICTIONARY;
  state->may_have_ranges = version > 1;
  state->has_strips = job.may_have_strips && w8 && !state->is_based && stream_count == 1 &&
                      !has_planes && !state->is_left && state->swap == 0 &&
                      strips_undo(grid, subset);
  state->wanted[0] = words[10];
  state->wanted[1] = words[11];
  state->plain = sum.plain;
  state->mixed = sum.mixed;
  return good;
}

/* The parameters and the fill: true if they are in their range, and zeros follow them. One thread.
 */
__device__ bool read_parameters(const chunk_grid &grid, decode_state *state, chunk_sum *sum) {
  const uint64_t *const words =
      reinterpret_cast<const uint64_t *>(state->chunk) + GPUFI_HEADER_NBYTES / 8;
  const uint32_t count = (state->descriptors_at - GPUFI_HEADER_NBYTES) / 8;
  gpufi_numbers *const numbers = &state->numbers;
  const bool is_number = gpufi_transform_has_parameters(numbers->transform) != 0;
  const uint32_t fill_at = is_number ? GPUFI_PARAMETERS_NBYTES / 8 : 0;
  bool good = true;
  for (uint32_t k = 0; k < count; k++) {
    sum->add(GPUFI_HEADER_NBYTES / 8 + k, words[k]);
    good = good && (k < fill_at + (numbers->has_fill ? 1 : 0) || words[k] == 0);
  }
  if (is_number) {
    numbers->a = gpufi_double_of_bits(words[0]);
    numbers->b = gpufi_double_of_bits(words[1]);
    good = good && gpufi_parameters_are_good(numbers->transform, numbers->a, numbers->b);
  }
  if (numbers->has_fill) {
    numbers->fill = words[fill_at];
    good = good && numbers->fill <= UINT64_MAX >> (64 - 8 * grid.value_nbytes);
  }
  return good;
}

/* The symbol table of a ranked chunk: true, on all threads, if its symbols are right and zeros
 * follow them. */
__device__ bool check_table(const decode_state *state, chunk_sum *sum) {
  const rank_codes &ranks = state->ranks;
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

/* What the descriptors of a chunk show besides their sizes. */
struct descriptor_signs {
  uint32_t padding; /* what stands in it */
  bool has_ranges;

  __device__ void look_at(uint32_t word, bool is_padding) {
    padding |= is_padding ? word : 0;
    has_ranges =
        has_ranges || (word >> 30 == GPUFI_BLOCK_CODE4 && (word >> 27 & GPUFI_FORM_RANGES) != 0);
  }
};

/* Add the descriptors to the sum, and look at them. All threads. */
__device__ void sum_descriptors(const decode_job &job, const decode_state *state,
                                descriptor_signs *signs, chunk_sum *sum) {
  const uint32_t count = state->stream_count * job.grid.block_count;
  for (uint32_t u = threadIdx.x; u < state->descriptors_nbytes / 16; u += kThreads) {
    const uint32_t at = state->descriptors_at + 16 * u;
    const uint4 unit = *reinterpret_cast<const uint4 *>(state->chunk + at);
    const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    sum->add(at / 8, unit);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
      signs->look_at(words[k], 4 * u + k >= count);
    }
  }
}

/* The bytes of a run's blocks, of all streams. */
__device__ uint32_t run_nbytes(const decode_job &job, const decode_state *state, uint32_t run) {
  const uint32_t *const table =
      reinterpret_cast<const uint32_t *>(state->chunk + state->descriptors_at);
  uint32_t nbytes = 0;
  for (uint32_t b = run * GPUFI_RUN_BLOCKS;
       b < (run + 1) * GPUFI_RUN_BLOCKS && b < job.grid.block_count; b++) {
    nbytes += table[b] & 0x3fff;
    nbytes += state->stream_count > 1 ? table[job.grid.block_count + b] & 0x3fff : 0;
  }
  return nbytes;
}

/* Where each run begins, from the sizes of its blocks. True if they end where the chunk ends, and
 * no block of version 1 has two ranges of widths. */
__device__ bool find_runs(const decode_job &job, uint32_t chunk, const decode_state *state,
                          chunk_sum *sum) {
  const chunk_grid &grid = job.grid;
  uint32_t *const offsets = job.run_offsets + static_cast<size_t>(chunk) * (grid.run_count + 1);
  uint64_t base = (state->descriptors_at + state->descriptors_nbytes) / 16;
  descriptor_signs signs = {0, false};
  sum_descriptors(job, state, &signs, sum);
  for (uint32_t first = 0; first < grid.run_count; first += kThreads) {
    const uint32_t run = first + threadIdx.x;
    const uint32_t nbytes = run < grid.run_count ? run_nbytes(job, state, run) : 0;
    uint64_t units;
    const uint64_t before = sum_before<kThreads>((nbytes + 15) / 16, &units);
    if (run < grid.run_count) {
      offsets[run] = static_cast<uint32_t>(base + before);
    }
    base += units;
  }
  if (threadIdx.x == 0) {
    offsets[grid.run_count] = static_cast<uint32_t>(base);
  }
  return signs.padding == 0 && (!signs.has_ranges || state->may_have_ranges) &&
         base == state->nbytes / 16;
}

/* Count a chunk for the launches that it is for. */
__device__ void count_chunk(const decode_state &state, decode_counts *counts) {
  const bool is_matches = state.mode == GPUFI_MODE_MATCHES;
  atomicAdd(&counts->all, 1u);
  if (state.is_general(state.has_planes)) {
    atomicAdd(&counts->general, 1u);
  }
  if (state.is_based) {
    atomicAdd(&counts->based, 1u);
  }
  if (state.mode == GPUFI_MODE_RANKED) {
    atomicAdd(&counts->ranked, 1u);
  }
  if (is_matches) {
    atomicAdd(&counts->matches, 1u);
  }
  if (is_matches && state.subset != 0) {
    atomicAdd(&counts->predicted, 1u);
  }
}

/* `planes` has no values where they do not fit the shape. */
__global__ void __launch_bounds__(kThreads)
    open_kernel(const __grid_constant__ decode_job job, const __grid_constant__ chunk_grid planes) {
  begin_early();
  __shared__ bool is_good;
  __shared__ chunk_sum partial[kThreads / kWarp];
  const uint32_t chunk = blockIdx.x;
  decode_state *const state = &job.states[chunk];
  if (threadIdx.x == 0) {
    const uint64_t offset = job.places[chunk].offset, nbytes = job.places[chunk].nbytes;
    is_good = offset % GPUFI_CHUNK_ALIGN == 0 && offset <= job.encoded_nbytes &&
              nbytes <= job.encoded_nbytes - offset && nbytes >= GPUFI_HEADER_NBYTES &&
              read_header(job, planes, job.encoded + offset, nbytes, state);
  }
  __syncthreads();
  bool good = is_good;
  if (good && state->mode >= GPUFI_MODE_W8) {
    chunk_sum share = {0, 0};
    bool is_table = state->mode != GPUFI_MODE_RANKED || check_table(state, &share);
    if (state->is_based && threadIdx.x == 0) {
      is_table = read_parameters(job.grid, state, &share);
    }
    const bool fits = state->mode == GPUFI_MODE_MATCHES
                          ? find_blocks<kThreads>(job, chunk, state, &share)
                          : find_runs(job, chunk, state, &share) && is_table;
    const chunk_sum sum = thread_block_sum<kThreads / kWarp>(share, partial);
    if (threadIdx.x == 0) {
      state->plain += sum.plain;
      state->mixed += sum.mixed;
    }
    good = __syncthreads_or(!fits) == 0;
  }
  if (threadIdx.x == 0) {
    state->is_open = good && !state->is_left;
    if (state->is_open) {
      count_chunk(*state, job.counts + (state->has_planes ? 1 : 0));
    }
  }
}

__global__ void __launch_bounds__(kThreads) judge_kernel(const __grid_constant__ decode_job job) {
  begin_early();
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

cudaError_t open_chunks(const decode_job &job, const chunk_grid *planes, cudaStream_t stream) {
  return launch_early(open_kernel, job.chunk_count, kThreads, 0, stream, job,
                      planes ? *planes : chunk_grid{});
}

cudaError_t judge_chunks(const decode_job &job, cudaStream_t stream) {
  return launch_early(judge_kernel, (job.chunk_count + kThreads - 1) / kThreads, kThreads, 0,
                      stream, job);
}

} // namespace gpufi
