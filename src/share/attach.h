/* The importer's attachments, and the allocations of other processes that are open for them, each
 * once. Thread-safety: any thread. */
#ifndef GPUFI_SHARE_ATTACH_H
#define GPUFI_SHARE_ATTACH_H

#include <gpufetch/gpufetch.h>

/* True if the address lies in another process's allocation that is attached here. */
bool gpufi_share_is_attached(gpuf_device_kind kind, const void *d_ptr);

#endif
