/* The manifest: what belongs to a checkpoint, as text that ends with its checksum.
 *
 *   gpufetch checkpoint 1
 *   library 0.1.0
 *   step 1000
 *   int64 4 seed 42
 *   float64 4 time 3fd0000000000000
 *   text 4 note 5 hello
 *   tensor 1 u float32 3 64 64 64 16 524288 0123456789abcdef
 *   end 0123456789abcdef
 *
 * Each line ends with a newline. Before a name or a text stands its number of bytes. After a
 * tensor's name: dtype, rank, shape, number of chunks, their stored bytes, and the sum of digest.h;
 * a float64 is its bits. Thread-safety: re-entrant. */
#ifndef GPUFI_HDF5_CHECKPOINT_MANIFEST_H
#define GPUFI_HDF5_CHECKPOINT_MANIFEST_H

#include "hdf5/checkpoint/contents.h"

/* Write the text, which the caller frees. */
gpuf_status gpufi_checkpoint_manifest_format(const gpufi_checkpoint_contents *contents, char **text,
                                             size_t *nbytes, gpuf_error *err);

/* Read it into `contents`, which is empty before and, after a failure, holds something to clear.
 * The text is untrusted, and need not end with a NUL: GPUF_ERR_CORRUPT where it is no manifest, and
 * GPUF_ERR_UNSUPPORTED for one of a newer format. */
gpuf_status gpufi_checkpoint_manifest_parse(gpufi_checkpoint_contents *contents, const char *text,
                                            size_t nbytes, gpuf_error *err);

#endif
