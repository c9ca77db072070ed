/* Facts about the process and the machine. Thread-safety: any thread. */
#ifndef GPUFI_BASE_SYSTEM_H
#define GPUFI_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of an environment variable that is a count or a size; `fallback` if it is not set or
 * not a whole number. */
int64_t gpufi_env_int64(const char *name, int64_t fallback);
/* Whether the variable is not set, empty, or such a whole number. */
bool gpufi_env_is_int64(const char *name);

/* The number of processors that this process may run on; at least 1. */
int32_t gpufi_cpu_count(void);

/* When a process started, in clock ticks since boot; 0 if there is no such process, also if it has
 * ended and its parent has not waited for it yet. */
uint64_t gpufi_process_start_time(int64_t process_id);
/* The process that is a process's parent; 0 if it has none that can be seen from here. */
int64_t gpufi_process_parent(int64_t process_id);

/* Fill `bytes` with random bytes of the system's; at most 256. False, with errno, if it has none.
 */
bool gpufi_random_bytes(void *bytes, size_t nbytes);

/* open(2), close-on-exec and above the standard streams, again where a signal interrupts it. */
int gpufi_open(const char *path, int flags, unsigned mode);

/* Read up to `nbytes`, all that there are, whatever signals arrive. -1, with errno, after a
 * failure. */
int64_t gpufi_read(int fd, void *bytes, size_t nbytes);
/* Write all bytes. False, with errno, after a failure; none of them ends the process by SIGXFSZ. */
bool gpufi_write(int fd, const void *bytes, size_t nbytes);
/* close(2); the system has taken the descriptor back also where a signal interrupts it, which is no
 * failure therefore. */
bool gpufi_close(int fd);

/* A new descriptor, or -1 with errno: `fd`, moved to 3 or above where the program has closed one of
 * its standard streams, whose output would go into it otherwise. Close-on-exec. */
int gpufi_fd_above_stdio(int fd);

#endif
