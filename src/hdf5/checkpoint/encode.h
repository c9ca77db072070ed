/* Snapshots that a device encodes, a batch of chunks at a time. */
#ifndef GPUFI_HDF5_CHECKPOINT_ENCODE_H
#define GPUFI_HDF5_CHECKPOINT_ENCODE_H

#include "hdf5/checkpoint/contents.h"
#include "hdf5/checkpoint/queue.h"

/* Encode the chunks of a tensor on a device, behind the work on its stream, and put them into the
 * queue: those of its shards' parts in turn, a batch at a time. Returns when the tensor has been
 * read. *is_encoded is false, and nothing is in the queue, where the device cannot encode it: it or
 * the queue has too little memory, or the elements are not aligned. */
gpuf_status gpufi_checkpoint_encode(gpufi_checkpoint_queue *queue, const gpufi_checkpoint_tensor *t,
                                    bool *is_encoded, gpuf_error *err);

/* Do beforehand what the first of `writer_count` writers of equal parts of a state would do beside
 * a simulation that keeps the device full: take the memory for batches, which the library keeps for
 * later, and encode one, of float32 and of float64. The system loads a kernel when it is launched
 * for the first time, and may wait for all that is enqueued before. `memory`, as large as the
 * state, is on the device, and is partly cleared. What fails here is done later. */
void gpufi_checkpoint_encode_prepare(const gpuf_tensor *memory, size_t writer_count);

#endif
