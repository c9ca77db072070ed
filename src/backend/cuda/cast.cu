/* Packing with conversion. The twin in C: gpufi_strided_pack, then gpufi_cast_elements. */
#include "backend/cast_impl.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/strided.cuh"

namespace {

struct cast_args {
  gpufi_strided layout;
  gpufi_cast cast;
  const char *base;
  char *packed;
  int64_t first;
  int64_t count;
  uint32_t to_nbytes;
  bool aligned; /* every address of the layout, to its element */
};

__device__ uint64_t load_bits(const char *address, uint32_t nbytes, bool aligned) {
  if (!aligned) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < nbytes; i++) {
      bits |= static_cast<uint64_t>(static_cast<uint8_t>(address[i])) << (8 * i);
    }
    return bits;
  }
  switch (nbytes) {
  case 1:
    return *reinterpret_cast<const uint8_t *>(address);
  case 2:
    return *reinterpret_cast<const uint16_t *>(address);
  case 4:
    return *reinterpret_cast<const uint32_t *>(address);
  default:
    return *reinterpret_cast<const uint64_t *>(address);
  }
}

__device__ void store_bits(char *packed, int64_t index, uint32_t nbytes, uint64_t bits) {
  switch (nbytes) {
  case 1:
    reinterpret_cast<uint8_t *>(packed)[index] = static_cast<uint8_t>(bits);
    break;
  case 2:
    reinterpret_cast<uint16_t *>(packed)[index] = static_cast<uint16_t>(bits);
    break;
  case 4:
    reinterpret_cast<uint32_t *>(packed)[index] = static_cast<uint32_t>(bits);
    break;
  default:
    reinterpret_cast<uint64_t *>(packed)[index] = bits;
  }
}

/* The types are the same for every thread, so that the branches on them do not diverge. */
template <typename Index> __global__ void pack_cast_kernel(const __grid_constant__ cast_args args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count;
       i += step) {
    const int64_t offset = gpufi::strided_offset(args.layout, static_cast<Index>(args.first + i));
    const uint64_t bits = load_bits(args.base + offset, args.layout.element_nbytes, args.aligned);
    store_bits(args.packed, i, args.to_nbytes, gpufi_cast_bits(args.cast, bits));
  }
}

bool is_aligned(const gpufi_strided &layout, const void *base) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(base);
  for (int axis = 0; axis < layout.ndim; axis++) {
    bits |= static_cast<uintptr_t>(layout.strides_nbytes[axis]);
  }
  return bits % layout.element_nbytes == 0;
}

} // namespace

cudaError_t gpufi_cuda_pack_cast(const gpufi_strided *layout, gpufi_cast cast, const void *d_base,
                                 int64_t first, int64_t count, void *d_packed,
                                 cudaStream_t stream) {
  cast_args args = {};
  args.layout = *layout;
  args.cast = cast;
  args.base = static_cast<const char *>(d_base);
  args.packed = static_cast<char *>(d_packed);
  args.first = first;
  args.count = count;
  args.to_nbytes = static_cast<uint32_t>(gpuf_dtype_nbytes(cast.to));
  args.aligned = is_aligned(*layout, d_base);
  const unsigned grid = gpufi::grid_of((count + gpufi::kBlockThreads - 1) / gpufi::kBlockThreads);
  if (first + count <= UINT32_MAX) {
    pack_cast_kernel<uint32_t><<<grid, gpufi::kBlockThreads, 0, stream>>>(args);
  } else {
    pack_cast_kernel<uint64_t><<<grid, gpufi::kBlockThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
