#include "base/clock.h"

#include <errno.h>

int64_t gpufi_clock_read_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * GPUFI_NS_PER_S + now.tv_nsec;
}

int64_t gpufi_clock_ns(void) {
  return gpufi_clock_read_ns(CLOCK_MONOTONIC);
}

struct timespec gpufi_timespec(int64_t duration_ns) {
  return (struct timespec){(time_t)(duration_ns / GPUFI_NS_PER_S),
                           (long)(duration_ns % GPUFI_NS_PER_S)};
}

struct timespec gpufi_deadline_after(int64_t timeout_ns) {
  struct timespec deadline;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  const int64_t ns = deadline.tv_nsec + timeout_ns % GPUFI_NS_PER_S;
  deadline.tv_sec += (time_t)(timeout_ns / GPUFI_NS_PER_S + ns / GPUFI_NS_PER_S);
  deadline.tv_nsec = (long)(ns % GPUFI_NS_PER_S);
  return deadline;
}

void gpufi_sleep_ns(int64_t duration_ns) {
  const struct timespec deadline = gpufi_deadline_after(duration_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR) {
  }
}

void gpufi_condition_init(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}
