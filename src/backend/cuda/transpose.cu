/* Packing a layout whose last axis is strided while another is contiguous: tiles pass through
 * shared memory, so that both the strided side and the packed side are accessed in runs. The twin
 * in C is the same as that of the other packing kernels: strided.c. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/pack.h"
#include "backend/cuda/strided.cuh"

namespace {

using gpufi::bytes16;

constexpr int kTile = 32; /* edge of a tile, in elements; a warp is one side of it */
constexpr int kTileRows = 8;

struct transpose_args {
  gpufi_strided layout;
  gpufi_tiles tiles;
  int64_t middle_count; /* elements of the axes between the contiguous one and the last */
  int64_t column_tiles;
  int64_t tile_count;
  char *base;
  char *packed;
};

/* A block takes tiles of kTile slices, which are neighbours in the strided memory, and kTile
 * columns (indices along the last axis), which are neighbours in the packed memory. */
template <typename Element, bool Unpack>
__global__ void transpose_kernel(const __grid_constant__ transpose_args args) {
  __shared__ Element tile[kTile][kTile + 1];
  const gpufi_strided &layout = args.layout;
  const gpufi_tiles &tiles = args.tiles;
  const int last = layout.ndim - 1;
  const int64_t columns = layout.shape[last];
  const int64_t stride = layout.strides_nbytes[last];
  Element *packed = reinterpret_cast<Element *>(args.packed);
  for (int64_t at = blockIdx.x; at < args.tile_count; at += gridDim.x) {
    const int64_t first_column = at % args.column_tiles * kTile;
    const int64_t rest = at / args.column_tiles;
    const int64_t middle = rest % args.middle_count;
    const int64_t first_slice = rest / args.middle_count * kTile;
    /* In the strided memory this thread's slice goes with threadIdx.x. */
    const int64_t slice = first_slice + threadIdx.x;
    char *strided =
        args.base + gpufi::offset_within<uint64_t>(layout, tiles.axis + 1, last, middle);
    if (slice < tiles.slice_count) {
      strided +=
          gpufi::offset_within<uint64_t>(layout, 0, tiles.axis + 1, tiles.first_slice + slice);
    }
    /* In the packed memory its column does. */
    const int64_t column = first_column + threadIdx.x;
    Element *row = packed + middle * columns + column;
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
      if (Unpack && first_slice + y < tiles.slice_count && column < columns) {
        tile[threadIdx.x][y] = row[(first_slice + y) * tiles.slice_elements];
      }
      if (!Unpack && slice < tiles.slice_count && first_column + y < columns) {
        tile[y][threadIdx.x] =
            *reinterpret_cast<const Element *>(strided + (first_column + y) * stride);
      }
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
      if (Unpack && slice < tiles.slice_count && first_column + y < columns) {
        *reinterpret_cast<Element *>(strided + (first_column + y) * stride) = tile[y][threadIdx.x];
      }
      if (!Unpack && first_slice + y < tiles.slice_count && column < columns) {
        row[(first_slice + y) * tiles.slice_elements] = tile[threadIdx.x][y];
      }
    }
    __syncthreads();
  }
}

template <typename Element>
cudaError_t launch(const transpose_args &args, bool unpack, cudaStream_t stream) {
  const dim3 block(kTile, kTileRows);
  const unsigned grid = gpufi::grid_of(args.tile_count);
  if (unpack) {
    transpose_kernel<Element, true><<<grid, block, 0, stream>>>(args);
  } else {
    transpose_kernel<Element, false><<<grid, block, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

} // namespace

cudaError_t gpufi_cuda_transpose(const gpufi_strided *layout, const gpufi_tiles *tiles,
                                 void *d_base, void *d_packed, bool unpack, cudaStream_t stream) {
  const int64_t columns = layout->shape[layout->ndim - 1];
  transpose_args args = {};
  args.layout = *layout;
  args.tiles = *tiles;
  args.middle_count = tiles->slice_elements / columns;
  args.column_tiles = (columns + kTile - 1) / kTile;
  args.tile_count =
      (tiles->slice_count + kTile - 1) / kTile * args.middle_count * args.column_tiles;
  args.base = static_cast<char *>(d_base);
  args.packed = static_cast<char *>(d_packed);
  switch (layout->element_nbytes) {
  case 1:
    return launch<uint8_t>(args, unpack, stream);
  case 2:
    return launch<uint16_t>(args, unpack, stream);
  case 4:
    return launch<uint32_t>(args, unpack, stream);
  case 8:
    return launch<uint64_t>(args, unpack, stream);
  default:
    return launch<bytes16>(args, unpack, stream);
  }
}
