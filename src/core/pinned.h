/* Mapping and page-locking host memory, without any bookkeeping. Thread-safety: any thread. */
#ifndef GPUFI_CORE_PINNED_H
#define GPUFI_CORE_PINNED_H

#include "backend/backend.h"

/* Map `nbytes` (a multiple of 4096) aligned to 4096, or to 2 MiB from that size up, with huge
 * pages advised. NULL when the system has no more. Release with gpufi_unmap. */
void *gpufi_map(size_t nbytes);
void gpufi_unmap(void *base, size_t nbytes);

/* Fault the pages of a mapping in, by several threads, and page-lock them as one range: CUDA
 * refuses a transfer that crosses from one page-locked range into the next, which a framework that
 * is given such an array would meet. `device` is one that is in use anyway. */
gpuf_status gpufi_pin(const gpufi_backend *backend, int32_t device, void *base, size_t nbytes,
                      gpuf_error *err);

#endif
