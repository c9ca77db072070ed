/* The chunks that HDF5 holds for a dataset, and where it is wrong about them. */
#ifndef GPUFI_HDF5_STORED_H
#define GPUFI_HDF5_STORED_H

#include "hdf5/dataset.h"

/* Before reading: let HDF5 write the dataset's chunks that it has in memory. Its calls that read a
 * stored chunk would write them, too, but lose one that they cannot write. Here it stays in memory,
 * and the call is GPUF_ERR_HDF5. Entered. */
gpuf_status gpufi_h5_stored_flush(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  gpuf_error *err);

/* Before HDF5 reads the elements of a box: GPUF_ERR_CORRUPT where a chunk has less bytes than the
 * checksum that filter fletcher32 has put last, from which HDF5 would read beyond its end. Entered.
 */
gpuf_status gpufi_h5_stored_check(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const gpufi_h5_box *box, gpuf_error *err);

/* Before writing: whether HDF5 would take what H5Dwrite_chunk writes for a chunk that skipped its
 * filter. H5Dwrite knows what it writes. Entered. */
bool gpufi_h5_stored_mask_is_mistaken(const gpufi_h5_session *session,
                                      const gpufi_h5_dataset *dataset);

/* Whether there is a chunk that HDF5 does not find where it looks for it to read elements, and
 * where the first one starts. Where bits of the file have changed, it may list chunks that it does
 * not find. Entered. */
gpuf_status gpufi_h5_stored_missing(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                    bool *is_missing, int64_t *start, gpuf_error *err);

#endif
