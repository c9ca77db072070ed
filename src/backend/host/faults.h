/* Faults and a slow link that tests inject into the host backend. */
#ifndef GPUFI_BACKEND_HOST_FAULTS_H
#define GPUFI_BACKEND_HOST_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Process-wide. Changed at any time; work that already runs may see either setting. */
typedef struct gpufi_host_faults {
  int64_t alloc_fail_after;       /* device allocations that still succeed; -1 = no limit */
  int64_t copy_fail_after_nbytes; /* bytes that are still copied; -1 = no limit */
  int64_t link_nbytes_per_second; /* 0 = as fast as the machine */
  int64_t latency_ns;             /* before each copy or kernel; 0 = none */
} gpufi_host_faults;

#define GPUFI_HOST_FAULTS_NONE ((gpufi_host_faults){-1, -1, 0, 0})

void gpufi_host_faults_set(const gpufi_host_faults *faults);

/* What the work asks: whether an allocation may succeed; how many of `nbytes` a copy may write
 * before the injected failure; and a sleep as long as the link takes for `nbytes`. */
bool gpufi_host_take_alloc(void);
size_t gpufi_host_take_copy(size_t nbytes);
void gpufi_host_delay(size_t nbytes);

#endif
