/* Packing and unpacking with conversion. The twins in C: gpufi_strided_pack, then
 * gpufi_cast_elements; and the reverse. */
#include "backend/cast_impl.h"
#include "backend/cuda/bits.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/pack.h"
#include "backend/cuda/strided.cuh"

namespace {

struct cast_args {
  gpufi_strided layout;
  gpufi_cast cast;
  char *base;
  char *packed;
  int64_t first;
  int64_t count;
  uint32_t packed_nbytes; /* an element's */
  bool aligned;           /* every address of the layout, to its element */
};

/* The types are the same for every thread, so that the branches on them do not diverge. */
template <typename Index, bool Unpack>
__global__ void cast_kernel(const __grid_constant__ cast_args args) {
  const uint32_t element_nbytes = args.layout.element_nbytes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count;
       i += step) {
    char *const element =
        args.base + gpufi::strided_offset(args.layout, static_cast<Index>(args.first + i));
    char *const packed = args.packed + i * args.packed_nbytes;
    if (Unpack) {
      const uint64_t bits = gpufi::load_bits(packed, args.packed_nbytes, true);
      gpufi::store_bits(element, element_nbytes, args.aligned, gpufi_cast_bits(args.cast, bits));
    } else {
      const uint64_t bits = gpufi::load_bits(element, element_nbytes, args.aligned);
      gpufi::store_bits(packed, args.packed_nbytes, true, gpufi_cast_bits(args.cast, bits));
    }
  }
}

bool is_aligned(const gpufi_strided &layout, const void *base) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(base);
  for (int axis = 0; axis < layout.ndim; axis++) {
    bits |= static_cast<uintptr_t>(layout.strides_nbytes[axis]);
  }
  return bits % layout.element_nbytes == 0;
}

template <bool Unpack> cudaError_t launch(const cast_args &args, cudaStream_t stream) {
  const unsigned grid =
      gpufi::grid_of((args.count + gpufi::kThreadsEach - 1) / gpufi::kThreadsEach);
  if (args.first + args.count <= UINT32_MAX) {
    return gpufi::launch_kernel(cast_kernel<uint32_t, Unpack>, grid, gpufi::kThreadsEach, 0, stream,
                                args);
  }
  return gpufi::launch_kernel(cast_kernel<uint64_t, Unpack>, grid, gpufi::kThreadsEach, 0, stream,
                              args);
}

} // namespace

cudaError_t gpufi_cuda_pack_cast(const gpufi_packing *packing, bool unpack, cudaStream_t stream) {
  const gpufi_cast cast = packing->cast;
  cast_args args = {};
  args.layout = packing->layout;
  args.cast = cast;
  args.base = static_cast<char *>(packing->d_base);
  args.packed = static_cast<char *>(packing->d_packed);
  args.first = packing->first;
  args.count = packing->count;
  args.packed_nbytes = static_cast<uint32_t>(gpuf_dtype_nbytes(unpack ? cast.from : cast.to));
  args.aligned = is_aligned(packing->layout, packing->d_base);
  return unpack ? launch<true>(args, stream) : launch<false>(args, stream);
}
