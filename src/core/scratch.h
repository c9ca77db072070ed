/* Device memory that strided data is packed into on its way. Blocks are kept for reuse and bounded
 * in all: 64 MiB a device, or the environment variable GPUFETCH_SCRATCH_MAX_NBYTES, at least one
 * block. Thread-safety: any thread. */
#ifndef GPUFI_CORE_SCRATCH_H
#define GPUFI_CORE_SCRATCH_H

#include "backend/backend.h"

#define GPUFI_SCRATCH_NBYTES ((size_t)4 << 20)

typedef struct gpufi_scratch {
  struct gpufi_scratch *next; /* while given back */
  gpuf_device device;
  void *d_data;
  gpufi_event *idle; /* recorded behind the last work that uses the block */
} gpufi_scratch;

/* A block for work on `stream`: that work starts after what used the block before. At the bound,
 * with `wait`, waits for a block that another thread holds: for a thread that holds none, so that
 * holders wait for nothing but the device. Without, GPUF_ERR_NO_DEVICE_MEMORY. */
gpuf_status gpufi_scratch_take(const gpufi_backend *backend, gpuf_device device, gpuf_stream stream,
                               bool wait, gpufi_scratch **scratch, gpuf_error *err);

/* Give a block back as soon as the last work that uses it is enqueued on `stream`; the work need
 * not be done. NULL is allowed. */
void gpufi_scratch_give(const gpufi_backend *backend, gpufi_scratch *scratch, gpuf_stream stream);

#endif
