/* Reductions in plain C: the reference of the CUDA kernels, and what CPU tensors use. */
#ifndef GPUFI_BACKEND_HOST_REDUCE_H
#define GPUFI_BACKEND_HOST_REDUCE_H

#include "backend/reduce.h"

size_t gpufi_host_reduce_scratch_nbytes(const gpufi_reduce *job);

/* Fill the result block at `result`, on the calling thread. `base` may have any alignment;
 * `scratch` is as aligned as malloc's memory. */
void gpufi_host_reduce_compute(const gpufi_reduce *job, const void *base, void *result,
                               void *scratch);

/* As the backend's entry `reduce`. */
gpuf_status gpufi_host_reduce(int32_t device, const gpufi_reduce *job, const void *d_base,
                              void *d_result, void *d_scratch, gpuf_stream stream, gpuf_error *err);

#endif
