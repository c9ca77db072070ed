/* Worker threads for copies and for HDF5, from one cache that the process shares.
 *
 * A thread that has finished stays parked for a second, and at most 64 are parked. A call takes
 * parked threads and starts those that are missing; it never waits for the threads of another call.
 * So work that waits for the workers of another call cannot deadlock.
 *
 * Signals are blocked in the threads, as in all of the library's own. Nothing is torn down at exit.
 * A forked child begins with an empty cache, and must not wait for workers of its parent.
 * Thread-safety: any thread; one gpufi_workers is used by one thread at a time. */
#ifndef GPUFI_CORE_WORKERS_H
#define GPUFI_CORE_WORKERS_H

#include <gpufetch/gpufetch.h>
#include <stddef.h>
#include <stdint.h>

/* The threads that one call has taken. Zeroed: none. */
typedef struct gpufi_workers {
  int32_t running_count; /* guarded by the cache's lock */
} gpufi_workers;

/* Let up to `count` more threads call `run(arg)`, once each. Returns how many do so: fewer, down
 * to 0, where the system has no more threads. What none of them does remains for the caller to do,
 * or to report as a failure. */
int32_t gpufi_workers_start(gpufi_workers *workers, int32_t count, void (*run)(void *arg),
                            void *arg);
/* Wait until each of them has returned from `run`. `workers` may be used again. */
void gpufi_workers_wait(gpufi_workers *workers);

/* Call `act` for each index below `count`, on the calling thread and up to thread_max - 1 others.
 * Returns the first failure, after which the other indices take their turn all the same; `err` may
 * be NULL. */
gpuf_status gpufi_workers_each(size_t count, int32_t thread_max,
                               gpuf_status (*act)(void *arg, size_t index, gpuf_error *err),
                               void *arg, gpuf_error *err);

#endif
