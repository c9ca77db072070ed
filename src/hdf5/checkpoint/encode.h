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

/* Have the library take now what it takes of a device while it encodes `writer_count` tensors of
 * `nbytes` side by side, and keep it for later: a device that has a simulation's work to do may let
 * whoever takes memory wait for it. `keeps` as where gpufi_checkpoint_encode does it. Where
 * there is too little memory it is taken later. */
void gpufi_checkpoint_encode_prepare(gpuf_device device, size_t nbytes, size_t writer_count,
                                     bool keeps);

#endif
