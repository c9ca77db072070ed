/* The path of a new dataset: what it may be, and the groups that creating the dataset makes. */
#ifndef GPUFI_HDF5_PATH_H
#define GPUFI_HDF5_PATH_H

#include "hdf5/session.h"

typedef struct gpufi_h5_path {
  char *text;
  /* The first so many bytes of the text name a group that was there before; the groups after it
   * are new. */
  size_t existing_nbytes;
} gpufi_h5_path;

/* GPUF_ERR_INVALID unless `name` is UTF-8, and none of the names between its slashes is empty, "."
 * or "..", which other programs understand in other ways; a leading slash is the file's root.
 * Release the path with gpufi_h5_path_fini, which a zeroed one allows too. */
gpuf_status gpufi_h5_path_init(gpufi_h5_path *path, const char *name, gpuf_error *err);
void gpufi_h5_path_fini(gpufi_h5_path *path);

/* Find out which groups of the path are there. GPUF_ERR_INVALID if something that is not a group is
 * in the way. Entered, in the same turn as the creation. */
gpuf_status gpufi_h5_path_look(gpufi_h5_path *path, gpufi_h5_session *session, hid_t location,
                               gpuf_error *err);
/* After a failure: unlink what the path names, which was not there, and the groups that were not,
 * unless something else lies in them by now. The path is used up. Entered. */
void gpufi_h5_path_withdraw(gpufi_h5_path *path, gpufi_h5_session *session, hid_t location);

#endif
