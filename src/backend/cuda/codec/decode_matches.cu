/* Decoding the blocks of matches; codec/matches.c and codec/lz4.c are the references. A warp takes
 * a block; the first one of each chunk is decoded by a launch of its own, before all others, whose
 * matches may begin in it. */
#include "backend/cuda/codec/arrange.cuh"
#include "backend/cuda/codec/match_blocks.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

constexpr uint32_t kWarps = 2; /* of a thread block: as many as static shared memory holds */

/* The encoded bytes of a block, which are taken one after the other, by all lanes the same. */
struct lz4_input {
  const uint8_t *bytes;
  uint32_t at, nbytes;

  __device__ uint32_t left() const {
    return nbytes - at;
  }

  /* Add its length bytes to a length whose nibble is 15; false if they run past the end. */
  __device__ bool add_length(uint32_t *length) {
    uint32_t byte = 255;
    while (byte == 255) {
      if (at == nbytes) {
        return false;
      }
      byte = bytes[at++];
      *length += byte; /* of at most 2^14 bytes */
    }
    return true;
  }
};

/* What is decoded so far of a block, in shared memory, and what comes before it. */
struct lz4_output {
  uint8_t *bytes;
  uint32_t at, nbytes;
  const uint8_t *before; /* the first block, or none */
  uint32_t before_nbytes;
  uint32_t lane;

  __device__ uint32_t left() const {
    return nbytes - at;
  }

  __device__ void append(const uint8_t *from, uint32_t count) {
    for (uint32_t i = lane; i < count; i += kWarp) {
      bytes[at + i] = from[i];
    }
    at += count;
    __syncwarp();
  }

  /* Copy from `offset` back on. Where that is less than `count`, the bytes between are repeated. */
  __device__ void repeat(uint32_t offset, uint32_t count) {
    for (uint32_t i = lane; i < count; i += kWarp) {
      const uint32_t back = offset - (offset < count ? i % offset : i); /* at least 1 */
      bytes[at + i] = back <= at ? bytes[at - back] : before[before_nbytes + at - back];
    }
    at += count;
    __syncwarp();
  }
};

/* One sequence. False if it is not right. All lanes. */
__device__ __forceinline__ bool take_sequence(lz4_input *in, lz4_output *out) {
  const uint32_t token = in->bytes[in->at++];
  uint32_t literals = token >> 4, length = token & 15;
  if ((literals == 15 && !in->add_length(&literals)) || literals > in->left() ||
      literals > out->left()) {
    return false;
  }
  out->append(in->bytes + in->at, literals);
  in->at += literals;
  if (in->left() == 0) { /* the last one has no match */
    return true;
  }
  if (in->left() < 2) {
    return false;
  }
  const uint32_t offset = in->bytes[in->at] | static_cast<uint32_t>(in->bytes[in->at + 1]) << 8;
  in->at += 2;
  if (length == 15 && !in->add_length(&length)) {
    return false;
  }
  length += GPUFI_LZ4_MATCH_NBYTES_MIN;
  if (offset == 0 || offset > out->at + out->before_nbytes || length > out->left() ||
      in->left() == 0) {
    return false;
  }
  out->repeat(offset, length);
  return true;
}

/* The residuals of a block, which begins at value `first`, to their place; values, if nothing is
 * predicted. All lanes. */
template <typename T>
__device__ __forceinline__ void store_residuals(const decode_state &state, const uint8_t *arranged,
                                                uint32_t total, T *to, uint32_t lane) {
  for (uint32_t group = lane; group * kGroup < total; group += kWarp) {
    T v[kGroup];
    load_arranged(arranged, state.arrangement, total, group, v);
    if (state.subset == 0) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        v[t] = static_cast<T>(v[t] + static_cast<T>(state.offset));
      }
      restore_values<T, kGroup>(v, {state.transform, state.swap != 0});
    }
    if (group * kGroup + kGroup <= total) {
      store_group(to, group * kGroup, v);
    } else {
#pragma unroll
      for (uint32_t t = 0; t < kGroup; t++) {
        if (group * kGroup + t < total) {
          to[group * kGroup + t] = v[t];
        }
      }
    }
  }
}

/* Add the units of 16 bytes that begin in a block, which is at bytes [begin, end) of the chunk, to
 * the chunk's sum. All lanes. */
__device__ void sum_block(decode_state *state, uint64_t begin, uint64_t end, uint32_t lane) {
  chunk_sum sum = {0, 0};
  for (uint64_t u = (begin + 15) / 16 + lane; 16 * u < end; u += kWarp) {
    sum.add(2 * u, reinterpret_cast<const uint4 *>(state->chunk)[u]);
  }
  sum.plain = warp_add(sum.plain);
  sum.mixed = warp_add(sum.mixed);
  if (lane == 0) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
  }
}

/* One block, by way of `arranged`, which is shared memory. All lanes. */
template <typename T>
__device__ void decode_block(const decode_job &job, uint32_t chunk, uint32_t block,
                             uint8_t *arranged, uint32_t lane) {
  decode_state *const state = &job.states[chunk];
  const uint32_t *const offsets =
      job.block_offsets + static_cast<size_t>(chunk) * job.block_offset_count + block;
  const uint64_t blocks_at = state->descriptors_at + state->descriptors_nbytes;
  const uint8_t *const encoded = state->chunk + blocks_at + offsets[0];
  const uint32_t encoded_nbytes = offsets[1] - offsets[0];
  const uint32_t nbytes = arranged_nbytes(job.grid, block, state->log2);
  uint8_t *const first = job.first_blocks + static_cast<uint64_t>(chunk) * GPUFI_MATCHES_NBYTES_MAX;
  lz4_input in = {encoded, 0, encoded_nbytes};
  lz4_output out = {arranged, 0, nbytes, first, block != 0 ? 1u << state->log2 : 0, lane};
  bool good = true;
  sum_block(state, blocks_at + offsets[0], blocks_at + offsets[1], lane);
  if (encoded_nbytes == nbytes) {
    out.append(encoded, nbytes);
  } else {
    while (good && in.left() != 0) {
      good = take_sequence(&in, &out);
    }
    good = good && out.left() == 0;
  }
  if (!good) {
    if (lane == 0) {
      state->is_bad = 1;
    }
    return;
  }
  if (block == 0) {
    for (uint32_t i = lane; i < (nbytes + 15) / 16; i += kWarp) {
      reinterpret_cast<uint4 *>(first)[i] = reinterpret_cast<const uint4 *>(arranged)[i];
    }
  }
  T *const raw = reinterpret_cast<T *>(job.raw + chunk * job.grid.raw_pitch_nbytes);
  store_residuals(*state, arranged, nbytes / static_cast<uint32_t>(sizeof(T)),
                  raw + (static_cast<uint64_t>(block) << state->log2) / sizeof(T), lane);
  __syncwarp(); /* the arranged bytes are read */
}

/* A warp takes a block of the largest size, or the smaller ones in its place; but with kFirst only
 * the first block of a chunk, else all others. */
template <typename T, bool kFirst>
__global__ void __launch_bounds__(kWarps *kWarp)
    matches_kernel(const __grid_constant__ decode_job job, uint32_t warps_of_chunk) {
  begin_early();
  __shared__ uint4 arranged[kWarps][GPUFI_MATCHES_NBYTES_MAX / sizeof(uint4)];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t warps = job.counts->matches != 0 ? job.chunk_count * warps_of_chunk : 0;
  for (uint32_t index = blockIdx.x * kWarps + warp; index < warps; index += gridDim.x * kWarps) {
    const uint32_t chunk = index / warps_of_chunk;
    const decode_state &state = job.states[chunk];
    if (!state.is_of(job.has_planes) || state.mode != GPUFI_MODE_MATCHES) {
      continue;
    }
    const uint32_t log2 = GPUFI_MATCHES_LOG2_MAX - state.log2;
    const uint32_t begin = (index - chunk * warps_of_chunk) << log2;
    const uint32_t count = match_block_count(job.grid, state.log2);
    const uint32_t end = kFirst ? 1 : begin + (1u << log2);
    for (uint32_t block = kFirst || begin != 0 ? begin : 1; block < end && block < count; block++) {
      decode_block<T>(job, chunk, block, reinterpret_cast<uint8_t *>(arranged[warp]), lane);
    }
  }
}

struct launch {
  const decode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    const uint32_t blocks = match_block_count(job.grid, GPUFI_MATCHES_LOG2_MAX);
    const cudaError_t code = start(matches_kernel<T, true>, 1);
    return code == cudaSuccess ? start(matches_kernel<T, false>, blocks) : code;
  }

  cudaError_t start(void (*kernel)(decode_job, uint32_t), uint32_t warps_of_chunk) const {
    const uint64_t warps = static_cast<uint64_t>(job.chunk_count) * warps_of_chunk;
    return launch_early(kernel, rare_thread_blocks((warps + kWarps - 1) / kWarps), kWarps * kWarp,
                        0, stream, job, warps_of_chunk);
  }
};

} // namespace

namespace gpufi {

cudaError_t decode_match_blocks(const decode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
