/* Encoding a batch of chunks as filter 32008 has them; codec/bitshuffle.c is the reference.
 *
 * A warp transposes and encodes a block into a staging area of its own; once all sizes are known,
 * they are summed up to places, and the blocks are copied there. */
#include "backend/cuda/codec/arrange.cuh"
#include "backend/cuda/codec/bitshuffle.h"
#include "backend/cuda/codec/lz4.cuh"
#include "backend/cuda/codec/scan.cuh"
#include "backend/cuda/launch.cuh"

extern "C" {
#include "codec/bitshuffle.h"
}

namespace {

using namespace gpufi;

constexpr uint32_t kBlockNbytes = GPUFI_BITSHUFFLE_BLOCK_NBYTES;
constexpr uint32_t kEncodeWarps = 2; /* as many as static shared memory holds */
constexpr uint32_t kSumThreads = 256;
constexpr uint32_t kCopyWarps = 8;

struct bitshuffle_job {
  uint32_t chunk_count;
  uint32_t block_count; /* of a chunk */
  uint32_t block_nbytes, last_block_nbytes;
  uint32_t staging_nbytes;
  uint64_t raw_nbytes, raw_pitch_nbytes;
  uint64_t grouped_nbytes; /* what the blocks hold of the raw bytes; the rest is copied */
  const uint8_t *raw;
  uint8_t *encoded;
  gpufi_chunk_place *places;
  uint8_t *staging;
  uint32_t *sizes;   /* of each block, encoded */
  uint32_t *offsets; /* of each block's size field, from the chunk's start */
};

__device__ inline uint32_t block_nbytes(const bitshuffle_job &job, uint32_t block) {
  return block + 1 < job.block_count ? job.block_nbytes : job.last_block_nbytes;
}

/* --- blocks --- */

/* The bit planes of elements of N bytes; a lane takes eight elements at a time. */
template <int N>
__device__ void shuffle(const uint8_t *elements, uint32_t nbytes, uint8_t *planes, uint32_t lane) {
  const uint32_t plane_nbytes = nbytes / (8 * N);
  for (uint32_t g = lane; g < plane_nbytes; g += kWarp) {
    const uint2 *const from = reinterpret_cast<const uint2 *>(elements) + g * N;
    uint32_t words[2 * N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      const uint2 pair = from[i];
      words[2 * i] = pair.x;
      words[2 * i + 1] = pair.y;
    }
#pragma unroll
    for (int b = 0; b < N; b++) {
      uint64_t x = 0;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const int byte = j * N + b;
        x |= static_cast<uint64_t>(words[byte / 4] >> (byte % 4 * 8) & 255) << (8 * j);
      }
      x = transpose_8x8(x);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        planes[static_cast<uint32_t>(b * 8 + k) * plane_nbytes + g] =
            static_cast<uint8_t>(x >> (8 * k));
      }
    }
  }
}

template <int N>
__global__ void __launch_bounds__(kEncodeWarps *kWarp)
    encode_kernel(const __grid_constant__ bitshuffle_job job) {
  begin_early();
  __shared__ lz4_shared<kBlockNbytes> shared[kEncodeWarps];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t index = blockIdx.x * kEncodeWarps + warp;
  if (index >= job.chunk_count * job.block_count) {
    return;
  }
  const uint32_t chunk = index / job.block_count, block = index - chunk * job.block_count;
  const uint32_t nbytes = block_nbytes(job, block);
  shuffle<N>(job.raw + chunk * job.raw_pitch_nbytes +
                 static_cast<uint64_t>(block) * job.block_nbytes,
             nbytes, reinterpret_cast<uint8_t *>(shared[warp].raw), lane);
  __syncwarp();
  const uint32_t size = lz4_encode(
      &shared[warp], nbytes, job.staging + static_cast<uint64_t>(index) * job.staging_nbytes, lane);
  if (lane == 0) {
    job.sizes[index] = size;
  }
}

/* --- places --- */

/* A thread block takes a chunk: where the chunk's blocks lie in it, and how long it is. */
__global__ void __launch_bounds__(kSumThreads)
    measure_kernel(const __grid_constant__ bitshuffle_job job) {
  begin_early();
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * job.block_count;
  uint64_t end = GPUFI_BITSHUFFLE_HEADER_NBYTES;
  for (uint32_t begin = 0; begin < job.block_count; begin += kSumThreads) {
    const uint32_t block = begin + threadIdx.x;
    const bool counts = block < job.block_count;
    uint64_t total;
    const uint64_t before = sum_before<kSumThreads>(
        counts ? GPUFI_BITSHUFFLE_SIZE_NBYTES + job.sizes[first + block] : 0, &total);
    if (counts) {
      job.offsets[first + block] = static_cast<uint32_t>(end + before);
    }
    end += total;
  }
  if (threadIdx.x == 0) {
    job.places[blockIdx.x].nbytes = end + job.raw_nbytes - job.grouped_nbytes;
  }
}

/* One thread block finds where the chunks lie in the batch. */
__global__ void __launch_bounds__(kSumThreads)
    place_kernel(const __grid_constant__ bitshuffle_job job) {
  begin_early();
  uint64_t end = 0;
  for (uint32_t begin = 0; begin < job.chunk_count; begin += kSumThreads) {
    const uint32_t chunk = begin + threadIdx.x;
    const bool counts = chunk < job.chunk_count;
    uint64_t total;
    const uint64_t before =
        sum_before<kSumThreads>(counts ? gpufi_round_up_16(job.places[chunk].nbytes) : 0, &total);
    if (counts) {
      job.places[chunk].offset = end + before;
    }
    end += total;
  }
  if (threadIdx.x == 0) {
    job.places[job.chunk_count] = {end, 0};
  }
}

/* --- copies --- */

__device__ inline void store_be(uint8_t *at, uint64_t value, uint32_t nbytes) {
  for (uint32_t i = 0; i < nbytes; i++) {
    at[i] = static_cast<uint8_t>(value >> (8 * (nbytes - 1 - i)));
  }
}

__device__ inline void copy_bytes(uint8_t *to, const uint8_t *from, uint64_t nbytes,
                                  uint32_t lane) {
  for (uint64_t i = lane; i < nbytes; i += kWarp) {
    to[i] = from[i];
  }
}

/* A warp copies a block; one more for each chunk copies its header and the bytes of no block. */
__global__ void __launch_bounds__(kCopyWarps *kWarp)
    copy_kernel(const __grid_constant__ bitshuffle_job job) {
  begin_early();
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t index = blockIdx.x * kCopyWarps + threadIdx.x / kWarp;
  const uint32_t chunk = index / (job.block_count + 1);
  const uint32_t block = index - chunk * (job.block_count + 1);
  if (chunk >= job.chunk_count) {
    return;
  }
  const gpufi_chunk_place place = job.places[chunk];
  uint8_t *const to = job.encoded + place.offset;
  if (block < job.block_count) {
    const uint64_t at = static_cast<uint64_t>(chunk) * job.block_count + block;
    uint8_t *const field = to + job.offsets[at];
    if (lane == 0) {
      store_be(field, job.sizes[at], GPUFI_BITSHUFFLE_SIZE_NBYTES);
    }
    copy_bytes(field + GPUFI_BITSHUFFLE_SIZE_NBYTES, job.staging + at * job.staging_nbytes,
               job.sizes[at], lane);
    return;
  }
  const uint64_t rest = job.raw_nbytes - job.grouped_nbytes;
  if (lane == 0) {
    store_be(to, job.raw_nbytes, 8);
    store_be(to + 8, job.block_nbytes, 4);
  }
  copy_bytes(to + place.nbytes - rest, job.raw + chunk * job.raw_pitch_nbytes + job.grouped_nbytes,
             rest, lane);
}

/* --- launching --- */

/* All but the addresses. */
bitshuffle_job plan(const gpufi_chunks *chunks) {
  const size_t element_nbytes = gpufi_chunk_element_nbytes(chunks->shape.dtype);
  bitshuffle_job job = {};
  job.chunk_count = static_cast<uint32_t>(chunks->count);
  job.raw_nbytes = chunks->raw_nbytes;
  job.raw_pitch_nbytes = chunks->raw_pitch_nbytes;
  job.grouped_nbytes = chunks->raw_nbytes / (8 * element_nbytes) * (8 * element_nbytes);
  job.block_nbytes =
      static_cast<uint32_t>(gpufi_bitshuffle_block_elements(element_nbytes) * element_nbytes);
  job.block_count =
      static_cast<uint32_t>((job.grouped_nbytes + job.block_nbytes - 1) / job.block_nbytes);
  job.last_block_nbytes =
      static_cast<uint32_t>(job.grouped_nbytes - (job.block_count - 1ull) * job.block_nbytes);
  job.staging_nbytes = static_cast<uint32_t>(gpufi_round_up_16(gpufi_lz4_bound(job.block_nbytes)));
  return job;
}

/* The sizes of the arrays in the scratch, each a multiple of 16 bytes. */
struct scratch_sizes {
  size_t staging, sizes;

  explicit scratch_sizes(const bitshuffle_job &job) {
    const size_t count = static_cast<size_t>(job.chunk_count) * job.block_count;
    staging = count * job.staging_nbytes;
    sizes = gpufi_round_up_16(count * sizeof(uint32_t));
  }
};

cudaError_t encode_blocks(const bitshuffle_job &job, size_t element_nbytes, cudaStream_t stream) {
  const uint32_t blocks = (job.chunk_count * job.block_count + kEncodeWarps - 1) / kEncodeWarps;
  const auto encode = [&](void (*kernel)(bitshuffle_job)) {
    return launch_early(kernel, blocks, kEncodeWarps * kWarp, 0, stream, job);
  };
  switch (element_nbytes) {
  case 1:
    return encode(encode_kernel<1>);
  case 2:
    return encode(encode_kernel<2>);
  case 4:
    return encode(encode_kernel<4>);
  case 8:
    return encode(encode_kernel<8>);
  default:
    return encode(encode_kernel<16>);
  }
}

} // namespace

size_t gpufi_cuda_bitshuffle_scratch_nbytes(const gpufi_chunks *chunks) {
  const scratch_sizes sizes(plan(chunks));
  return sizes.staging + 2 * sizes.sizes + 16; /* no allocation is empty */
}

cudaError_t gpufi_cuda_bitshuffle(const gpufi_chunks *chunks, const void *d_raw, void *d_encoded,
                                  gpufi_chunk_place *d_places, void *d_scratch,
                                  cudaStream_t stream) {
  bitshuffle_job job = plan(chunks);
  const scratch_sizes sizes(job);
  job.raw = static_cast<const uint8_t *>(d_raw);
  job.encoded = static_cast<uint8_t *>(d_encoded);
  job.places = d_places;
  job.staging = static_cast<uint8_t *>(d_scratch);
  job.sizes = reinterpret_cast<uint32_t *>(job.staging + sizes.staging);
  job.offsets = reinterpret_cast<uint32_t *>(job.staging + sizes.staging + sizes.sizes);
  const uint32_t copies = (job.chunk_count * (job.block_count + 1) + kCopyWarps - 1) / kCopyWarps;
  cudaError_t code = cudaSuccess;
  if (job.block_count > 0) {
    code = encode_blocks(job, gpufi_chunk_element_nbytes(chunks->shape.dtype), stream);
  }
  if (code == cudaSuccess) {
    code = launch_early(measure_kernel, job.chunk_count, kSumThreads, 0, stream, job);
  }
  if (code == cudaSuccess) {
    code = launch_early(place_kernel, 1, kSumThreads, 0, stream, job);
  }
  return code == cudaSuccess ? launch_early(copy_kernel, copies, kCopyWarps * kWarp, 0, stream, job)
                             : code;
}
