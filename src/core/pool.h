/* The pinned pool, as the rest of the core sees it. Thread-safety: every call, from any thread. */
#ifndef GPUFI_CORE_POOL_H
#define GPUFI_CORE_POOL_H

#include <gpufetch/gpufetch.h>

/* As gpuf_pool_acquire, for staging buffers that a copy in progress needs. They may go over the cap
 * by what the copy's threads need, which is bounded. */
gpuf_status gpufi_pool_acquire_staging(gpuf_device device, size_t nbytes, void **ptr,
                                       gpuf_error *err);

/* True if [ptr, ptr + nbytes) lies in one buffer that the pool holds pinned for `kind`. */
bool gpufi_pool_is_pinned(gpuf_device_kind kind, const void *ptr, size_t nbytes);

#endif
