/* The checksum of a chunk, and 16 bytes as two words of it. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_CHECKSUM_CUH
#define GPUFI_BACKEND_CUDA_CODEC_CHECKSUM_CUH

#include "backend/cuda/codec/grid.cuh"

namespace gpufi {

/* The halves of 16 bytes, and back. */
__device__ inline uint64_t low_of(uint4 unit) {
  return static_cast<uint64_t>(unit.y) << 32 | unit.x;
}
__device__ inline uint64_t high_of(uint4 unit) {
  return static_cast<uint64_t>(unit.w) << 32 | unit.z;
}
__device__ inline uint4 unit_of(uint64_t low, uint64_t high) {
  return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                    static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
}

/* Sums over 64-bit words at `index` of a chunk: see codec/checksum.c. */
struct chunk_sum {
  uint64_t plain, mixed;

  __device__ void add(uint64_t index, uint64_t word) {
    const uint64_t x = word ^ (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    plain += word;
    mixed += static_cast<uint64_t>(static_cast<uint32_t>(x)) * static_cast<uint32_t>(x >> 32);
  }

  __device__ void add(uint64_t index, uint4 unit) {
    add(index, low_of(unit));
    add(index + 1, high_of(unit));
  }
};

/* The sums of all threads of a thread block, in thread 0. `kWarps` is how many warps it has;
 * `partial` is shared. The thread block is synchronized after its use. */
template <int kWarps>
__device__ inline chunk_sum thread_block_sum(chunk_sum sum, chunk_sum *partial) {
  sum.plain = warp_add(sum.plain);
  sum.mixed = warp_add(sum.mixed);
  if (threadIdx.x % kWarp == 0) {
    partial[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kWarps; w++) {
      sum.plain += partial[w].plain;
      sum.mixed += partial[w].mixed;
    }
  }
  return sum;
}

} // namespace gpufi

#endif
