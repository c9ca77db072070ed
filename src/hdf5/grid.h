/* Boxes, and the tiles that cover one: a dataset's chunks, or what is read and written at a time.
 */
#ifndef GPUFI_HDF5_GRID_H
#define GPUFI_HDF5_GRID_H

#include <gpufetch/gpufetch.h>

/* Indices of a dataset; inside it, but where something else is said. */
typedef struct gpufi_h5_box {
  int64_t start[GPUF_NDIM_MAX];
  int64_t shape[GPUF_NDIM_MAX];
} gpufi_h5_box;

typedef struct gpufi_h5_grid {
  int32_t ndim;
  gpufi_h5_box box;             /* what the tiles cover */
  int64_t first[GPUF_NDIM_MAX]; /* where the first tile starts, at or before the box */
  int64_t tile[GPUF_NDIM_MAX];  /* the shape of a tile, each length >= 1 */
  int64_t counts[GPUF_NDIM_MAX];
  int64_t total; /* tiles, the last axis fastest; 0 when the box has no elements */
} gpufi_h5_grid;

/* The first tile starts at the last multiple of `align` that is not after the box's start. */
void gpufi_h5_grid_init(gpufi_h5_grid *grid, int32_t ndim, const gpufi_h5_box *box,
                        const int64_t *align, const int64_t *tile);
/* Where tile `index` starts. */
void gpufi_h5_grid_origin(const gpufi_h5_grid *grid, int64_t index, int64_t *origin);
/* What tile `index` and the grid's box have in common. */
gpufi_h5_box gpufi_h5_grid_tile(const gpufi_h5_grid *grid, int64_t index);

/* Narrow `tensor` to the elements of `box`, whose start counts from `origin` (NULL: from 0). */
gpuf_status gpufi_h5_narrow(gpuf_tensor *tensor, const gpufi_h5_box *box, const int64_t *origin,
                            gpuf_error *err);

/* "1, 2": lengths or indices of `ndim` axes, for messages. */
typedef struct gpufi_h5_list {
  char text[200];
} gpufi_h5_list;

gpufi_h5_list gpufi_h5_list_of(int32_t ndim, const int64_t *values);

#endif
