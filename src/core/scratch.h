/* Device memory that strided data is packed into on its way. Scratch is kept for reuse and bounded
 * in all: to 64 MiB for each device, or what the environment variable GPUFETCH_SCRATCH_MAX_NBYTES
 * says, but to no less than one gpufi_scratch. Thread-safety: any thread. */
#ifndef GPUFI_CORE_SCRATCH_H
#define GPUFI_CORE_SCRATCH_H

#include "backend/backend.h"

#define GPUFI_SCRATCH_NBYTES ((size_t)4 << 20)

typedef struct gpufi_scratch {
  struct gpufi_scratch *next; /* while nobody holds it */
  gpuf_device device;
  void *d_data;      /* GPUFI_SCRATCH_NBYTES */
  gpufi_event *idle; /* recorded behind the last work that uses the memory */
} gpufi_scratch;

/* Take scratch for work on `stream`, which starts after the work that used the scratch before. If
 * the bound is reached, the call with `wait` waits until another thread gives some back; the
 * calling thread must hold none then, so that those who hold scratch wait for nothing but the
 * device. Without `wait` it is GPUF_ERR_NO_DEVICE_MEMORY. */
gpuf_status gpufi_scratch_take(const gpufi_backend *backend, gpuf_device device, gpuf_stream stream,
                               bool wait, gpufi_scratch **scratch, gpuf_error *err);

/* Give scratch back when the last work that uses it is enqueued on `stream`; the work need not be
 * done. NULL is allowed. */
void gpufi_scratch_give(const gpufi_backend *backend, gpufi_scratch *scratch, gpuf_stream stream);

#endif
