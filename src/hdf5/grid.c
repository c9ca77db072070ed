/* Boxes that tile a dataset: its chunks, or the slabs in which it is read and written. */
#include "base/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_TARGET_NBYTES ((int64_t)1 << 20)
/* How much longer than the others the last axis of a default chunk is, at least: elements of a
 * row lie side by side in device memory, so long rows move in few pieces. */
#define ROW_WEIGHT 4

void gpufi_h5_grid_init(gpufi_h5_grid *grid, int32_t ndim, const gpufi_h5_region *region,
                        const int64_t *align, const int64_t *box) {
  memset(grid, 0, sizeof(*grid));
  grid->ndim = ndim;
  grid->region = *region;
  grid->total = 1;
  for (int32_t axis = 0; axis < ndim; axis++) {
    const int64_t first = region->start[axis] / align[axis] * align[axis];
    const int64_t span =
        region->shape[axis] ? region->start[axis] - first + region->shape[axis] : 0;
    grid->first[axis] = first;
    grid->box[axis] = box[axis];
    grid->counts[axis] = span / box[axis] + (span % box[axis] != 0);
    grid->total *= grid->counts[axis]; /* at most the number of elements */
  }
}

void gpufi_h5_grid_origin(const gpufi_h5_grid *grid, int64_t index, int64_t *origin) {
  for (int32_t axis = grid->ndim - 1; axis >= 0; axis--) {
    origin[axis] = grid->first[axis] + index % grid->counts[axis] * grid->box[axis];
    index /= grid->counts[axis];
  }
}

void gpufi_h5_grid_box(const gpufi_h5_grid *grid, int64_t index, int64_t *start, int64_t *extent) {
  const gpufi_h5_region *region = &grid->region;
  gpufi_h5_grid_origin(grid, index, start);
  for (int32_t axis = 0; axis < grid->ndim; axis++) {
    /* The last box may end where 64 bits do, so ends are never added up. */
    const int64_t before =
        start[axis] < region->start[axis] ? region->start[axis] - start[axis] : 0;
    start[axis] += before;
    extent[axis] = region->shape[axis] - (start[axis] - region->start[axis]);
    if (extent[axis] > grid->box[axis] - before) {
      extent[axis] = grid->box[axis] - before;
    }
  }
}

gpuf_status gpufi_h5_narrow(gpuf_tensor *tensor, const int64_t *start, const int64_t *extent,
                            gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (int32_t axis = 0; axis < tensor->ndim && status == GPUF_OK; axis++) {
    status = gpuf_tensor_slice(tensor, axis, start[axis], 1, extent[axis], err);
  }
  return status;
}

static int32_t longest_axis(const int64_t *chunk, int32_t ndim) {
  int32_t longest = ndim - 1;
  for (int32_t axis = 0; axis < ndim - 1; axis++) {
    const int64_t length = chunk[axis];
    const int64_t best = longest == ndim - 1 ? chunk[longest] / ROW_WEIGHT : chunk[longest];
    if (length > 1 && length > best) {
      longest = axis;
    }
  }
  return longest;
}

void gpufi_h5_chunk_default(const gpuf_tensor *tensor, int64_t *chunk) {
  const int64_t target = CHUNK_TARGET_NBYTES / (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    chunk[axis] = tensor->shape[axis];
    count *= chunk[axis];
  }
  while (count > target) {
    const int32_t axis = longest_axis(chunk, tensor->ndim);
    count /= chunk[axis];
    chunk[axis] = chunk[axis] / 2 + chunk[axis] % 2;
    count *= chunk[axis];
  }
}

gpuf_status gpufi_h5_chunk_shape(gpuf_dtype dtype, int32_t ndim, const int64_t *chunk,
                                 gpufi_chunk_shape *shape, size_t *raw_nbytes, gpuf_error *err) {
  const int32_t folded = ndim > GPUFI_CODEC_NDIM_MAX ? ndim - GPUFI_CODEC_NDIM_MAX : 0;
  memset(shape, 0, sizeof(*shape));
  shape->dtype = dtype;
  shape->ndim = ndim - folded;
  shape->dims[0] = 1;
  for (int32_t axis = 0; axis < ndim; axis++) {
    const int32_t into = axis > folded ? axis - folded : 0;
    const uint64_t before = axis > folded || axis == 0 ? 1 : shape->dims[0];
    if (chunk[axis] < 1 || (uint64_t)chunk[axis] > UINT32_MAX / before) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "chunk length %" PRId64 " of axis %d makes the chunk 4 GiB or more, which "
                        "HDF5 cannot store: choose shorter chunks",
                        chunk[axis], (int)axis);
    }
    shape->dims[into] = (uint32_t)(before * (uint64_t)chunk[axis]);
  }
  return gpufi_chunk_raw_nbytes(shape, raw_nbytes, err);
}

gpuf_status gpufi_h5_chunk_check(const gpuf_tensor *tensor, const int64_t *chunk, gpuf_error *err) {
  gpufi_chunk_shape shape;
  size_t raw_nbytes;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    if (chunk[axis] < 1 || chunk[axis] > tensor->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "chunk length %" PRId64 " of axis %d does not fit: choose 1 to %" PRId64
                        ", the tensor's length there",
                        chunk[axis], (int)axis, tensor->shape[axis]);
    }
  }
  return gpufi_h5_chunk_shape(tensor->dtype, tensor->ndim, chunk, &shape, &raw_nbytes, err);
}
