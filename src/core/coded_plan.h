/* How a copy that crosses the link encoded is cut into chunks and batches. Thread-safety: any
 * thread. */
#ifndef GPUFI_CORE_CODED_PLAN_H
#define GPUFI_CORE_CODED_PLAN_H

#include "core/plan.h"

#define GPUFI_CODED_ALIGN_NBYTES 16 /* between the raw chunks of a batch */

/* Complete the plan of a copy to the host. `host_side` has its axes in the order of memory. */
gpuf_status gpufi_coded_plan(gpufi_copy *copy, const gpuf_tensor *host_side,
                             const gpuf_copy_options *options, gpuf_error *err);

#endif
