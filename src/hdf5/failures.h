/* Open files that the system has refused to read or write. HDF5 keeps what it could not write in
 * its caches, reports later writes as done, and cannot close the file as long as the system
 * refuses; what it could not read, it may take for read. So the library writes no more to such a
 * file; nor does it read one of which HDF5 has lost chunks, or that could not be read.
 * Thread-safety: any thread. */
#ifndef GPUFI_HDF5_FAILURES_H
#define GPUFI_HDF5_FAILURES_H

#include "hdf5/api.h"

/* An open file. Opened twice it has one number, and another one once it was closed and opened
 * again. `api` is NULL where the file is not known. */
typedef struct gpufi_h5_file {
  const gpufi_h5_api *api;
  unsigned long number;
} gpufi_h5_file;

/* The file of an open identifier of any kind. Where HDF5 cannot say it, its errors are left to be
 * quoted. Entered. */
gpufi_h5_file gpufi_h5_file_of(const gpufi_h5_api *api, hid_t id);

typedef struct gpufi_h5_failure {
  bool has_failed;  /* the system has refused something since the file was opened */
  bool was_read;    /* a read; else a write */
  bool has_lost;    /* reading may give other elements than those of the file */
  int system_error; /* errno of the first refusal; 0 where HDF5 did not name it */
} gpufi_h5_failure;

/* Remember a refusal. Does nothing where the file is not known. */
void gpufi_h5_failure_note(const gpufi_h5_file *file, gpufi_h5_failure failure);
/* What is remembered of the file: all zeros where nothing is. */
gpufi_h5_failure gpufi_h5_failure_find(const gpufi_h5_file *file);

#endif
