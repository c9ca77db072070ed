/* The linker sends the library's calls of gpufi_checkpoint_library here, as if the program's
 * libhdf5 had not been built thread-safe: checkpoints are written and read with a second copy of
 * it. */
#include "hdf5/checkpoint/library.h"

gpuf_status __wrap_gpufi_checkpoint_library(gpufi_h5_api **api, gpuf_error *err);
gpuf_status __wrap_gpufi_checkpoint_library(gpufi_h5_api **api, gpuf_error *err) {
  gpufi_h5_api *bound;
  gpuf_status status = gpufi_h5_bound(&bound, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_library_copy(bound, api, err);
  }
  return status == GPUF_OK && *api == bound ? GPUF_ERR_STATE : status;
}
