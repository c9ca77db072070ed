#include "backend/cuda/codec/grid.cuh"

namespace gpufi {

chunk_grid make_grid(const gpufi_chunks *chunks, bool has_planes) {
  chunk_grid grid = {};
  gpufi_geometry g;
  const gpufi_chunk_shape coded = has_planes ? gpufi_planes_shape(&chunks->shape) : chunks->shape;
  gpufi_geometry_init(&g, &coded);
  grid.value_count = static_cast<uint32_t>(g.value_count);
  grid.block_count = static_cast<uint32_t>(gpufi_block_count(&g));
  grid.run_count = (grid.block_count - 1) / GPUFI_RUN_BLOCKS + 1;
  grid.component_count = static_cast<uint32_t>(g.component_count);
  for (int32_t a = g.ndim - 1; a >= 0; a--) {
    grid.header_dims[a] = chunks->shape.dims[a];
    if (g.dims[a] > 1) {
      grid.axis_of[grid.axis_count] = static_cast<uint8_t>(a);
      grid.dims[grid.axis_count] = make_divisor(coded.dims[a]);
      grid.strides[grid.axis_count++] = static_cast<uint32_t>(g.strides[a]);
    }
  }
  grid.usable_count = grid.axis_count < GPUFI_PREDICT_AXES ? grid.axis_count : GPUFI_PREDICT_AXES;
  for (int s = 1; s < 1 << grid.usable_count; s++) {
    const int bit = __builtin_ctz(static_cast<unsigned>(s));
    grid.offsets[s] = grid.offsets[s & (s - 1)] + grid.strides[bit];
  }
  grid.row_values = grid.axis_count > 0 ? grid.dims[0].d * grid.component_count : grid.value_count;
  grid.row = make_divisor(grid.row_values);
  grid.raw_nbytes = chunks->raw_nbytes;
  grid.raw_pitch_nbytes = chunks->raw_pitch_nbytes;
  grid.dtype = static_cast<uint8_t>(chunks->shape.dtype);
  grid.ndim = static_cast<uint8_t>(chunks->shape.ndim);
  grid.value_nbytes = static_cast<uint8_t>(g.value_nbytes);
  grid.is_float = gpufi_chunk_dtype_is_float(chunks->shape.dtype);
  return grid;
}

} // namespace gpufi
