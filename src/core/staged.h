/* Copies through staging buffers: each thread takes the next piece and copies it between a staging
 * buffer and host memory. */
#ifndef GPUFI_CORE_STAGED_H
#define GPUFI_CORE_STAGED_H

#include "core/future.h"

/* Let the future's threads carry its planned copy out in this way. */
void gpufi_staged_prepare(gpuf_future *future);

#endif
