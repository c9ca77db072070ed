/* Packing a layout whose last axis is strided while another is contiguous: tiles pass through
 * shared memory, so that neighbouring threads access neighbouring addresses on both sides. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/pack.h"
#include "backend/cuda/strided.cuh"

namespace {

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

/* A thread block takes tiles of kTile slices, which are neighbours in the strided memory, and kTile
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
    /* Neighbouring threads access neighbouring slices of the strided memory ... */
    const int64_t slice = first_slice + threadIdx.x;
    char *strided =
        args.base + gpufi::offset_within<uint64_t>(layout, tiles.axis + 1, last, middle);
    if (slice < tiles.slice_count) {
      strided +=
          gpufi::offset_within<uint64_t>(layout, 0, tiles.axis + 1, tiles.first_slice + slice);
    }
    /* ... and neighbouring columns of the packed memory. */
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

struct launch {
  const transpose_args &args;
  bool unpack;
  cudaStream_t stream;

  template <typename Element> cudaError_t run() const {
    const dim3 threads(kTile, kTileRows);
    const unsigned grid = gpufi::grid_of(args.tile_count);
    const auto kernel = unpack ? transpose_kernel<Element, true> : transpose_kernel<Element, false>;
    return gpufi::launch_kernel(kernel, grid, threads, 0, stream, args);
  }
};

} // namespace

cudaError_t gpufi_cuda_transpose(const gpufi_packing *packing, const gpufi_tiles *tiles,
                                 bool unpack, cudaStream_t stream) {
  const gpufi_strided &layout = packing->layout;
  const int64_t columns = layout.shape[layout.ndim - 1];
  transpose_args args = {};
  args.layout = layout;
  args.tiles = *tiles;
  args.middle_count = tiles->slice_elements / columns;
  args.column_tiles = (columns + kTile - 1) / kTile;
  args.tile_count =
      (tiles->slice_count + kTile - 1) / kTile * args.middle_count * args.column_tiles;
  args.base = static_cast<char *>(packing->d_base);
  args.packed = static_cast<char *>(packing->d_packed);
  return gpufi::with_element(layout.element_nbytes, launch{args, unpack, stream});
}
