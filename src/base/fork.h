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

/* The order of the library's handlers at a fork: those of a higher number prepare first. A thread
 * that holds the mutex of one may wait for those of lower numbers alone. */
#define GPUFI_FORK_LEAF 1000 /* mutexes that are held while no other is waited for */
#define GPUFI_FORK_WORKERS 1001
#define GPUFI_FORK_SHARE 1002
#define GPUFI_FORK_HDF5 1003 /* no thread begins to call HDF5 */
#define GPUFI_FORK_CHECKPOINT_HDF5 1004
#define GPUFI_FORK_CHECKPOINT 1005

/* Let `prepare`, `parent` and `child` (NULL: nothing) be called at forks, for the file that this
 * stands in. They are registered when the library is loaded. So the program's own handlers, which
 * it registers later, prepare first: a program takes its locks before the library's, as its threads
 * do that call the library. */
#define GPUFI_AT_FORK(order, prepare, parent, child)                                               \
  __attribute__((constructor(order))) static void watch_fork(void) {                               \
    pthread_atfork(prepare, parent, child);                                                        \
  }                                                                                                \
  _Static_assert((order) >= GPUFI_FORK_LEAF, "an order of those above")

/* Hold a mutex of the file while the process forks, so that its child has it free and what it
 * guards whole. */
#define GPUFI_HOLD_AT_FORK(order, mutex)                                                           \
  static void hold_at_fork(void) {                                                                 \
    pthread_mutex_lock(mutex);                                                                     \
  }                                                                                                \
  static void release_after_fork(void) {                                                           \
    pthread_mutex_unlock(mutex);                                                                   \
  }                                                                                                \
  GPUFI_AT_FORK(order, hold_at_fork, release_after_fork, release_after_fork)

#endif
