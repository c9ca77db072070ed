/* Where the tensors of a checkpoint are kept from its commit until they are in the file.
 *
 * Tensors on the CPU are copied to host memory. Those on the device are copied within it, as long
 * as there is room for them; otherwise they are encoded there, and wait in the queue; and where the
 * device cannot encode them they are copied to host memory, too. */
#ifndef GPUFI_HDF5_CHECKPOINT_SNAPSHOT_H
#define GPUFI_HDF5_CHECKPOINT_SNAPSHOT_H

#include <gpufetch/checkpoint.h>

#include "core/channel.h"
#include "hdf5/checkpoint/contents.h"
#include "hdf5/checkpoint/queue.h"

/* Host memory that is filled from its begin. */
typedef struct gpufi_checkpoint_host {
  uint8_t *base; /* of gpufi_map; NULL while there is none */
  size_t nbytes;
  size_t used_nbytes;
} gpufi_checkpoint_host;

/* Host memory for one tensor of one snapshot. */
typedef struct gpufi_checkpoint_spill {
  struct gpufi_checkpoint_spill *next;
  gpufi_checkpoint_host host;
} gpufi_checkpoint_spill;

/* Used by the thread that takes it, and then by the one that writes it; the queue by both. */
typedef struct gpufi_checkpoint_snapshot {
  gpuf_checkpoint_mode mode; /* as chosen */
  gpuf_device device;
  const gpufi_backend *backend; /* NULL where the device is the CPU */
  bool encodes;                 /* chunks are stored encoded */
  uint8_t *d_memory;            /* for copies, or the queue's ring */
  size_t device_nbytes;
  size_t d_used_nbytes; /* by copies */
  void *pinned;         /* the queue's ring */
  size_t pinned_nbytes;
  gpufi_checkpoint_host host;            /* kept for the next snapshot */
  struct gpufi_checkpoint_spill *spills; /* for what was to be encoded and could not be */
  gpufi_channel *channel; /* its stream has the copies on the device; NULL between snapshots */
  gpufi_checkpoint_queue queue;
} gpufi_checkpoint_snapshot;

/* Choose the mode and reserve memory. Close it also after a failure. */
gpuf_status gpufi_checkpoint_snapshot_open(gpufi_checkpoint_snapshot *snapshot,
                                           const gpuf_checkpoint_options *options, gpuf_error *err);
void gpufi_checkpoint_snapshot_close(gpufi_checkpoint_snapshot *snapshot);

/* Take the tensors of `contents`, one after another, as they are behind the work that is now on
 * `stream` and on their own: each is replaced by its copy, or its chunks go to the queue, which is
 * told. The queue was reset before. */
gpuf_status gpufi_checkpoint_snapshot_take(gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_contents *contents, gpuf_stream stream,
                                           gpuf_error *err);
/* Whether the copies on the device, which are enqueued, have taken place: before the checkpoint
 * gets its name. Once the queue has ended. */
gpuf_status gpufi_checkpoint_snapshot_check(const gpufi_checkpoint_snapshot *snapshot,
                                            gpuf_error *err);
/* Once it is written, or given up: let the next one use the memory. */
void gpufi_checkpoint_snapshot_release(gpufi_checkpoint_snapshot *snapshot);

/* Have room for `nbytes` in `host`; what is there is lost. And give it back. */
gpuf_status gpufi_checkpoint_host_need(gpufi_checkpoint_host *host, size_t nbytes, gpuf_error *err);
void gpufi_checkpoint_host_free(gpufi_checkpoint_host *host);

/* The host memory that is reserved now. */
size_t gpufi_checkpoint_snapshot_host_nbytes(const gpufi_checkpoint_snapshot *snapshot);

#endif
