/* How fast a client may send what it sends one by one, such as subscriptions and pings: a heartbeat
 * is a ping a second. */
#ifndef GPUFI_SERVER_PACE_H
#define GPUFI_SERVER_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether one that comes now makes it more than 64 at once and 32 a second. *due_ns, of 0 at first,
 * is when all so far would have come, one in each interval. */
bool gpufi_pace_is_too_fast(int64_t *due_ns);

#endif
