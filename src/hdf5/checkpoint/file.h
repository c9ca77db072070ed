/* The HDF5 file of a checkpoint while it is written, or read: through the library's own driver,
 * which remembers the first failure and lets HDF5 close the file, or through HDF5's, where the
 * release of HDF5 is one that the driver does not know. */
#ifndef GPUFI_HDF5_CHECKPOINT_FILE_H
#define GPUFI_HDF5_CHECKPOINT_FILE_H

#include "hdf5/driver/driver.h"
#include "hdf5/session.h"

/* Used by one thread. Zeroed: none. */
typedef struct gpufi_checkpoint_file {
  hid_t id;
  gpufi_h5_driver_file *driven; /* NULL with HDF5's driver */
  gpufi_h5_mapping mapping;     /* once it is finished: through which it was written, or none */
} gpufi_checkpoint_file;

/* Make the file at `path`, or empty the one that is there; with `recycles`, its blocks are
 * overwritten. Not entered, before or after. */
gpuf_status gpufi_checkpoint_file_create(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                         const char *path, bool recycles, gpuf_error *err);
/* Open a finished file for reading, without HDF5's lock. GPUF_ERR_IO if the system refuses,
 * GPUF_ERR_STATE if HDF5 has failed before it came to the file, as beside H5close, and another
 * status for what is no HDF5 file. Not entered, before or after. */
gpuf_status gpufi_checkpoint_file_open(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                       const char *path, gpuf_error *err);
/* What the system has refused so far, as GPUF_ERR_IO with errno, the offset and the path. */
gpuf_status gpufi_checkpoint_file_error(const gpufi_checkpoint_file *file, gpuf_error *err);
/* GPUF_ERR_STATE if HDF5 has closed the open file, as H5close does: its identifier is none any
 * more, or another file's. Not entered, before or after. */
gpuf_status gpufi_checkpoint_file_check_open(const gpufi_checkpoint_file *file,
                                             gpufi_h5_session *session, gpuf_error *err);
/* Whether what is written from now on is elements of tensors. */
void gpufi_checkpoint_file_note_elements(gpufi_checkpoint_file *file, bool notes_elements);
/* Close it, and take over where the elements lie, which is empty with HDF5's driver, and the
 * mapping; the caller frees both. As gpufi_checkpoint_file_close. */
gpuf_status gpufi_checkpoint_file_finish(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                         const char *path, gpufi_h5_extents *elements,
                                         gpuf_error *err);
/* Close it: GPUF_OK if all that was written is in the file, and nothing failed while it was read;
 * GPUF_ERR_STATE if HDF5 has closed it before. Not entered, before or after. */
gpuf_status gpufi_checkpoint_file_close(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                        const char *path, gpuf_error *err);

#endif
