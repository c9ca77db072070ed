/* What the writer's thread does with the files of one checkpoint, alone or for several ranks. */
#ifndef GPUFI_HDF5_CHECKPOINT_OUTPUT_H
#define GPUFI_HDF5_CHECKPOINT_OUTPUT_H

#include "hdf5/checkpoint/expired.h"
#include "hdf5/checkpoint/rank_files.h"
#include "hdf5/checkpoint/state.h"

/* GPUF_ERR_STATE: the process ends. */
gpuf_status gpufi_checkpoint_fail_at_end(gpuf_error *err);
/* Begin to use HDF5 and devices, which fails where the process ends: then neither may be used any
 * more. And end it. */
gpuf_status gpufi_checkpoint_enter(gpuf_checkpoint *c, gpuf_error *err);
void gpufi_checkpoint_leave(gpuf_checkpoint *c);

/* Fill the temporary of what `contents` say; it is removed unless it is whole. *nbytes: its size.
 */
gpuf_status gpufi_checkpoint_fill(gpuf_checkpoint *c, gpufi_checkpoint_contents *contents,
                                  const gpufi_checkpoint_temporary *temporary, uint64_t *nbytes,
                                  gpuf_error *err);
/* The committer may still be taking the snapshot: it ends with a failure of the writer's. */
void gpufi_checkpoint_end_snapshot(gpuf_checkpoint *c, gpuf_status status, const gpuf_error *error);

/* What is promised once `step` is finished. */
gpufi_checkpoint_keeping gpufi_checkpoint_keeping_of(gpuf_checkpoint *c, int64_t step);
/* Remove what the step of `contents` had before, and what has expired. */
void gpufi_checkpoint_remove_older(gpuf_checkpoint *c, const gpufi_checkpoint_contents *contents,
                                   gpuf_error *note);
/* Whether the step's master, open as `fd`, has its name: where that could not be flushed alone, it
 * has. */
bool gpufi_checkpoint_is_published(const gpuf_checkpoint *c, int fd);

/* What this rank leaves rank 0. */
gpufi_checkpoint_rank_file gpufi_checkpoint_rank_file_of(const gpuf_checkpoint *c);

#endif
