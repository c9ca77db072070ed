/* Facts about the process and the machine. Thread-safety: any thread. */
#ifndef GPUFI_BASE_SYSTEM_H
#define GPUFI_BASE_SYSTEM_H

#include <stdint.h>

/* The value of an environment variable that is a count or a size; `fallback` if it is not set or
 * not a whole number. */
int64_t gpufi_env_int64(const char *name, int64_t fallback);

/* The number of processors that this process may run on; at least 1. */
int32_t gpufi_cpu_count(void);

/* When a process started, in clock ticks since boot; 0 if there is no such process. */
uint64_t gpufi_process_start_time(int64_t process_id);

/* A new descriptor, or -1 with errno: `fd`, moved to 3 or above where the program has closed one of
 * its standard streams, whose output would go into it otherwise. Close-on-exec. */
int gpufi_fd_above_stdio(int fd);

#endif
