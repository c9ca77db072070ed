#include "hdf5/driver/pending.h"

#include <string.h>

#include "hdf5/driver/io.h"

void gpufi_h5_pending_init(gpufi_h5_pending *pending, gpufi_h5_latch *latch, int32_t thread_count) {
  memset(pending, 0, sizeof(*pending));
  pending->latch = latch;
  pending->thread_count = thread_count;
  pthread_mutex_init(&pending->mutex, NULL);
  pthread_cond_init(&pending->written, NULL);
}

void gpufi_h5_pending_fini(gpufi_h5_pending *pending) {
  pthread_cond_destroy(&pending->written);
  pthread_mutex_destroy(&pending->mutex);
}

static void carry_out(const gpufi_h5_pending *pending, const gpufi_h5_range *range) {
  if (!gpufi_h5_latch_is_set(pending->latch)) {
    const int code = gpufi_h5_io_write(range->fd, range->offset, range->bytes, range->nbytes);
    if (code != 0) {
      gpufi_h5_latch_set(pending->latch, "write", code, range->offset);
    }
  }
  if (range->done) {
    range->done(range->arg);
  }
}

/* Take ranges until there is none. The caller has counted the thread as active. */
static void take_ranges(void *arg) {
  gpufi_h5_pending *const pending = arg;
  pthread_mutex_lock(&pending->mutex);
  while (pending->next < pending->end) {
    const size_t taken = pending->next++ % GPUFI_H5_PENDING_MAX;
    pthread_mutex_unlock(&pending->mutex);
    carry_out(pending, &pending->ranges[taken]);
    pthread_mutex_lock(&pending->mutex);
    pending->is_finished[taken] = true;
    while (pending->first < pending->next &&
           pending->is_finished[pending->first % GPUFI_H5_PENDING_MAX]) {
      pending->first++;
    }
    pthread_cond_broadcast(&pending->written);
  }
  pending->active_count--;
  pthread_mutex_unlock(&pending->mutex);
}

bool gpufi_h5_pending_add(gpufi_h5_pending *pending, const gpufi_h5_range *range) {
  bool starts_thread = false;
  pthread_mutex_lock(&pending->mutex);
  const bool has_place =
      pending->thread_count > 0 && pending->end - pending->first < GPUFI_H5_PENDING_MAX;
  if (has_place) {
    const size_t place = pending->end++ % GPUFI_H5_PENDING_MAX;
    pending->ranges[place] = *range;
    pending->is_finished[place] = false;
    starts_thread = pending->active_count < pending->thread_count;
    pending->active_count += starts_thread;
  }
  pthread_mutex_unlock(&pending->mutex);
  if (starts_thread && gpufi_workers_start(&pending->workers, 1, take_ranges, pending) == 0) {
    take_ranges(pending); /* in the thread's place */
  }
  return has_place;
}

static bool overlaps(const gpufi_h5_pending *pending, uint64_t offset, uint64_t nbytes) {
  for (uint64_t number = pending->first; number < pending->end; number++) {
    const size_t place = number % GPUFI_H5_PENDING_MAX;
    const gpufi_h5_range *range = &pending->ranges[place];
    if (!pending->is_finished[place] && offset < range->offset + range->nbytes &&
        range->offset < offset + nbytes) {
      return true;
    }
  }
  return false;
}

void gpufi_h5_pending_wait(gpufi_h5_pending *pending, uint64_t offset, uint64_t nbytes) {
  pthread_mutex_lock(&pending->mutex);
  while (overlaps(pending, offset, nbytes)) {
    pthread_cond_wait(&pending->written, &pending->mutex);
  }
  pthread_mutex_unlock(&pending->mutex);
}

void gpufi_h5_pending_drain(gpufi_h5_pending *pending) {
  pthread_mutex_lock(&pending->mutex);
  while (pending->first < pending->end) {
    pthread_cond_wait(&pending->written, &pending->mutex);
  }
  pthread_mutex_unlock(&pending->mutex);
}

void gpufi_h5_pending_stop(gpufi_h5_pending *pending) {
  gpufi_h5_pending_drain(pending);
  gpufi_workers_wait(&pending->workers);
}
