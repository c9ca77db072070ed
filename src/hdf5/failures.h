/* Open files in which a write has failed. HDF5 keeps what it could not write in its caches, reports
 * later writes as done, and cannot close the file as long as the system refuses. So the library
 * writes no more to such a file; nor does it read one of which HDF5 has lost chunks. Thread-safety:
 * any thread. */
#ifndef GPUFI_HDF5_FAILURES_H
#define GPUFI_HDF5_FAILURES_H

#include "hdf5/api.h"

/* An open file. Opened twice it has one number, and another one once it was closed and opened
 * again. `api` is NULL where the file is not known. */
typedef struct gpufi_h5_file {
  const gpufi_h5_api *api;
  unsigned long number;
} gpufi_h5_file;

/* The file of an open identifier of any kind. Entered. */
gpufi_h5_file gpufi_h5_file_of(const gpufi_h5_api *api, hid_t id);

/* Remember that a write to the file failed, with errno `system_error`, or 0 where HDF5 did not name
 * it; of several failures the first counts. */
void gpufi_h5_failure_note(const gpufi_h5_file *file, int system_error);
/* Whether a write to the file has failed since it was opened, and errno of that. */
bool gpufi_h5_failure_find(const gpufi_h5_file *file, int *system_error);

/* Remember that HDF5 lost a chunk of the file, in which a write has failed, from its cache: what it
 * reads from now on may be older than what was written. */
void gpufi_h5_loss_note(const gpufi_h5_file *file);
/* Whether a chunk was lost so, and errno of the first failed write. */
bool gpufi_h5_loss_find(const gpufi_h5_file *file, int *system_error);

#endif
