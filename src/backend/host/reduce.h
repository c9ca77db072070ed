/* Reductions on the host backend. */
#ifndef GPUFI_BACKEND_HOST_REDUCE_H
#define GPUFI_BACKEND_HOST_REDUCE_H

#include "backend/reduce.h"

/* As the backend's entries. */
size_t gpufi_host_reduce_scratch_nbytes(const gpufi_reduce *job, const void *d_base);
gpuf_status gpufi_host_reduce(int32_t device, const gpufi_reduce *job, const void *d_base,
                              void *d_result, void *d_scratch, gpuf_stream stream, gpuf_error *err);

#endif
