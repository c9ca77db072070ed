/* The thread that writes checkpoints. */
#ifndef GPUFI_HDF5_CHECKPOINT_WRITER_H
#define GPUFI_HDF5_CHECKPOINT_WRITER_H

#include "hdf5/checkpoint/state.h"

/* Start it. It returns once c->ends is set and nothing is left to be written. */
gpuf_status gpufi_checkpoint_start_writer(gpuf_checkpoint *c, gpuf_error *err);
/* Wait while it has something to do, at most until the deadline (NULL: no limit). False where it
 * still has. Called with the lock held. */
bool gpufi_checkpoint_await_writer(gpuf_checkpoint *c, const struct timespec *deadline);
/* Let it return, and wait until it has. */
void gpufi_checkpoint_end_writer(gpuf_checkpoint *c);
/* At exit(): as gpufi_checkpoint_member says. */
void gpufi_checkpoint_give_up(gpufi_checkpoint_member *member);

#endif
