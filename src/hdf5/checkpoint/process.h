/* The writers of this process, at its forks and at its end. Thread-safety: any thread. */
#ifndef GPUFI_HDF5_CHECKPOINT_PROCESS_H
#define GPUFI_HDF5_CHECKPOINT_PROCESS_H

#include <gpufetch/gpufetch.h>

#include "hdf5/checkpoint/leftovers.h"

/* An open writer. The members are constant while it is one. */
typedef struct gpufi_checkpoint_member {
  struct gpufi_checkpoint_member *next;
  int lock_fd; /* closed in forked children, which would hold the lock otherwise */
  const gpufi_checkpoint_leftovers *leftovers; /* whose descriptors are closed there, too */
  /* At exit(): give up what is being written, and return once neither HDF5 nor a device is in use.
   */
  void (*give_up)(struct gpufi_checkpoint_member *member);
} gpufi_checkpoint_member;

/* Watch for forks and for the end of the process; called once HDF5 is bound, so that HDF5's own
 * handlers come after. */
gpuf_status gpufi_checkpoint_watch_process(gpuf_error *err);
/* The calling thread writes checkpoints from here on, and nothing at the process's end waits for
 * what it does, should it be the one that ends the process. */
void gpufi_checkpoint_begin_writing(void);
void gpufi_checkpoint_member_add(gpufi_checkpoint_member *member);
void gpufi_checkpoint_member_remove(gpufi_checkpoint_member *member);

#endif
