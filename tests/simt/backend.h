/* The host backend, but that batches of chunks go through the CUDA codec's kernels, run by simt.h.
 */
#ifndef GPUFI_TEST_SIMT_BACKEND_H
#define GPUFI_TEST_SIMT_BACKEND_H

#include "backend/backend.h"

/* Lives as long as the process. */
const gpufi_backend *simt_backend(void);

#endif
