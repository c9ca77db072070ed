/* Reductions in plain C: the reference of the CUDA kernels, and what CPU tensors use. */
#ifndef GPUFI_BACKEND_HOST_REDUCE_H
#define GPUFI_BACKEND_HOST_REDUCE_H

#include "backend/reduce.h"

/* Fill the result block at `result`, on the calling thread. `base` may have any alignment. */
void gpufi_host_reduce_compute(const gpufi_reduce *job, const void *base, void *result);

/* As the backend's entry `reduce`. */
gpuf_status gpufi_host_reduce(int32_t device, const gpufi_reduce *job, const void *d_base,
                              void *d_result, void *d_scratch, gpuf_stream stream, gpuf_error *err);

#endif
