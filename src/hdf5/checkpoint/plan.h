/* Which part of a state goes to which shard.
 *
 * The tensors, one behind the other in the order in which they were added, are cut into as many
 * ranges as there are shards, of as many bytes. A tensor is cut between its chunks only, along the
 * first axis along which it has more than one chunk: what lies between two cuts is a box of it, and
 * a contiguous range of its chunks. So one huge tensor is spread over all shards, as are many small
 * ones, to within one layer of chunks; and there are at most as many datasets more than tensors as
 * there are shards, since each dataset costs HDF5 time that no two shards can take at once.
 *
 * Tensors of no axes and empty ones, of which no chunk is made, stay in the master. */
#ifndef GPUFI_HDF5_CHECKPOINT_PLAN_H
#define GPUFI_HDF5_CHECKPOINT_PLAN_H

#include "hdf5/checkpoint/contents.h"

/* The shards of one writer. */
typedef struct gpufi_checkpoint_share {
  size_t count;
  size_t first; /* the index of its first one among those of all ranks; 0 where it is alone */
  uint64_t set; /* that of all ranks; 0: it is alone */
} gpufi_checkpoint_share;

/* Give the tensors parts, and the contents shards with names that no file of the folder has. Of a
 * writer that is alone each shard holds something: there may be fewer than `share->count`, or none.
 * One of several makes all, so that the others' indexes are known. Also the order in which a
 * snapshot is taken, in which the shards come in turn, so that all of them are written at once. */
gpuf_status gpufi_checkpoint_plan(gpufi_checkpoint_contents *contents, const char *prefix,
                                  const gpufi_checkpoint_share *share, gpuf_error *err);

#endif
