/* Worker threads that one transfer keeps while it lasts, and the jobs that it posts to them, which
 * they do in order. Where a transfer has many short jobs, to take workers for each (workers.h) and
 * to wait for them costs more than the jobs.
 *
 * Jobs are posted and finished by one thread at a time. A crew without threads works all the same:
 * gpufi_crew_finish then does the job. A forked child must leave a crew of its parent alone. */
#ifndef GPUFI_CORE_CREW_H
#define GPUFI_CORE_CREW_H

#include <pthread.h>
#include <stdbool.h>

#include "core/workers.h"

/* Its memory is the poster's until the job is finished. */
typedef struct gpufi_job {
  /* Set by the poster. Up to `thread_max` threads call run(arg), once each, and share the work
   * among them: when one call returns, nothing of it is left that no call has begun. */
  void (*run)(void *arg);
  void *arg;
  int32_t thread_max; /* > 0 */
  /* Guarded by the crew's mutex. */
  struct gpufi_job *next;
  int32_t running_count;
  bool is_begun; /* nothing is left to begin: no other thread need call */
  bool is_posted;
} gpufi_job;

typedef struct gpufi_crew {
  pthread_mutex_t mutex; /* guards what follows, but for the workers */
  pthread_cond_t posted, finished;
  gpufi_job *first, **last; /* those with something left to begin */
  int32_t idle_count;
  bool ends;
  gpufi_workers workers;
} gpufi_crew;

/* Start up to `count` threads; fewer, down to none, where the system has no more. */
void gpufi_crew_init(gpufi_crew *crew, int32_t count);
/* Waits for the threads; every job is finished. */
void gpufi_crew_fini(gpufi_crew *crew);
/* Let the threads do a job, once those before it are begun. One that was finished may be posted
 * again. */
void gpufi_crew_post(gpufi_crew *crew, gpufi_job *job);
/* Take part in the job, and return when it is done. Does nothing for one that is not posted. */
void gpufi_crew_finish(gpufi_crew *crew, gpufi_job *job);

#endif
