/* Reductions: the plan, and running it on a device or on the CPU. */
#ifndef GPUFI_CORE_REDUCE_H
#define GPUFI_CORE_REDUCE_H

#include "backend/reduce.h"

/* Plan for a checked tensor with at least one element, of a real type. `shape` gives the cells of
 * each axis, and NULL one cell in all; then the axes' direction does not matter and *base (else
 * the tensor's data) may be another corner of it. `kind`,
 * `result_dtype` and what is a histogram's are left to the caller. */
void gpufi_reduce_plan(gpufi_reduce *job, const gpuf_tensor *src, const int64_t *shape,
                       const char **base);

/* A result block up to this size comes through a staging buffer as a whole; above it, copying the
 * planes out of there would take longer than a transfer of their own. */
#define GPUFI_REDUCE_STAGED_NBYTES_MAX ((size_t)512 << 10)

/* Run the job where the tensor lies, and wait. `edges`: of a histogram, else NULL. The result
 * block goes to *head and, a plane each, to `planes` (the second of a MINMAX only), in host memory
 * of any kind; after a failure they are partly written. */
gpuf_status gpufi_reduce_run(const gpufi_reduce *job, const gpuf_tensor *src, const char *base,
                             const double *edges, gpufi_reduce_head *head, void *const planes[2],
                             gpuf_error *err);

#endif
