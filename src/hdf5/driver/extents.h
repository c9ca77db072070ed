/* A set of a file's bytes, as ranges. Thread-safety: one thread at a time. */
#ifndef GPUFI_HDF5_DRIVER_EXTENTS_H
#define GPUFI_HDF5_DRIVER_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes from `begin` to `end`, which comes later. */
typedef struct gpufi_h5_extent {
  uint64_t begin, end;
} gpufi_h5_extent;

/* Let the extent, which may be empty, reach over `nbytes` from `offset` on, too. */
void gpufi_h5_extent_grow(gpufi_h5_extent *extent, uint64_t offset, size_t nbytes);
bool gpufi_h5_extent_overlaps(const gpufi_h5_extent *extent, uint64_t offset, size_t nbytes);

/* Zeroed: empty. */
typedef struct gpufi_h5_extents {
  gpufi_h5_extent *ranges; /* in order; none touches the next one */
  size_t count;
  size_t capacity;
} gpufi_h5_extents;

/* Add the bytes from `begin` to `end`. Where there is no memory the set stays as it is. */
void gpufi_h5_extents_add(gpufi_h5_extents *extents, uint64_t begin, uint64_t end);
/* Take them out. Where there is no memory for the two sides of a range, all of it is taken out. */
void gpufi_h5_extents_remove(gpufi_h5_extents *extents, uint64_t begin, uint64_t end);
/* Free what it holds; it is empty then. */
void gpufi_h5_extents_fini(gpufi_h5_extents *extents);

#endif
