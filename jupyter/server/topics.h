/* The topics that one subscriber has subscribed to: it gets the messages that begin with one of
 * them. */
#ifndef GPUFI_SERVER_TOPICS_H
#define GPUFI_SERVER_TOPICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPUFI_TOPICS_MAX 32
/* Longer than every topic that there is ("comm-" and a comm_id). */
#define GPUFI_TOPIC_MAX_NBYTES 159

typedef struct gpufi_topics {
  int32_t count;
  size_t nbytes;
  uint8_t *bytes; /* of each topic its size, of one byte, and its bytes */
} gpufi_topics;

void gpufi_topics_fini(gpufi_topics *topics); /* of all zero: there are none */

/* NULL if it was added, or is there already; else why it cannot be: it is too long, or there are as
 * many as may be. */
const char *gpufi_topics_add(gpufi_topics *topics, const uint8_t *topic, size_t nbytes);
void gpufi_topics_remove(gpufi_topics *topics, const uint8_t *topic, size_t nbytes);
bool gpufi_topics_match(const gpufi_topics *topics, const void *start, size_t nbytes);

#endif
