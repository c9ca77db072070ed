/* Forked children. A child has its parent's memory, but not its threads, and it cannot use its
 * devices. Calls that need host memory alone work there. Thread-safety: any thread. */
#ifndef GPUFI_BASE_FORK_H
#define GPUFI_BASE_FORK_H

#include <gpufetch/gpufetch.h>
#include <pthread.h>

/* Fill `err` for a call that a forked child may not make, and return GPUF_ERR_STATE. */
gpuf_status gpufi_refuse_after_fork(gpuf_error *err);

/* As gpufi_refuse_after_fork if `process_id`, which made an object, is not this process. */
gpuf_status gpufi_check_process(int64_t process_id, gpuf_error *err);

/* Hold a mutex while the process forks, from now on, so that its child has it free and what it
 * guards whole, whatever other threads did. Called once for each mutex, of which there are at most
 * 8; a thread that holds one waits for nothing that the forking thread may hold. */
void gpufi_hold_at_fork(pthread_mutex_t *mutex);

#endif
