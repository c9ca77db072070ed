/* Whether a checkpoint's file holds what its manifest says. */
#ifndef GPUFI_HDF5_CHECKPOINT_VERIFY_H
#define GPUFI_HDF5_CHECKPOINT_VERIFY_H

#include "hdf5/checkpoint/contents.h"

/* Read the manifest of the open file of `file_nbytes` bytes into `contents`, which is empty before
 * and to be cleared after a failure. GPUF_ERR_CORRUPT for a file without one, and for one that says
 * more to be stored than the file has. Not entered, before or after. */
gpuf_status gpufi_checkpoint_read_manifest(gpufi_h5_session *session, hid_t file,
                                           int64_t file_nbytes, gpufi_checkpoint_contents *contents,
                                           gpuf_error *err);

/* Compare the dataset of every tensor that the file itself holds with the manifest, chunk by chunk,
 * by several threads where the library lets them. GPUF_ERR_CORRUPT, naming the tensor, where one
 * differs. Not entered, before or after. */
gpuf_status gpufi_checkpoint_verify(gpufi_h5_session *session, hid_t file,
                                    const gpufi_checkpoint_contents *contents, gpuf_error *err);

#endif
