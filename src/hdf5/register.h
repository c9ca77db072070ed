/* The filter among those that HDF5 knows. */
#ifndef GPUFI_HDF5_REGISTER_H
#define GPUFI_HDF5_REGISTER_H

#include "hdf5/session.h"

/* Register the filter with the session's library, unless that was done. Files that are open for
 * writing are flushed first, but for those of MPI drivers. Entered. */
gpuf_status gpufi_h5_register(gpufi_h5_session *session, gpuf_error *err);

#endif
