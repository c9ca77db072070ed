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
 * A master's has format 2, and of a tensor that shards hold other lines:
 *
 *   shard 38 run-000000001000.0123456789abcdef.0.h5 0123456789abcdef 89abcdef01234567 1048576
 *                                                                        0123456789abcdef
 *   sharded 1 u float32 3 64 64 64 2
 *   part 1 u 0 0 0 0 32 64 64 8 262144 0123456789abcdef
 *   part 1 u 1 32 0 0 32 64 64 8 262144 0123456789abcdef
 *
 * (a shard is one line). After the name of a shard's file: its UUID in two halves, of which the
 * first one is that of all shards; its size; and the last checksum in its seal. After that of a
 * sharded tensor: dtype, rank, shape, and how many lines of parts follow. After that of a part's
 * dataset: the shard, from 0; start and shape; number of chunks, their stored bytes, and their sum.
 * A shard's own manifest has a line for each dataset, as a file has that is alone, and one that
 * begins with "self", as the master's line does with "shard", of which the last two numbers are 0.
 *
 * What a rank tells rank 0 of its shards (rank_files.h) has the same lines, with its own shards,
 * whose numbers begin at 0, and each of its tensors as a sharded one of the whole's shape, with the
 * parts that it holds, of which there may be none.
 *
 * Each line ends with a newline. Before a name or a text stands its number of bytes. After a
 * tensor's name: dtype, rank, shape, number of chunks, their stored bytes, and the sum of digest.h;
 * a float64 is its bits. Thread-safety: re-entrant. */
#ifndef GPUFI_HDF5_CHECKPOINT_MANIFEST_H
#define GPUFI_HDF5_CHECKPOINT_MANIFEST_H

#include "hdf5/checkpoint/contents.h"

#define GPUFI_CHECKPOINT_PARTS_MAX 16384 /* of a tensor, which are compared with each other */

/* Write the text, which the caller frees. */
gpuf_status gpufi_checkpoint_manifest_format(const gpufi_checkpoint_contents *contents, char **text,
                                             size_t *nbytes, gpuf_error *err);

/* Read it into `contents`, which is empty before, but for is_share, which says what it must be,
 * and, after a failure, holds something to clear. The text is untrusted, and need not end with a
 * NUL: GPUF_ERR_CORRUPT where it is no manifest, and GPUF_ERR_UNSUPPORTED for one of a newer
 * format. */
gpuf_status gpufi_checkpoint_manifest_parse(gpufi_checkpoint_contents *contents, const char *text,
                                            size_t nbytes, gpuf_error *err);

#endif
