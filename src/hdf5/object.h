/* Which object an identifier stands for, and whether a name leads to it. */
#ifndef GPUFI_HDF5_OBJECT_H
#define GPUFI_HDF5_OBJECT_H

#include "hdf5/session.h"

/* How many hard links lead to an open object: 0 once it was deleted, and lives only while it is
 * open; -1 where HDF5 does not tell. Entered. */
int64_t gpufi_h5_object_link_count(const gpufi_h5_session *session, hid_t object);

/* Whether `name` under `location` is a hard link to the open object: false also where HDF5 does not
 * tell. Another object may have the address once this one is closed. Entered. */
bool gpufi_h5_object_is_at(gpufi_h5_session *session, hid_t object, hid_t location,
                           const char *name);

#endif
