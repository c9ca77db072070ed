#include "hdf5/outgoing.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

void gpufi_h5_outgoing_init(gpufi_h5_outgoing *outgoing, size_t max_nbytes) {
  memset(outgoing, 0, sizeof(*outgoing));
  outgoing->max_nbytes = max_nbytes;
  outgoing->last = &outgoing->first;
  pthread_mutex_init(&outgoing->mutex, NULL);
  gpufi_condition_init(&outgoing->changed);
}

void gpufi_h5_outgoing_fini(gpufi_h5_outgoing *outgoing) {
  gpufi_h5_item *next;
  for (gpufi_h5_item *item = outgoing->first; item; item = next) {
    next = item->next;
    free(item);
  }
  pthread_cond_destroy(&outgoing->changed);
  pthread_mutex_destroy(&outgoing->mutex);
}

/* --- The producer ------------------------------------------------------------ */

/* Wait for memory, and count it as used. False once nobody takes items any more. */
static bool reserve(gpufi_h5_outgoing *outgoing, size_t nbytes) {
  pthread_mutex_lock(&outgoing->mutex);
  while (!outgoing->is_stopped && outgoing->nbytes > 0 &&
         (outgoing->nbytes >= outgoing->max_nbytes ||
          nbytes > outgoing->max_nbytes - outgoing->nbytes)) {
    pthread_cond_wait(&outgoing->changed, &outgoing->mutex);
  }
  const bool goes_on = !outgoing->is_stopped;
  outgoing->nbytes += goes_on ? nbytes : 0;
  pthread_mutex_unlock(&outgoing->mutex);
  return goes_on;
}

static void give_back(gpufi_h5_outgoing *outgoing, size_t nbytes) {
  pthread_mutex_lock(&outgoing->mutex);
  outgoing->nbytes -= nbytes;
  pthread_cond_broadcast(&outgoing->changed);
  pthread_mutex_unlock(&outgoing->mutex);
}

static gpuf_status put(gpufi_h5_outgoing *outgoing, const gpufi_h5_item *what, const void *bytes,
                       gpuf_error *err) {
  if (!reserve(outgoing, what->nbytes)) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0, "the write was given up");
  }
  gpufi_h5_item *const item = malloc(sizeof(*item) + what->nbytes);
  if (!item) {
    give_back(outgoing, what->nbytes);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory for %zu bytes that wait for HDF5: set options.async_max_nbytes "
                      "lower",
                      what->nbytes);
  }
  *item = *what;
  memcpy(item->bytes, bytes, what->nbytes);
  pthread_mutex_lock(&outgoing->mutex);
  *outgoing->last = item;
  outgoing->last = &item->next;
  outgoing->count++;
  pthread_cond_broadcast(&outgoing->changed);
  pthread_mutex_unlock(&outgoing->mutex);
  return GPUF_OK;
}

gpuf_status gpufi_h5_outgoing_put_chunk(gpufi_h5_outgoing *outgoing, int64_t index,
                                        const void *bytes, size_t nbytes, gpuf_error *err) {
  const gpufi_h5_item what = {.chunk_index = index, .nbytes = nbytes};
  return put(outgoing, &what, bytes, err);
}

gpuf_status gpufi_h5_outgoing_put_box(gpufi_h5_outgoing *outgoing, const gpufi_h5_box *box,
                                      const void *bytes, size_t nbytes, gpuf_error *err) {
  const gpufi_h5_item what = {.chunk_index = -1, .box = *box, .nbytes = nbytes};
  return put(outgoing, &what, bytes, err);
}

void gpufi_h5_outgoing_end(gpufi_h5_outgoing *outgoing, gpuf_status status,
                           const gpuf_error *error) {
  pthread_mutex_lock(&outgoing->mutex);
  outgoing->is_ended = true;
  outgoing->status = status;
  outgoing->error = *error;
  pthread_cond_broadcast(&outgoing->changed);
  pthread_mutex_unlock(&outgoing->mutex);
}

/* --- The thread that takes --------------------------------------------------- */

/* Wait until there is an item, or will be none. False at the deadline. Called with the lock. */
static bool await_item(gpufi_h5_outgoing *outgoing, const struct timespec *deadline) {
  int code = 0;
  while (!outgoing->first && !outgoing->is_ended && code == 0) {
    code = deadline ? pthread_cond_timedwait(&outgoing->changed, &outgoing->mutex, deadline)
                    : pthread_cond_wait(&outgoing->changed, &outgoing->mutex);
  }
  return outgoing->first || outgoing->is_ended;
}

gpuf_status gpufi_h5_outgoing_take(gpufi_h5_outgoing *outgoing, const struct timespec *deadline,
                                   gpufi_h5_item **item, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&outgoing->mutex);
  if (!await_item(outgoing, deadline)) {
    status = gpufi_fail(err, GPUF_ERR_TIMEOUT, 0, "the write is not finished yet");
  }
  *item = outgoing->first;
  if (*item) {
    outgoing->first = (*item)->next;
    outgoing->last = outgoing->first ? outgoing->last : &outgoing->first;
    outgoing->count--;
  } else if (status == GPUF_OK && outgoing->status != GPUF_OK) {
    status = outgoing->status;
    if (err) {
      *err = outgoing->error;
    }
  }
  pthread_mutex_unlock(&outgoing->mutex);
  return status;
}

void gpufi_h5_outgoing_drop(gpufi_h5_outgoing *outgoing, gpufi_h5_item *item) {
  if (item) {
    give_back(outgoing, item->nbytes);
    free(item);
  }
}

size_t gpufi_h5_outgoing_count(gpufi_h5_outgoing *outgoing) {
  pthread_mutex_lock(&outgoing->mutex);
  const size_t count = outgoing->count;
  pthread_mutex_unlock(&outgoing->mutex);
  return count;
}

bool gpufi_h5_outgoing_is_ended(gpufi_h5_outgoing *outgoing) {
  pthread_mutex_lock(&outgoing->mutex);
  const bool is_ended = outgoing->is_ended;
  pthread_mutex_unlock(&outgoing->mutex);
  return is_ended;
}

void gpufi_h5_outgoing_stop(gpufi_h5_outgoing *outgoing) {
  pthread_mutex_lock(&outgoing->mutex);
  outgoing->is_stopped = true;
  pthread_cond_broadcast(&outgoing->changed);
  pthread_mutex_unlock(&outgoing->mutex);
}
