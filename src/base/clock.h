/* Clocks, and deadlines on the monotonic one. Thread-safety: any thread. */
#ifndef GPUFI_BASE_CLOCK_H
#define GPUFI_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define GPUFI_NS_PER_S INT64_C(1000000000)

/* The time of CLOCK_MONOTONIC in nanoseconds. */
int64_t gpufi_clock_ns(void);
/* Nanoseconds on a clock of the system's, such as CLOCK_REALTIME. */
int64_t gpufi_clock_read_ns(clockid_t clock);

/* The time `timeout_ns` (>= 0) from now on CLOCK_MONOTONIC, as pthread_cond_timedwait takes it for
 * a condition whose clock that is. */
struct timespec gpufi_deadline_after(int64_t timeout_ns);

/* A duration (>= 0) as the system's calls take it. */
struct timespec gpufi_timespec(int64_t duration_ns);

/* Let the calling thread sleep for `duration_ns`, however many signals arrive. */
void gpufi_sleep_ns(int64_t duration_ns);

/* Make a condition whose clock is CLOCK_MONOTONIC. */
void gpufi_condition_init(pthread_cond_t *condition);

#endif
