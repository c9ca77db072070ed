/* Where chunks lie in a plain file, so that several threads read them at once, past HDF5 and its
 * lock. */
#ifndef GPUFI_HDF5_DIRECT_H
#define GPUFI_HDF5_DIRECT_H

#include "hdf5/dataset.h"

/* A chunk's place in the file; the offset is 0, where no chunk lies, for one that was never
 * written, or whose place no file can have. The size is untrusted. */
typedef struct gpufi_h5_place {
  int64_t offset;
  uint32_t nbytes;
  uint32_t filter_mask;
} gpufi_h5_place;

/* `places` has one for each chunk of the grid; NULL, and fd -1, where chunks must be read by
 * HDF5. */
typedef struct gpufi_h5_direct {
  int fd; /* our own: the caller may close the file meanwhile */
  gpufi_h5_place *places;
} gpufi_h5_direct;

/* Never fails: what cannot be read directly is read by HDF5. Entered. */
void gpufi_h5_direct_init(gpufi_h5_direct *direct, gpufi_h5_session *session,
                          const gpufi_h5_dataset *dataset, const gpufi_h5_grid *grid);
void gpufi_h5_direct_fini(gpufi_h5_direct *direct);
/* Read exactly `nbytes`. Thread-safety: any thread. */
gpuf_status gpufi_h5_direct_read(int fd, int64_t offset, void *bytes, size_t nbytes,
                                 gpuf_error *err);

#endif
