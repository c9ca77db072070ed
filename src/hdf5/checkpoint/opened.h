/* The files of a finished checkpoint, open for reading: one, or a master and its shards. */
#ifndef GPUFI_HDF5_CHECKPOINT_OPENED_H
#define GPUFI_HDF5_CHECKPOINT_OPENED_H

#include "hdf5/checkpoint/contents.h"
#include "hdf5/checkpoint/file.h"
#include "hdf5/checkpoint/seal.h"

/* Used by one thread at a time. Zeroed, but for the master's id, which is negative: closed. */
typedef struct gpufi_checkpoint_opened {
  gpufi_checkpoint_file master;
  gpufi_checkpoint_file *shards; /* as many as the contents have; an id is negative while closed */
  gpufi_checkpoint_contents contents;
} gpufi_checkpoint_opened;

/* Open the checkpoint of `step` at `path`, and compare all that its files hold with what they say
 * of themselves, and the shards with what the master says of them: GPUF_ERR_CORRUPT where something
 * differs or is missing, and GPUF_ERR_STATE where HDF5 was closed meanwhile, which says nothing
 * about the files. Closed after a failure. Not entered, before or after. */
gpuf_status gpufi_checkpoint_opened_open(gpufi_checkpoint_opened *opened, gpufi_h5_session *session,
                                         const char *path, int64_t step, gpuf_error *err);
void gpufi_checkpoint_opened_close(gpufi_checkpoint_opened *opened, gpufi_h5_session *session);

/* Read the box of the tensor's shape that begins at `start` (NULL: all) of a tensor of the contents
 * into `tensor`. GPUF_ERR_STATE if HDF5 was closed since they were opened. Not entered, before or
 * after. */
gpuf_status gpufi_checkpoint_opened_read(gpufi_checkpoint_opened *opened, gpufi_h5_session *session,
                                         const gpufi_checkpoint_tensor *stored,
                                         const int64_t *start, const gpuf_tensor *tensor,
                                         gpuf_error *err);

#endif
