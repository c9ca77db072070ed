/* Whether a file may be read and written, and how. */
#ifndef GPUFI_HDF5_WRITABLE_H
#define GPUFI_HDF5_WRITABLE_H

#include "hdf5/session.h"

/* GPUF_ERR_INVALID where the file of `id` was opened read-only, and GPUF_ERR_HDF5 where the
 * system has refused to write or read it before; `what` and `name` are what was to be written
 * there. The session uses that file from here on. Entered. */
gpuf_status gpufi_h5_check_writable(gpufi_h5_session *session, hid_t id, const char *what,
                                    const char *name, gpuf_error *err);

/* GPUF_ERR_HDF5 where HDF5 has lost a chunk of the session's file, or could not read it; `name` is
 * the dataset's. Entered. */
gpuf_status gpufi_h5_check_readable(gpufi_h5_session *session, const char *name, gpuf_error *err);

/* Whether the file of `id` was opened by a driver of several MPI processes (MPI-IO, subfiling):
 * they must make HDF5's calls that allocate space together, as those for filtered chunks do.
 * Entered. */
bool gpufi_h5_is_parallel(gpufi_h5_session *session, hid_t id);

/* The refusal for such a file. */
gpuf_status gpufi_h5_refuse_parallel(const char *name, gpuf_error *err);

#endif
