/* Many copies that one thread carries out, in flight or waited for. */
#ifndef GPUFI_CORE_MANY_H
#define GPUFI_CORE_MANY_H

#include "core/future.h"

/* gpuf_copy_many with complete options. Between two pairs it looks at `future`, unless that is
 * NULL, and ends with the future's failure if there is one. */
gpuf_status gpufi_copy_pairs(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                             const gpuf_copy_options *options, gpuf_future *future,
                             gpuf_error *err);
/* Start what gpuf_copy_many does, on a worker thread. The pairs themselves are copied; the memory
 * of the tensors must stay valid until the future is done. Work that is on the tensors'
 * streams now is waited for, and no later one. If no thread can be had, the copies are
 * done when this returns. On a failure to start, nothing is in flight and *future is NULL.
 * Thread-safety: any thread. */
gpuf_status gpufi_copy_many_async(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                                  const gpuf_copy_options *options, gpuf_future **future,
                                  gpuf_error *err);

#endif
