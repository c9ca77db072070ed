/* Copies to the host that cross the link encoded.
 *
 * The elements, in the order of host memory, are cut into chunks that are contiguous there. The
 * device encodes a batch of them at a time, which it packs first if they are not contiguous on its
 * side; the encoded bytes cross into pinned memory, and the threads of the copy decode one chunk
 * each into place. The thread that finds the device ready for its next step takes that step, so
 * that no thread has to be kept for it and one thread suffices. */
#ifndef GPUFI_CORE_CODED_H
#define GPUFI_CORE_CODED_H

#include "core/future.h"

/* Let the future's threads carry its planned copy out in this way, and allocate what that takes. It
 * is freed when the last thread has ended. On failure the future is unchanged. */
gpuf_status gpufi_coded_prepare(gpuf_future *future, gpuf_error *err);

#endif
