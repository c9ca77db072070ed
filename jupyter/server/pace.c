#include "server/pace.h"

#include "base/clock.h"

#define AT_ONCE 64
#define INTERVAL_NS INT64_C(31250000)

bool gpufi_pace_is_too_fast(int64_t *due_ns) {
  const int64_t now_ns = gpufi_clock_ns();
  *due_ns = (*due_ns < now_ns ? now_ns : *due_ns) + INTERVAL_NS;
  return *due_ns - now_ns > AT_ONCE * INTERVAL_NS;
}
