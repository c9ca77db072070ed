/* What could not be written to a file any more, in memory: bytes that are put here are read instead
 * of the file's. Thread-safety: one thread at a time. */
#ifndef GPUFI_HDF5_DRIVER_OVERLAY_H
#define GPUFI_HDF5_DRIVER_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPUFI_H5_OVERLAY_BUCKETS 1024

typedef struct gpufi_h5_page gpufi_h5_page;

/* Zeroed: empty. */
typedef struct gpufi_h5_overlay {
  gpufi_h5_page *buckets[GPUFI_H5_OVERLAY_BUCKETS]; /* by the page's number */
  size_t nbytes;                                    /* of all pages */
} gpufi_h5_overlay;

/* Put `bytes` at `offset`. What else lies on their pages is taken from the file `fd`, as zeros if
 * it cannot be read. False, and some of the bytes may be there, if there is no memory, or the
 * overlay would take more than `nbytes_max`. */
bool gpufi_h5_overlay_put(gpufi_h5_overlay *overlay, size_t nbytes_max, int fd, uint64_t offset,
                          const void *bytes, size_t nbytes);
/* Replace those of `bytes`, which the file has at `offset`, that lie on the overlay's pages. */
void gpufi_h5_overlay_apply(const gpufi_h5_overlay *overlay, uint64_t offset, void *bytes,
                            size_t nbytes);
/* Release the pages; empty then. */
void gpufi_h5_overlay_fini(gpufi_h5_overlay *overlay);

#endif
