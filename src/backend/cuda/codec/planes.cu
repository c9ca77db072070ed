#include "backend/cuda/codec/decode.cuh"
#include "backend/cuda/codec/planes.cuh"
#include "backend/cuda/strided.cuh"

namespace {

using namespace gpufi;

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTileNbytes = 16384; /* stays in the first-level cache while it is read */
constexpr uint32_t kTileMin = 16;
/* Most batches have no chunks to join: a few times what a large GPU holds. */
constexpr uint32_t kJoinThreadBlocks = 4096;

/* Store to[i] = element(i) for i below `count`, in words of 4 bytes where elements are smaller. All
 * threads. */
template <typename E, typename Function>
__device__ void store_elements(E *to, uint32_t count, const Function &element) {
  constexpr uint32_t kPerWord = sizeof(E) < 4 ? 4 / sizeof(E) : 1;
  const uint32_t past = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) / sizeof(E)) %
                        kPerWord; /* elements of the first word before these */
  for (uint32_t word = threadIdx.x; word * kPerWord < past + count; word += kThreads) {
    E v[kPerWord];
    bool is_whole = true;
#pragma unroll
    for (uint32_t t = 0; t < kPerWord; t++) {
      const uint32_t i = word * kPerWord + t - past; /* before the first it wraps */
      is_whole = is_whole && i < count;
      v[t] = i < count ? element(i) : E{};
    }
    if (kPerWord > 1 && is_whole) {
      uint32_t bits;
      memcpy(&bits, v, 4);
      *reinterpret_cast<uint32_t *>(to + (word * kPerWord - past)) = bits;
      continue;
    }
#pragma unroll
    for (uint32_t t = 0; t < kPerWord; t++) {
      const uint32_t i = word * kPerWord + t - past;
      if (i < count) {
        to[i] = v[t];
      }
    }
  }
}

/* How a row is cut into tiles; short rows are taken several at once. */
struct row_tiles {
  uint32_t rows, per_row, per_chunk;

  __host__ __device__ explicit row_tiles(const planes_layout &layout) {
    const uint32_t length = layout.length.d;
    rows = length < layout.tile ? layout.tile / length : 1;
    per_row = (length - 1) / layout.tile + 1;
    per_chunk = (layout.row_count - 1) / rows + 1;
    per_chunk *= per_row;
  }
};

template <typename E>
__global__ void __launch_bounds__(kThreads)
    split_kernel(const __grid_constant__ planes_layout layout, const uint8_t *raw, uint8_t *coded) {
  begin_early();
  const row_tiles tiles(layout);
  const uint32_t chunk = blockIdx.x / tiles.per_chunk, tile = blockIdx.x % tiles.per_chunk;
  const uint32_t planes = layout.planes.d, length = layout.length.d;
  const uint32_t row = tile / tiles.per_row * tiles.rows;
  const uint64_t first = static_cast<uint64_t>(row) * layout.row.d; /* element of the row */
  const E *const from = reinterpret_cast<const E *>(raw + chunk * layout.pitch_nbytes) + first;
  E *const to = reinterpret_cast<E *>(coded + chunk * layout.pitch_nbytes) + first;
  if (tiles.per_row == 1) {
    const uint32_t left = layout.row_count - row, rows = left < tiles.rows ? left : tiles.rows;
    store_elements(to, rows * layout.row.d, [&](uint32_t e) {
      const uint32_t r = divide(e, layout.row), in_row = e - r * layout.row.d;
      const uint32_t plane = divide(in_row, layout.length), i = in_row - plane * length;
      return from[r * layout.row.d + i * planes + plane];
    });
    return;
  }
  const uint32_t begin = tile % tiles.per_row * layout.tile, left = length - begin;
  for (uint32_t plane = 0; plane < planes; plane++) {
    store_elements(to + (plane * length + begin), left < layout.tile ? left : layout.tile,
                   [&](uint32_t i) { return from[(begin + i) * planes + plane]; });
  }
}

template <typename E>
__device__ __forceinline__ void join_tile(const planes_layout &layout, uint32_t chunk,
                                          uint32_t tile, const uint8_t *coded, uint8_t *raw) {
  const uint32_t planes = layout.planes.d, length = layout.length.d;
  const uint32_t first = tile * layout.tile, left = layout.row_count * length - first;
  const E *const from = reinterpret_cast<const E *>(coded + chunk * layout.pitch_nbytes);
  E *const to = reinterpret_cast<E *>(raw + chunk * layout.pitch_nbytes) + first * planes;
  store_elements(to, (left < layout.tile ? left : layout.tile) * planes, [&](uint32_t e) {
    const uint32_t past = divide(e, layout.planes), plane = e - past * planes;
    const uint32_t place = first + past, row = divide(place, layout.length);
    return from[row * layout.row.d + plane * length + (place - row * length)];
  });
}

/* Of the chunks with planes that are decoded. */
template <typename E>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const __grid_constant__ planes_layout layout, const decode_state *states,
                const uint32_t *chunk_count, uint32_t tile_count, const uint8_t *coded,
                uint8_t *raw) {
  begin_early();
  const uint32_t count = *chunk_count != 0 ? layout.chunk_count * tile_count : 0;
  for (uint32_t index = blockIdx.x; index < count; index += gridDim.x) {
    const uint32_t chunk = index / tile_count;
    if (states[chunk].is_open && states[chunk].has_planes) {
      join_tile<E>(layout, chunk, index - chunk * tile_count, coded, raw);
    }
  }
}

struct split_launch {
  const planes_layout &layout;
  const uint8_t *raw;
  uint8_t *coded;
  cudaStream_t stream;

  template <typename E> cudaError_t run() const {
    return launch_early(split_kernel<E>, layout.chunk_count * row_tiles(layout).per_chunk, kThreads,
                        0, stream, layout, raw, coded);
  }
};

struct join_launch {
  const planes_layout &layout;
  const decode_state *states;
  const uint32_t *chunk_count;
  const uint8_t *coded;
  uint8_t *raw;
  cudaStream_t stream;

  template <typename E> cudaError_t run() const {
    const uint32_t places = layout.row_count * layout.length.d;
    const uint32_t tile_count = (places - 1) / layout.tile + 1;
    const uint32_t thread_blocks = layout.chunk_count * tile_count;
    return launch_early(join_kernel<E>,
                        thread_blocks < kJoinThreadBlocks ? thread_blocks : kJoinThreadBlocks,
                        kThreads, 0, stream, layout, states, chunk_count, tile_count, coded, raw);
  }
};

} // namespace

namespace gpufi {

planes_layout make_planes_layout(const gpufi_chunks *chunks) {
  const gpufi_chunk_shape coded = gpufi_planes_shape(&chunks->shape);
  const uint32_t planes = chunks->shape.dims[chunks->shape.ndim - 1];
  const uint32_t length = coded.dims[coded.ndim - 1];
  planes_layout layout = {};
  layout.element_nbytes = static_cast<uint32_t>(gpufi_chunk_element_nbytes(chunks->shape.dtype));
  layout.planes = make_divisor(planes);
  layout.length = make_divisor(length);
  layout.row = make_divisor(planes * length);
  layout.row_count =
      static_cast<uint32_t>(chunks->raw_nbytes / layout.element_nbytes / planes / length);
  layout.tile = kTileNbytes / (planes * layout.element_nbytes);
  layout.tile = layout.tile > kTileMin ? layout.tile : kTileMin;
  layout.chunk_count = static_cast<uint32_t>(chunks->count);
  layout.pitch_nbytes = chunks->raw_pitch_nbytes;
  return layout;
}

cudaError_t split_planes(const planes_layout &layout, const uint8_t *raw, uint8_t *coded,
                         cudaStream_t stream) {
  return with_element(layout.element_nbytes, split_launch{layout, raw, coded, stream});
}

cudaError_t join_planes(const planes_layout &layout, const decode_state *states,
                        const uint32_t *chunk_count, const uint8_t *coded, uint8_t *raw,
                        cudaStream_t stream) {
  return with_element(layout.element_nbytes,
                      join_launch{layout, states, chunk_count, coded, raw, stream});
}

} // namespace gpufi
