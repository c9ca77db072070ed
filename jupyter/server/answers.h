/* Replies of the dispatcher's that wait for the server's thread to send them. The memory to queue
 * one is taken when its request comes in, so that none is lost for lack of it. */
#ifndef GPUFI_SERVER_ANSWERS_H
#define GPUFI_SERVER_ANSWERS_H

#include "comm/reply.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct gpufi_answer {
  struct gpufi_answer *next;
  uint64_t client, tag;
  gpufi_reply *reply; /* owned; NULL where there was no memory for it */
} gpufi_answer;

typedef struct gpufi_answers {
  pthread_mutex_t lock; /* guards the rest */
  gpufi_answer *first, **end;
  gpufi_answer *spares; /* for answers to come */
  size_t spare_count;
} gpufi_answers;

void gpufi_answers_init(gpufi_answers *answers);
void gpufi_answers_fini(gpufi_answers *answers); /* frees the replies that are left */

/* Have memory for `count` answers more than are queued, and free what is beyond that. False where
 * there is not so much memory. */
bool gpufi_answers_reserve(gpufi_answers *answers, size_t count);
/* Queue an answer, for which memory was reserved. Takes over `reply`. From any thread. */
void gpufi_answers_put(gpufi_answers *answers, uint64_t client, uint64_t tag, gpufi_reply *reply);
/* All that are queued, oldest first. The caller frees each one and its reply. */
gpufi_answer *gpufi_answers_take(gpufi_answers *answers);

#endif
