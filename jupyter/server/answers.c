#include "server/answers.h"

#include <stdlib.h>

void gpufi_answers_init(gpufi_answers *answers) {
  *answers = (gpufi_answers){.end = &answers->first};
  pthread_mutex_init(&answers->lock, NULL);
}

static void free_list(gpufi_answer *answer) {
  while (answer) {
    gpufi_answer *next = answer->next;
    gpufi_reply_free(answer->reply);
    free(answer);
    answer = next;
  }
}

void gpufi_answers_fini(gpufi_answers *answers) {
  free_list(answers->first);
  free_list(answers->spares);
  pthread_mutex_destroy(&answers->lock);
}

/* Under the lock. */
static gpufi_answer *take_spare(gpufi_answers *answers) {
  gpufi_answer *spare = answers->spares;
  if (spare) {
    answers->spares = spare->next;
    answers->spare_count--;
  }
  return spare;
}

bool gpufi_answers_reserve(gpufi_answers *answers, size_t count) {
  gpufi_answer *added = NULL;
  pthread_mutex_lock(&answers->lock);
  while (answers->spare_count > count) {
    free(take_spare(answers));
  }
  while (answers->spare_count < count && (added = calloc(1, sizeof(*added))) != NULL) {
    added->next = answers->spares;
    answers->spares = added;
    answers->spare_count++;
  }
  const bool done = answers->spare_count == count;
  pthread_mutex_unlock(&answers->lock);
  return done;
}

void gpufi_answers_put(gpufi_answers *answers, uint64_t client, uint64_t tag, gpufi_reply *reply) {
  pthread_mutex_lock(&answers->lock);
  gpufi_answer *answer = take_spare(answers);
  if (answer) {
    *answer = (gpufi_answer){NULL, client, tag, reply};
    *answers->end = answer;
    answers->end = &answer->next;
  }
  pthread_mutex_unlock(&answers->lock);
  if (!answer) { /* it was not reserved */
    gpufi_reply_free(reply);
  }
}

gpufi_answer *gpufi_answers_take(gpufi_answers *answers) {
  pthread_mutex_lock(&answers->lock);
  gpufi_answer *first = answers->first;
  answers->first = NULL;
  answers->end = &answers->first;
  pthread_mutex_unlock(&answers->lock);
  return first;
}
