#include "core/crew.h"

/* Take a job that has nothing left to begin out of the list. */
static void take_out(gpufi_crew *crew, gpufi_job *job) {
  gpufi_job **link = &crew->first;
  while (*link && *link != job) {
    link = &(*link)->next;
  }
  if (*link) {
    *link = job->next;
    crew->last = crew->last == &job->next ? link : crew->last;
  }
}

/* Called with the mutex held, and not during the call of run. */
static void take_part(gpufi_crew *crew, gpufi_job *job) {
  job->running_count++;
  pthread_mutex_unlock(&crew->mutex);
  job->run(job->arg);
  pthread_mutex_lock(&crew->mutex);
  if (!job->is_begun) {
    job->is_begun = true;
    take_out(crew, job);
  }
  if (--job->running_count == 0) {
    pthread_cond_broadcast(&crew->finished);
  }
}

/* The first job that has a place for one more thread; NULL if there is none now. */
static gpufi_job *find_job(const gpufi_crew *crew) {
  gpufi_job *job = crew->first;
  while (job && job->running_count == job->thread_max) {
    job = job->next;
  }
  return job;
}

static void member(void *arg) {
  gpufi_crew *const crew = arg;
  pthread_mutex_lock(&crew->mutex);
  while (true) {
    gpufi_job *const job = find_job(crew);
    if (job) {
      take_part(crew, job);
    } else if (crew->ends) {
      break;
    } else {
      crew->idle_count++;
      pthread_cond_wait(&crew->posted, &crew->mutex);
      crew->idle_count--;
    }
  }
  pthread_mutex_unlock(&crew->mutex);
}

void gpufi_crew_init(gpufi_crew *crew, int32_t count) {
  *crew = (gpufi_crew){.first = NULL};
  pthread_mutex_init(&crew->mutex, NULL);
  pthread_cond_init(&crew->posted, NULL);
  pthread_cond_init(&crew->finished, NULL);
  crew->last = &crew->first;
  gpufi_workers_start(&crew->workers, count, member, crew);
}

void gpufi_crew_fini(gpufi_crew *crew) {
  pthread_mutex_lock(&crew->mutex);
  crew->ends = true;
  pthread_cond_broadcast(&crew->posted);
  pthread_mutex_unlock(&crew->mutex);
  gpufi_workers_wait(&crew->workers);
  pthread_cond_destroy(&crew->posted);
  pthread_cond_destroy(&crew->finished);
  pthread_mutex_destroy(&crew->mutex);
}

void gpufi_crew_post(gpufi_crew *crew, gpufi_job *job) {
  pthread_mutex_lock(&crew->mutex);
  job->next = NULL;
  job->running_count = 0;
  job->is_begun = false;
  job->is_posted = true;
  *crew->last = job;
  crew->last = &job->next;
  for (int32_t i = 0; i < job->thread_max && i < crew->idle_count; i++) {
    pthread_cond_signal(&crew->posted);
  }
  pthread_mutex_unlock(&crew->mutex);
}

void gpufi_crew_finish(gpufi_crew *crew, gpufi_job *job) {
  if (!job->is_posted) {
    return;
  }
  pthread_mutex_lock(&crew->mutex);
  if (!job->is_begun && job->running_count < job->thread_max) {
    take_part(crew, job);
  }
  while (!job->is_begun || job->running_count > 0) {
    pthread_cond_wait(&crew->finished, &crew->mutex);
  }
  job->is_posted = false;
  pthread_mutex_unlock(&crew->mutex);
}
