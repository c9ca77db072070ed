#include "core/staged.h"

#include "base/arithmetic.h"

/* One thread's share of a staged copy. The channel's two buffers alternate: while the device works
 * on one, the thread copies the bytes of the other. */
typedef struct worker {
  gpuf_future *future;
  const gpufi_copy *copy;
  gpufi_channel *channel;
  size_t arrived_nbytes; /* of its pieces, at their destination */
  struct {
    size_t offset;
    size_t nbytes;                      /* 0 = nothing in flight */
  } pieces[GPUFI_CHANNEL_BUFFER_COUNT]; /* in the buffer of the same index */
} worker;

/* The pieces at the end of a copy to the host are no smaller than this: smaller ones cost more to
 * start than they save. */
#define LAST_PIECE_NBYTES ((size_t)1 << 20)

/* At the end of a copy to the host, threads still copy bytes while the link is idle. The pieces
 * become smaller towards the end, so that the threads finish together. */
static size_t next_piece_nbytes(const gpufi_copy *copy, size_t left) {
  size_t nbytes = copy->piece_nbytes;
  if (copy->direction == GPUFI_TO_HOST && copy->route == GPUFI_ROUTE_FLAT) {
    size_t share = left / (2 * (size_t)copy->thread_count);
    share -= share % copy->host_layout.element_nbytes;
    share = share > LAST_PIECE_NBYTES ? share : LAST_PIECE_NBYTES;
    nbytes = gpufi_min_nbytes(share, nbytes);
  }
  return gpufi_min_nbytes(left, nbytes);
}

/* The next piece, or 0 bytes when none is left or the copy has failed. */
static size_t take_piece(gpuf_future *future, size_t *offset) {
  size_t nbytes = 0;
  pthread_mutex_lock(&future->lock);
  if (future->status == GPUF_OK) {
    *offset = future->next_offset;
    nbytes = next_piece_nbytes(&future->copy, future->copy.nbytes - *offset);
    future->next_offset += nbytes;
  }
  pthread_mutex_unlock(&future->lock);
  return nbytes;
}

/* Copy a piece between its staging buffer and host memory. */
static void copy_host_bytes(const gpufi_copy *copy, size_t offset, size_t nbytes, void *staging) {
  const int64_t element_nbytes = copy->host_layout.element_nbytes;
  const int64_t first = (int64_t)offset / element_nbytes;
  const int64_t count = (int64_t)nbytes / element_nbytes;
  if (copy->direction == GPUFI_TO_HOST) {
    gpufi_strided_unpack(&copy->host_layout, copy->h_data, first, count, staging);
  } else {
    gpufi_strided_pack(&copy->host_layout, copy->h_data, first, count, staging);
  }
}

/* Wait until the device is done with a buffer; in a copy to the host, also empty it. */
static gpuf_status finish_piece(worker *w, int index, gpuf_error *err) {
  const size_t nbytes = w->pieces[index].nbytes;
  gpufi_staging_buffer *buffer = &w->channel->buffers[index];
  if (nbytes == 0) {
    return GPUF_OK;
  }
  w->pieces[index].nbytes = 0;
  const gpuf_status status =
      w->copy->backend->event_wait(w->copy->device.index, buffer->copied, err);
  if (status == GPUF_OK && w->copy->direction == GPUFI_TO_HOST) {
    copy_host_bytes(w->copy, w->pieces[index].offset, nbytes, buffer->data);
  }
  w->arrived_nbytes += status == GPUF_OK ? nbytes : 0;
  return status;
}

static gpuf_status start_piece(worker *w, int index, size_t offset, size_t nbytes,
                               gpuf_error *err) {
  gpufi_staging_buffer *buffer = &w->channel->buffers[index];
  if (w->copy->direction == GPUFI_TO_DEVICE) {
    copy_host_bytes(w->copy, offset, nbytes, buffer->data);
  }
  gpuf_status status = gpufi_piece_enqueue(w->copy, w->channel, w->channel->stream, offset, nbytes,
                                           buffer->data, err);
  if (status == GPUF_OK) {
    status = w->copy->backend->event_record(w->copy->device.index, buffer->copied,
                                            w->channel->stream, err);
  }
  if (status == GPUF_OK) {
    w->pieces[index].offset = offset;
    w->pieces[index].nbytes = nbytes;
  }
  return status;
}

/* If all scratch is in use, one thread of the copy waits for some. The others do not, and leave
 * their pieces to it. */
static gpuf_status worker_scratch(worker *w, gpuf_error *err) {
  pthread_mutex_lock(&w->future->lock);
  const bool waits = !w->future->has_scratch_waiter;
  w->future->has_scratch_waiter = true;
  pthread_mutex_unlock(&w->future->lock);
  return waits ? gpufi_channel_need_scratch(w->channel, err)
               : gpufi_channel_try_scratch(w->channel, err);
}

/* Until the producer's work is done, scratch is for others: what waits for some meanwhile may be
 * what that work waits for. */
static gpuf_status worker_join(worker *w, gpuf_error *err) {
  const gpufi_backend *const backend = w->copy->backend;
  gpuf_status status = gpufi_channel_join(w->channel, w->copy->producer, err);
  if (status == GPUF_OK && w->copy->route == GPUFI_ROUTE_GATHER) {
    if (w->copy->producer != GPUF_STREAM_NONE) {
      status = backend->event_wait(w->copy->device.index, w->channel->joined, err);
    }
    if (status == GPUF_OK) {
      status = worker_scratch(w, err);
    }
  }
  return status;
}

static gpuf_status worker_prepare(worker *w, gpuf_error *err) {
  gpuf_status status = gpufi_channel_acquire(w->copy->backend, w->copy->device, &w->channel, err);
  if (status == GPUF_OK) {
    status = gpufi_channel_need_staging(w->channel, err);
  }
  return status == GPUF_OK ? worker_join(w, err) : status;
}

static gpuf_status worker_loop(worker *w, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  size_t offset = 0, nbytes;
  int index = 0;
  while (status == GPUF_OK && (nbytes = take_piece(w->future, &offset)) > 0) {
    status = finish_piece(w, index, err); /* to a device: the buffer is free only now */
    if (status == GPUF_OK) {
      status = start_piece(w, index, offset, nbytes, err);
    }
    index = (index + 1) % GPUFI_CHANNEL_BUFFER_COUNT;
  }
  for (int i = 0; i < GPUFI_CHANNEL_BUFFER_COUNT && status == GPUF_OK; i++) {
    status = finish_piece(w, (index + i) % GPUFI_CHANNEL_BUFFER_COUNT, err);
  }
  return status;
}

/* What each thread of the copy does, to its end. One that finds no memory for its buffers leaves
 * the pieces to the others. */
static void run(gpuf_future *future) {
  worker w = {.future = future, .copy = &future->copy};
  gpuf_error error = {0};
  gpuf_status status = worker_prepare(&w, &error);
  const bool prepared = status == GPUF_OK;
  if (prepared) {
    status = worker_loop(&w, &error);
  }
  gpufi_channel_release(w.channel, status != GPUF_OK);
  pthread_mutex_lock(&future->lock);
  future->arrived_nbytes += w.arrived_nbytes;
  if (prepared) {
    gpufi_future_fail(future, status, &error);
  } else {
    gpufi_future_abstain(future, &error);
  }
  pthread_mutex_unlock(&future->lock);
  gpufi_future_leave(future, 1);
}

void gpufi_staged_prepare(gpuf_future *future) {
  future->run = run;
}
