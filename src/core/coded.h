/* Copies to the host that cross the link encoded: the device encodes, and threads take the next
 * chunk each and decode it into place. */
#ifndef GPUFI_CORE_CODED_H
#define GPUFI_CORE_CODED_H

#include "core/future.h"

/* Let the future's threads carry its planned copy out in this way, and allocate what that takes. It
 * is freed when the last thread has ended. On failure the future is unchanged. */
gpuf_status gpufi_coded_prepare(gpuf_future *future, gpuf_error *err);

#endif
