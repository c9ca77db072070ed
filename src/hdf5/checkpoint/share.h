/* What the writer's thread does where several ranks write one checkpoint: each its shards, and then
 * rank 0 their master. */
#ifndef GPUFI_HDF5_CHECKPOINT_SHARE_H
#define GPUFI_HDF5_CHECKPOINT_SHARE_H

#include "hdf5/checkpoint/state.h"

/* Write this rank's shards, and tell rank 0 of them. c->written says how that ended. */
void gpufi_checkpoint_write_share(gpuf_checkpoint *c);
/* On rank 0, once all have: write the master of all shards, give it its name, and remove what has
 * expired. */
void gpufi_checkpoint_join_shares(gpuf_checkpoint *c);

#endif
