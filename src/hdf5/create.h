/* New datasets. */
#ifndef GPUFI_HDF5_CREATE_H
#define GPUFI_HDF5_CREATE_H

#include "hdf5/path.h"

/* Create a dataset for `src`, with the session's codec and chunk shape, and open it as *id, which
 * is set on success only; the caller closes it. GPUF_ERR_INVALID where the name exists or the file
 * is read-only, GPUF_ERR_UNSUPPORTED where several MPI processes have opened it together. Of a
 * failure nothing stays in the file. The filter is registered. Entered. */
gpuf_status gpufi_h5_create(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                            const gpuf_tensor *src, hid_t *id, gpuf_error *err);

/* The same with a dataset creation property list, instead of one for the codec and chunk shape. */
gpuf_status gpufi_h5_create_as(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                               const gpuf_tensor *src, hid_t plist, hid_t *id, gpuf_error *err);

#endif
