/* Planning a reduction, and running it on a device or on the CPU. Thread-safety: any thread. */
#ifndef GPUFI_CORE_REDUCE_H
#define GPUFI_CORE_REDUCE_H

#include "backend/reduce.h"

/* Plan for a checked tensor of a real type with at least one element. `shape` has the number of
 * cells along each axis; NULL means one cell in all. In that case the direction of the axes does
 * not matter, and *base may be another corner than the tensor's data. The caller sets `kind`,
 * `result_dtype` and the members for histograms. */
void gpufi_reduce_plan(gpufi_reduce *job, const gpuf_tensor *src, const int64_t *shape,
                       const char **base);

/* A result up to this size comes through a staging buffer as a whole. The planes of a larger one
 * are transferred one by one, which is quicker than to copy them out of the staging buffer. */
#define GPUFI_REDUCE_STAGED_NBYTES_MAX ((size_t)512 << 10)

/* Run the job where the tensor lies, and wait. `edges` are a histogram's, and NULL otherwise. The
 * result goes to *head and to `planes`, which are host memory of any kind; only a MINMAX has a
 * second plane. After a failure they may be partly written. */
gpuf_status gpufi_reduce_run(const gpufi_reduce *job, const gpuf_tensor *src, const char *base,
                             const double *edges, gpufi_reduce_head *head, void *const planes[2],
                             gpuf_error *err);

#endif
