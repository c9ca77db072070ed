#include "server/parent.h"

#include "base/clock.h"
#include "base/system.h"

#include <unistd.h>

#define GENERATIONS_MAX 64 /* shells and launchers between the manager and the program */

gpufi_parent gpufi_parent_find(void) {
  const int64_t wanted = gpufi_env_int64("JPY_PARENT_PID", 0);
  int64_t ancestor = getppid();
  for (int i = 0; i < GENERATIONS_MAX && ancestor > 0 && ancestor != wanted; i++) {
    ancestor = gpufi_process_parent(ancestor);
  }
  gpufi_parent parent = {0};
  if (wanted > 0 && ancestor == wanted) {
    parent.start_time = gpufi_process_start_time(wanted);
    parent.process_id = parent.start_time != 0 ? wanted : 0;
  }
  return parent;
}

int64_t gpufi_parent_launch_time(void) {
  const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  const uint64_t ticks = gpufi_process_start_time(getpid());
  if (ticks == 0 || ticks_per_second <= 0) {
    return INT64_MIN;
  }
  const int64_t since_boot_ns =
      (int64_t)((ticks + 1) * (uint64_t)(GPUFI_NS_PER_S / ticks_per_second));
  return gpufi_clock_read_ns(CLOCK_REALTIME) -
         (gpufi_clock_read_ns(CLOCK_BOOTTIME) - since_boot_ns);
}

bool gpufi_parent_has_ended(const gpufi_parent *parent) {
  return parent->process_id != 0 &&
         gpufi_process_start_time(parent->process_id) != parent->start_time;
}
