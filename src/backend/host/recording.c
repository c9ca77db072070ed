#include "backend/host/recording.h"

#include <pthread.h>
#include <stdlib.h>

struct gpufi_host_recording {
  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t changed;
  bool is_done;
  gpuf_error error; /* of the work before it */
  int32_t reference_count;
};

gpufi_host_recording *gpufi_host_recording_create(void) {
  gpufi_host_recording *const r = calloc(1, sizeof(*r));
  if (r) {
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->reference_count = 1;
  }
  return r;
}

void gpufi_host_recording_hold(gpufi_host_recording *r) {
  pthread_mutex_lock(&r->lock);
  r->reference_count++;
  pthread_mutex_unlock(&r->lock);
}

void gpufi_host_recording_release(gpufi_host_recording *r) {
  pthread_mutex_lock(&r->lock);
  const int32_t left = --r->reference_count;
  pthread_mutex_unlock(&r->lock);
  if (left == 0) {
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r);
  }
}

void gpufi_host_recording_complete(gpufi_host_recording *r, const gpuf_error *error) {
  pthread_mutex_lock(&r->lock);
  r->is_done = true;
  r->error = *error;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
}

bool gpufi_host_recording_is_done(gpufi_host_recording *r) {
  pthread_mutex_lock(&r->lock);
  const bool is_done = r->is_done;
  pthread_mutex_unlock(&r->lock);
  return is_done;
}

gpuf_error gpufi_host_recording_await(gpufi_host_recording *r) {
  pthread_mutex_lock(&r->lock);
  while (!r->is_done) {
    pthread_cond_wait(&r->changed, &r->lock);
  }
  const gpuf_error error = r->error;
  pthread_mutex_unlock(&r->lock);
  return error;
}
