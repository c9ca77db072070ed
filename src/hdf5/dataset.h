/* What an open dataset is, and by which route its elements are read and written. */
#ifndef GPUFI_HDF5_DATASET_H
#define GPUFI_HDF5_DATASET_H

#include "codec/codec.h"
#include "hdf5/grid.h"
#include "hdf5/session.h"
#include "hdf5/steps.h"

typedef enum gpufi_h5_route {
  GPUFI_H5_ROUTE_HDF5,       /* through H5Dread and H5Dwrite, one bounded box after another */
  GPUFI_H5_ROUTE_PLAIN,      /* whole chunks, no filter */
  GPUFI_H5_ROUTE_GPUFETCH,   /* whole chunks, the gpufetch filter alone */
  GPUFI_H5_ROUTE_BITSHUFFLE, /* whole chunks, filter 32008 alone, with LZ4 */
  GPUFI_H5_ROUTE_STEPS,      /* reading whole chunks of HDF5's own filters; HDF5 writes them */
} gpufi_h5_route;

/* The longest element. */
#define GPUFI_H5_FILL_NBYTES 16

/* Constant once it is filled; any thread may read it. */
typedef struct gpufi_h5_dataset {
  hid_t id; /* the caller's */
  char name[256];
  gpuf_dtype dtype;
  bool is_native_complex; /* stored as HDF5 2.0's complex type, not as a compound */
  bool is_native;         /* stored as the CPU has them in memory */
  bool needs_swap;        /* HDF5 gives and takes the elements' bytes in reverse order */
  int32_t ndim;
  int64_t shape[GPUF_NDIM_MAX];
  gpufi_h5_route route;
  bool is_chunked;
  bool is_filtered;
  int32_t filter_count;
  uint32_t fletcher32_mask; /* bit i: filter i is fletcher32 */
  bool is_new;              /* the call has created it: no others have stored chunks */
  /* HDF5 leaves memory as it is where nothing was written: the dataset has no fill value, its fill
   * time is NEVER, or other datasets hold its elements, for which that may be true. */
  bool has_gaps;
  bool is_virtual;              /* other datasets hold its elements */
  int64_t chunk[GPUF_NDIM_MAX]; /* all 1 unless chunked */
  /* Set for the routes of whole chunks only. */
  gpufi_chunk_shape chunk_shape;
  size_t chunk_nbytes;
  gpufi_h5_steps steps;                     /* of the route of that name */
  bool has_fill;                            /* the dataset's fill value has a bit that is not 0 */
  unsigned char fill[GPUFI_H5_FILL_NBYTES]; /* an element of it, as the file has it */
} gpufi_h5_dataset;

/* Inspect the open dataset `id`. Entered. */
gpuf_status gpufi_h5_dataset_init(gpufi_h5_dataset *dataset, gpufi_h5_session *session, hid_t id,
                                  gpuf_error *err);
/* After HDF5 failed to read or write elements: GPUF_ERR_HDF5 where the library lacks a filter of
 * the dataset, which is then the cause; else `err` is left alone. Entered. */
gpuf_status gpufi_h5_dataset_check_filters(const gpufi_h5_dataset *dataset,
                                           gpufi_h5_session *session, bool writes, gpuf_error *err);
/* The box of the tensor's shape that begins at `start`, or the whole dataset for NULL.
 * GPUF_ERR_INVALID where the box does not lie in the dataset, where the tensor has another dtype,
 * or, for NULL, another shape. `role` is "source" or "destination", for messages. */
gpuf_status gpufi_h5_dataset_box(const gpufi_h5_dataset *dataset, const int64_t *start,
                                 const gpuf_tensor *tensor, const char *role, gpufi_h5_box *box,
                                 gpuf_error *err);
/* Fill `nbytes` of memory with a value, again and again. */
void gpufi_h5_repeat(void *to, size_t nbytes, const void *value, size_t value_nbytes);
/* Let all elements of a chunk be what HDF5 puts beyond the edge of the dataset, where they are
 * elements once it has grown. */
void gpufi_h5_dataset_fill_chunk(const gpufi_h5_dataset *dataset, void *raw);
/* Whether the box consists of whole chunks, as far as the dataset goes. */
bool gpufi_h5_dataset_is_aligned(const gpufi_h5_dataset *dataset, const gpufi_h5_box *box);

#endif
