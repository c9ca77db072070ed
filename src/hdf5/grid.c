#include "hdf5/grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void gpufi_h5_grid_init(gpufi_h5_grid *grid, int32_t ndim, const gpufi_h5_box *box,
                        const int64_t *align, const int64_t *tile) {
  memset(grid, 0, sizeof(*grid));
  grid->ndim = ndim;
  grid->box = *box;
  grid->total = 1;
  for (int32_t axis = 0; axis < ndim; axis++) {
    const int64_t first = box->start[axis] / align[axis] * align[axis];
    const int64_t span = box->shape[axis] ? box->start[axis] - first + box->shape[axis] : 0;
    grid->first[axis] = first;
    grid->tile[axis] = tile[axis];
    grid->counts[axis] = span / tile[axis] + (span % tile[axis] != 0);
    grid->total *= grid->counts[axis]; /* at most the number of elements */
  }
}

void gpufi_h5_grid_origin(const gpufi_h5_grid *grid, int64_t index, int64_t *origin) {
  for (int32_t axis = grid->ndim - 1; axis >= 0; axis--) {
    origin[axis] = grid->first[axis] + index % grid->counts[axis] * grid->tile[axis];
    index /= grid->counts[axis];
  }
}

gpufi_h5_box gpufi_h5_grid_tile(const gpufi_h5_grid *grid, int64_t index) {
  const gpufi_h5_box *box = &grid->box;
  gpufi_h5_box common = {{0}, {0}};
  gpufi_h5_grid_origin(grid, index, common.start);
  for (int32_t axis = 0; axis < grid->ndim; axis++) {
    /* The last tile may end beyond what 64 bits hold, so ends are never added up. */
    const int64_t before =
        common.start[axis] < box->start[axis] ? box->start[axis] - common.start[axis] : 0;
    common.start[axis] += before;
    common.shape[axis] = box->shape[axis] - (common.start[axis] - box->start[axis]);
    if (common.shape[axis] > grid->tile[axis] - before) {
      common.shape[axis] = grid->tile[axis] - before;
    }
  }
  return common;
}

gpuf_status gpufi_h5_narrow(gpuf_tensor *tensor, const gpufi_h5_box *box, const int64_t *origin,
                            gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (int32_t axis = 0; axis < tensor->ndim && status == GPUF_OK; axis++) {
    const int64_t start = box->start[axis] - (origin ? origin[axis] : 0);
    status = gpuf_tensor_slice(tensor, axis, start, 1, box->shape[axis], err);
  }
  return status;
}

gpufi_h5_list gpufi_h5_list_of(int32_t ndim, const int64_t *values) {
  gpufi_h5_list list = {""};
  size_t used = 0;
  for (int32_t axis = 0; axis < ndim && used < sizeof(list.text); axis++) {
    const int length = snprintf(list.text + used, sizeof(list.text) - used, "%s%" PRId64,
                                axis ? ", " : "", values[axis]);
    used += length > 0 ? (size_t)length : 0;
  }
  return list;
}
