/* How a checkpoint ends: at once for a writer that is alone, and otherwise once all ranks have said
 * how theirs did. */
#ifndef GPUFI_HDF5_CHECKPOINT_SETTLE_H
#define GPUFI_HDF5_CHECKPOINT_SETTLE_H

#include "hdf5/checkpoint/state.h"

/* Wait for the writer until the deadline (NULL: without a limit; with `waits` false, not at all),
 * and for the other ranks; then the report says how the last checkpoint ended. False where one is
 * still being written, here or on another rank, or has been begun and neither committed nor
 * aborted. Returns with the lock held, so that another thread commits none before the report is
 * read. Called by all ranks, by the thread whose turn it is. */
bool gpufi_checkpoint_settle(gpuf_checkpoint *c, bool waits, const struct timespec *deadline);
/* Before it is closed: leave what could not be settled to those who open the prefix next. */
void gpufi_checkpoint_leave_unsettled(gpuf_checkpoint *c);

#endif
