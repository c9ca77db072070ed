/* What the process and the machine say of themselves. Thread-safety: any thread. */
#ifndef GPUFI_BASE_SYSTEM_H
#define GPUFI_BASE_SYSTEM_H

#include <stdint.h>

/* Value of an environment variable as a count of bytes or things; `fallback` if it is unset or not
 * a whole number. */
int64_t gpufi_env_int64(const char *name, int64_t fallback);

/* Processors this process may run on; at least 1. */
int32_t gpufi_cpu_count(void);

/* Clock ticks since boot at which a process started; 0 if there is no such process. */
uint64_t gpufi_process_start_time(int64_t process_id);

#endif
