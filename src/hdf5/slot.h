/* A place in the ring: a chunk with buffers of its own, and its copy from or to the tensor. */
#ifndef GPUFI_HDF5_SLOT_H
#define GPUFI_HDF5_SLOT_H

#include "hdf5/chunk.h"

/* Whose turn it is, and so who may touch the slot. */
typedef enum gpufi_h5_turn {
  GPUFI_H5_TURN_CALLER,  /* the calling thread's, to read the chunk from the file or write it */
  GPUFI_H5_TURN_WORKERS, /* of the next worker that is free */
  GPUFI_H5_TURN_TAKEN,   /* of the worker that has taken it */
} gpufi_h5_turn;

typedef struct gpufi_h5_slot {
  gpufi_h5_turn turn; /* under the ring's mutex */
  gpufi_h5_chunk chunk;
  bool is_pooled;      /* chunk.raw is pinned memory of the pool */
  gpuf_future *future; /* the copy in flight, or NULL */
} gpufi_h5_slot;

/* False if there is no memory. */
bool gpufi_h5_slot_init(gpufi_h5_slot *slot, const gpufi_h5_transfer *transfer);
/* Waits for the copy in flight. */
void gpufi_h5_slot_fini(gpufi_h5_slot *slot);

/* What a worker does, in two steps, so that it may begin with another chunk while the device copies
 * this one. Reading: load and decode the chunk, begin to copy it to the tensor; wait for the copy.
 * Writing: begin to copy the chunk from the tensor; wait for the copy, encode. `scratch` is of
 * gpufi_h5_scratch_create(). */
gpuf_status gpufi_h5_slot_begin(gpufi_h5_slot *slot, const gpufi_h5_transfer *transfer,
                                void *scratch, gpuf_error *err);
gpuf_status gpufi_h5_slot_end(gpufi_h5_slot *slot, const gpufi_h5_transfer *transfer, void *scratch,
                              gpuf_error *err);

#endif
