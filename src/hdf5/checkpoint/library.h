/* The libhdf5 that checkpoints are written and read with, and the lock around it.
 *
 * It is the bound one if that was built thread-safe: the writer's calls and the program's take
 * turns then. Otherwise it is a second copy of it, loaded from a copy of its file, with its own
 * symbols first: the program does not know of it, and all of its calls are under the lock. */
#ifndef GPUFI_HDF5_CHECKPOINT_LIBRARY_H
#define GPUFI_HDF5_CHECKPOINT_LIBRARY_H

#include "hdf5/session.h"

/* Find it. Thread-safety: any thread. */
gpuf_status gpufi_checkpoint_library(gpufi_h5_api **api, gpuf_error *err);

/* A copy of `api`'s library, which is loaded once; GPUF_ERR_UNSUPPORTED where it cannot be.
 * Thread-safety: any thread. */
gpuf_status gpufi_checkpoint_library_copy(gpufi_h5_api *api, gpufi_h5_api **copy, gpuf_error *err);

/* Options that carry the lock, which is held while the process forks: a child finds neither HDF5's
 * own locks nor this one taken. */
gpuf_h5_options gpufi_checkpoint_h5_options(void);

#endif
