/* What the public calls share: a dataset is found or created, written or read, and closed. */
#ifndef GPUFI_HDF5_ACCESS_H
#define GPUFI_HDF5_ACCESS_H

#include "hdf5/dataset.h"
#include "hdf5/path.h"

/* Check a tensor of the caller's; `role` is its name in messages. */
gpuf_status gpufi_h5_check_tensor(const gpuf_tensor *tensor, const char *role, gpuf_error *err);
/* Check the name of a dataset in the caller's file. */
gpuf_status gpufi_h5_check_name(const char *name, gpuf_error *err);
/* Check the arguments of a call for a dataset by name, and begin the session. */
gpuf_status gpufi_h5_begin_by_name(gpufi_h5_session *session, const char *name,
                                   const gpuf_tensor *tensor, const char *role,
                                   const gpuf_h5_options *options, gpuf_error *err);
/* GPUF_ERR_INVALID unless `location` is an open file or group. Entered. */
gpuf_status gpufi_h5_check_location(gpufi_h5_session *session, hid_t location, gpuf_error *err);

/* Inspect dataset `id`, for a call that writes to it or not. Not entered, before or after. */
gpuf_status gpufi_h5_inspect(gpufi_h5_session *session, hid_t id, bool writes,
                             gpufi_h5_dataset *dataset, gpuf_error *err);
/* Create the dataset and inspect it; *id is that of a dataset also where inspecting it failed. Not
 * entered, before or after. */
gpuf_status gpufi_h5_create_and_inspect(gpufi_h5_session *session, hid_t location,
                                        gpufi_h5_path *path, const gpuf_tensor *src,
                                        gpufi_h5_dataset *dataset, hid_t *id, gpuf_error *err);
/* Close the new dataset, one of no axes once the file was flushed, which holds it, and unlink it
 * and its new groups if `status` is a failure; but not if its name leads elsewhere by now, nor if
 * HDF5 cannot flush or close it: HDF5 2.0 crashes in H5Ldelete then. GPUF_ERR_STATE if others have
 * deleted it, or returns the first failure. Not entered, before or after. */
gpuf_status gpufi_h5_finish_dataset(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                                    hid_t id, bool is_number, gpuf_status status, gpuf_error *err);

/* Write or read a box of the dataset, which has the tensor's shape. Chunks are read whole, so it
 * may begin and end anywhere; those that it covers in part are written by HDF5, which keeps their
 * other elements. Not entered, before or after. */
gpuf_status gpufi_h5_box_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const gpufi_h5_box *box, const gpuf_tensor *tensor, bool writes,
                                  gpuf_error *err);

#endif
