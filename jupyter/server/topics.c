#include "server/topics.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(GPUFI_TOPIC_MAX_NBYTES <= UINT8_MAX, "the size of a topic fits a byte");

void gpufi_topics_fini(gpufi_topics *topics) {
  free(topics->bytes);
  *topics = (gpufi_topics){0};
}

/* Where the size of a topic stands; `nbytes` of *topics if it is not there. */
static size_t find(const gpufi_topics *topics, const uint8_t *topic, size_t nbytes) {
  size_t at = 0;
  while (at < topics->nbytes) {
    const uint8_t *const known = topics->bytes + at;
    if (known[0] == nbytes && memcmp(known + 1, topic, nbytes) == 0) {
      break;
    }
    at += 1 + (size_t)known[0];
  }
  return at;
}

const char *gpufi_topics_add(gpufi_topics *topics, const uint8_t *topic, size_t nbytes) {
  const size_t at = topics->nbytes;
  if (nbytes > GPUFI_TOPIC_MAX_NBYTES) {
    return "a subscriber was disconnected: its topic is too long";
  }
  if (find(topics, topic, nbytes) < at) {
    return NULL;
  }
  if (topics->count == GPUFI_TOPICS_MAX) {
    return "a subscriber was disconnected: too many subscriptions";
  }
  uint8_t *grown = realloc(topics->bytes, at + 1 + nbytes);
  if (!grown) {
    return "a subscriber was disconnected: no memory for its subscription";
  }
  grown[at] = (uint8_t)nbytes;
  memcpy(grown + at + 1, topic, nbytes);
  *topics = (gpufi_topics){topics->count + 1, at + 1 + nbytes, grown};
  return NULL;
}

void gpufi_topics_remove(gpufi_topics *topics, const uint8_t *topic, size_t nbytes) {
  const size_t at = find(topics, topic, nbytes);
  if (at < topics->nbytes) {
    uint8_t *const known = topics->bytes + at;
    memmove(known, known + 1 + nbytes, topics->nbytes - at - 1 - nbytes);
    topics->nbytes -= 1 + nbytes;
    topics->count--;
  }
}

bool gpufi_topics_match(const gpufi_topics *topics, const void *start, size_t nbytes) {
  size_t at = 0;
  while (at < topics->nbytes) {
    const uint8_t *const known = topics->bytes + at;
    if (known[0] <= nbytes && memcmp(known + 1, start, known[0]) == 0) {
      return true;
    }
    at += 1 + (size_t)known[0];
  }
  return false;
}
