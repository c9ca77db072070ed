/* What a forked child may not do. It has its parent's memory, but neither its threads nor its use
 * of devices. Calls that need host memory alone work there. Thread-safety: any thread. */
#ifndef GPUFI_BASE_FORK_H
#define GPUFI_BASE_FORK_H

#include <gpufetch/gpufetch.h>

/* Fill `err` for a call that a forked child may not make, and return GPUF_ERR_STATE. */
gpuf_status gpufi_refuse_after_fork(gpuf_error *err);

/* As gpufi_refuse_after_fork if `process_id`, which made an object, is not this process. */
gpuf_status gpufi_check_process(int64_t process_id, gpuf_error *err);

#endif
