/* Reductions: the plan, and running it on a device or on the CPU. */
#ifndef GPUFI_CORE_REDUCE_H
#define GPUFI_CORE_REDUCE_H

#include "backend/reduce.h"

/* Plan for a checked tensor with at least one element, of a real type. `shape` gives the cells of
 * each axis, and NULL one cell in all; then the axes' direction does not matter and *base (else
 * the tensor's data) may be another corner of it. `kind` and `bin_count` are left to the caller. */
void gpufi_reduce_plan(gpufi_reduce *job, const gpuf_tensor *src, const int64_t *shape,
                       const char **base);

/* Receives the head and then consecutive cells first .. first+count-1, on the calling thread. */
typedef struct gpufi_reduce_sink {
  void (*head)(void *context, const gpufi_reduce_head *head);
  void (*cells)(void *context, const void *cells, int64_t first, int64_t count);
  void *context;
} gpufi_reduce_sink;

/* Run the job where the tensor lies, and wait. `edges`: of a histogram, else NULL. */
gpuf_status gpufi_reduce_run(const gpufi_reduce *job, const gpuf_tensor *src, const char *base,
                             const double *edges, const gpufi_reduce_sink *sink, gpuf_error *err);

#endif
