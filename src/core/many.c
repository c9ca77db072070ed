/* Many copies in one call.
 *
 * Copies with one device in one direction share a channel. Small ones whose host sides follow one
 * another are collected into a run: the device gathers them in the channel's scratch, as they lie
 * in host memory, and the run travels as one transfer (the other way round to the device). A
 * transfer of its own costs a small tensor several times what its bytes take. */
#include <stdlib.h>

#include "base/error.h"
#include "core/copy.h"
#include "core/direct.h"
#include "core/pool.h"

/* From here on a transfer of its own runs at link speed. */
#define RUN_PIECE_NBYTES_MAX ((size_t)256 << 10)
#define RUN_PIECES_MAX 256
#define RUN_ALIGN_NBYTES ((uintptr_t)64)

/* What goes to or from one device, in one direction. */
typedef struct group {
  struct group *next;
  const gpufi_backend *backend;
  gpuf_device device;
  gpufi_direction direction;
  gpufi_channel *channel;
  gpuf_stream joined;             /* the channel is behind the work on this producer's stream */
  size_t first_index, last_index; /* of the tensors seen */
  /* The run: piece i lies in host memory at h_run + offsets[i]. */
  char *h_run;
  size_t run_nbytes;
  size_t piece_count;
  size_t offsets[RUN_PIECES_MAX];
  gpufi_piece pieces[RUN_PIECES_MAX]; /* the device side only, until the run is flushed */
} group;

/* The group of a copy, made if there is none; NULL with `err` filled. */
static group *group_of(group **groups, const gpufi_copy *copy, size_t index, gpuf_error *err) {
  group *g = *groups;
  while (g && (g->device.kind != copy->device.kind || g->device.index != copy->device.index ||
               g->direction != copy->direction)) {
    g = g->next;
  }
  if (!g) {
    g = calloc(1, sizeof(*g));
    if (!g) {
      gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a batch of copies");
      return NULL;
    }
    if (gpufi_channel_acquire(copy->backend, copy->device, &g->channel, err) != GPUF_OK) {
      free(g);
      return NULL;
    }
    g->backend = copy->backend;
    g->device = copy->device;
    g->direction = copy->direction;
    g->first_index = index;
    g->next = *groups;
    *groups = g;
  }
  g->last_index = index;
  return g;
}

/* One transfer for each piece of the run: for a run of one, and for a device that is too full for
 * the scratch. */
static gpuf_status flush_one_by_one(group *g, gpuf_error *err) {
  const gpufi_backend *backend = g->backend;
  const int32_t device = g->device.index;
  const gpuf_stream stream = g->channel->stream;
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < g->piece_count && status == GPUF_OK; i++) {
    const gpufi_piece *piece = &g->pieces[i];
    char *h_data = g->h_run + g->offsets[i];
    status =
        g->direction == GPUFI_TO_HOST
            ? backend->copy(device, h_data, piece->src, piece->nbytes, g->direction, stream, err)
            : backend->copy(device, piece->dst, h_data, piece->nbytes, g->direction, stream, err);
  }
  return status;
}

/* Through the channel's scratch, which has the run's bytes where host memory has them. */
static gpuf_status flush_as_one(group *g, gpuf_error *err) {
  const gpufi_backend *backend = g->backend;
  const int32_t device = g->device.index;
  const gpuf_stream stream = g->channel->stream;
  char *d_run = g->channel->d_scratch;
  gpuf_status status;
  if (g->direction == GPUFI_TO_HOST) {
    for (size_t i = 0; i < g->piece_count; i++) {
      g->pieces[i].dst = d_run + g->offsets[i];
    }
    status = backend->gather(device, g->pieces, g->piece_count, stream, err);
    return status != GPUF_OK
               ? status
               : backend->copy(device, g->h_run, d_run, g->run_nbytes, g->direction, stream, err);
  }
  for (size_t i = 0; i < g->piece_count; i++) {
    g->pieces[i].src = d_run + g->offsets[i];
  }
  status = backend->copy(device, d_run, g->h_run, g->run_nbytes, g->direction, stream, err);
  return status != GPUF_OK ? status
                           : backend->gather(device, g->pieces, g->piece_count, stream, err);
}

/* Enqueue the run that was collected. */
static gpuf_status flush(group *g, gpuf_error *err) {
  const bool as_one = g->piece_count > 1 && gpufi_channel_try_scratch(g->channel, NULL) == GPUF_OK;
  const gpuf_status status = as_one ? flush_as_one(g, err) : flush_one_by_one(g, err);
  g->piece_count = 0;
  return status;
}

/* True if the copy's host side goes on where the run ends, or at the next multiple of 64 bytes,
 * and the whole fits the scratch and lies in one page-locked range. */
static bool continues_run(const group *g, const gpufi_copy *copy) {
  const uintptr_t end = (uintptr_t)g->h_run + g->run_nbytes, begin = (uintptr_t)copy->h_data;
  const uintptr_t aligned = (end + RUN_ALIGN_NBYTES - 1) & ~(RUN_ALIGN_NBYTES - 1);
  if (g->piece_count == 0 || g->piece_count == RUN_PIECES_MAX ||
      (begin != end && begin != aligned)) {
    return false;
  }
  const size_t nbytes = (size_t)(begin - (uintptr_t)g->h_run) + copy->nbytes;
  return nbytes <= GPUFI_CHANNEL_BUFFER_NBYTES &&
         gpufi_pool_is_pinned(g->device.kind, g->h_run, nbytes);
}

static gpuf_status collect(group *g, const gpufi_copy *copy, gpuf_error *err) {
  if (!continues_run(g, copy)) {
    const gpuf_status status = flush(g, err);
    if (status != GPUF_OK) {
      return status;
    }
    g->h_run = copy->h_data;
  }
  const size_t offset = (size_t)(copy->h_data - g->h_run);
  g->offsets[g->piece_count] = offset;
  g->pieces[g->piece_count] = (gpufi_piece){copy->d_data, copy->d_data, copy->nbytes};
  g->piece_count++;
  g->run_nbytes = offset + copy->nbytes;
  return GPUF_OK;
}

/* Before a wait for scratch: two threads that hold some, of any device, could wait for each other.
 */
static void give_scratch(group *groups) {
  for (group *g = groups; g; g = g->next) {
    gpufi_channel_give_scratch(g->channel);
  }
}

static gpuf_status enqueue_gather(group *groups, const group *g, const gpufi_copy *copy,
                                  gpuf_error *err) {
  if (!g->channel->scratch) {
    give_scratch(groups);
  }
  const gpuf_status status = gpufi_channel_need_scratch(g->channel, err);
  return status == GPUF_OK ? gpufi_direct_enqueue(copy, g->channel, g->channel->stream, err)
                           : status;
}

/* `err` is not NULL. */
static gpuf_status add(group **groups, gpufi_copy *copy, size_t index, gpuf_error *err) {
  group *g = group_of(groups, copy, index, err);
  if (!g) {
    return err->status;
  }
  if (copy->producer != GPUF_STREAM_NONE && copy->producer != g->joined) {
    const gpuf_status status = gpufi_channel_join(g->channel, copy->producer, err);
    if (status != GPUF_OK) {
      return status;
    }
    g->joined = copy->producer;
  }
  if (copy->route == GPUFI_ROUTE_FLAT && copy->nbytes <= RUN_PIECE_NBYTES_MAX) {
    return collect(g, copy, err);
  }
  copy->producer = GPUF_STREAM_NONE; /* joined above */
  return copy->route == GPUFI_ROUTE_GATHER
             ? enqueue_gather(*groups, g, copy, err)
             : gpufi_direct_enqueue(copy, g->channel, g->channel->stream, err);
}

/* `inner` into `err`, with the indices in front; returns its status. */
static gpuf_status fail_at(gpuf_error *err, const gpuf_error *inner, size_t first, size_t last) {
  return first == last ? gpufi_fail(err, inner->status, inner->native_code, "copy %zu: %s", first,
                                    inner->message)
                       : gpufi_fail(err, inner->status, inner->native_code,
                                    "one of copies %zu to %zu: %s", first, last, inner->message);
}

/* Enqueue what is left of every group, so that all devices are at work before the first wait. */
static gpuf_status finish_enqueue(group *groups, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (group *g = groups; g && status == GPUF_OK; g = g->next) {
    gpuf_error inner;
    status = flush(g, &inner);
    if (status == GPUF_OK) {
      status = g->backend->event_record(g->device.index, g->channel->finished, g->channel->stream,
                                        &inner);
    }
    if (status != GPUF_OK) {
      fail_at(err, &inner, g->first_index, g->last_index);
    }
  }
  return status;
}

/* Wait for every group and free it; after a failure, drain the others all the same. */
static gpuf_status finish(group *groups, gpuf_status status, gpuf_error *err) {
  while (groups) {
    group *g = groups;
    gpuf_error inner;
    gpuf_status waited = GPUF_OK;
    if (status == GPUF_OK) {
      waited = g->backend->event_wait(g->device.index, g->channel->finished, &inner);
    }
    if (waited != GPUF_OK) {
      status = fail_at(err, &inner, g->first_index, g->last_index);
    }
    gpufi_channel_release(g->channel, status != GPUF_OK);
    groups = g->next;
    free(g);
  }
  return status;
}

gpuf_status gpuf_copy_many(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                           const gpuf_copy_options *options, gpuf_error *err) {
  group *groups = NULL;
  gpuf_copy_options own;
  if (count > 0) {
    GPUFI_REQUIRE(dsts, err);
    GPUFI_REQUIRE(srcs, err);
  }
  gpuf_status status = gpufi_copy_options_read(&own, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    gpufi_copy copy;
    gpuf_error inner;
    gpufi_carrier carrier;
    status = gpufi_copy_plan(&copy, &dsts[i], &srcs[i], &own, &carrier, &inner);
    if (status == GPUF_OK && carrier == GPUFI_CARRIER_DIRECT) {
      status = add(&groups, &copy, i, &inner);
    } else if (status == GPUF_OK) {
      give_scratch(groups);
      status = gpuf_copy(&dsts[i], &srcs[i], &own, &inner);
    }
    if (status != GPUF_OK) {
      fail_at(err, &inner, i, i);
    }
  }
  if (status == GPUF_OK) {
    status = finish_enqueue(groups, err);
  }
  return finish(groups, status, err);
}
