/* Many copies in one call.
 *
 * All copies with one device in one direction are a flow and share a channel. Small ones whose host
 * sides follow one another are collected into a bundle, which travels as one transfer: the device
 * gathers them in the channel's scratch in the order of host memory, or scatters them from there. A
 * transfer of its own costs a small tensor several times what its bytes take. */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/copy.h"
#include "core/direct.h"
#include "core/many.h"
#include "core/pool.h"
#include "core/runtime.h"

/* A larger tensor reaches link speed in a transfer of its own. */
#define BUNDLED_NBYTES_MAX ((size_t)256 << 10)
#define BUNDLE_COUNT_MAX 256
#define BUNDLE_ALIGN_NBYTES ((size_t)64)

/* The copies with one device in one direction. */
typedef struct flow {
  struct flow *next;
  const gpufi_backend *backend;
  gpuf_device device;
  gpufi_direction direction;
  gpufi_channel *channel;
  gpuf_stream joined; /* the producer's stream that the channel was ordered behind last */
  size_t first_index, last_index; /* of the flow's pairs */
  /* The bundle: its tensor i lies in host memory at h_bundle + offsets[i]. */
  char *h_bundle;
  size_t bundle_nbytes;
  size_t bundled_count;
  size_t offsets[BUNDLE_COUNT_MAX];
  gpufi_flat_copy flat_copies[BUNDLE_COUNT_MAX]; /* only the device side is set before the flush */
} flow;

/* Find the flow of a copy, or make it. NULL, with `err` filled, after a failure. */
static flow *flow_of(flow **flows, const gpufi_copy *copy, size_t index, gpuf_error *err) {
  flow *f = *flows;
  while (f && (!gpufi_is_same_device(f->device, copy->device) || f->direction != copy->direction)) {
    f = f->next;
  }
  if (!f) {
    f = calloc(1, sizeof(*f));
    if (!f) {
      gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for many copies");
      return NULL;
    }
    if (gpufi_channel_acquire(copy->backend, copy->device, &f->channel, err) != GPUF_OK) {
      free(f);
      return NULL;
    }
    f->backend = copy->backend;
    f->device = copy->device;
    f->direction = copy->direction;
    f->first_index = index;
    f->next = *flows;
    *flows = f;
  }
  f->last_index = index;
  return f;
}

/* Enqueue a transfer for each tensor of the bundle: for a bundle of one, and for a device that has
 * no memory for scratch. */
static gpuf_status flush_one_by_one(flow *f, gpuf_error *err) {
  const gpufi_backend *backend = f->backend;
  const int32_t device = f->device.index;
  const gpuf_stream stream = f->channel->stream;
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < f->bundled_count && status == GPUF_OK; i++) {
    const gpufi_flat_copy *flat_copy = &f->flat_copies[i];
    char *h_data = f->h_bundle + f->offsets[i];
    status = f->direction == GPUFI_TO_HOST
                 ? backend->copy(device, h_data, flat_copy->src, flat_copy->nbytes, f->direction,
                                 stream, err)
                 : backend->copy(device, flat_copy->dst, h_data, flat_copy->nbytes, f->direction,
                                 stream, err);
  }
  return status;
}

/* Enqueue the bundle as one transfer, by way of the channel's scratch, where its bytes lie as in
 * host memory. */
static gpuf_status flush_as_one(flow *f, gpuf_error *err) {
  const gpufi_backend *backend = f->backend;
  const int32_t device = f->device.index;
  const gpuf_stream stream = f->channel->stream;
  char *d_bundle = f->channel->d_scratch;
  gpuf_status status;
  if (f->direction == GPUFI_TO_HOST) {
    for (size_t i = 0; i < f->bundled_count; i++) {
      f->flat_copies[i].dst = d_bundle + f->offsets[i];
    }
    status = backend->gather(device, f->flat_copies, f->bundled_count, stream, err);
    return status != GPUF_OK ? status
                             : backend->copy(device, f->h_bundle, d_bundle, f->bundle_nbytes,
                                             f->direction, stream, err);
  }
  for (size_t i = 0; i < f->bundled_count; i++) {
    f->flat_copies[i].src = d_bundle + f->offsets[i];
  }
  status =
      backend->copy(device, d_bundle, f->h_bundle, f->bundle_nbytes, f->direction, stream, err);
  return status != GPUF_OK ? status
                           : backend->gather(device, f->flat_copies, f->bundled_count, stream, err);
}

/* Enqueue the bundle that was collected. */
static gpuf_status flush(flow *f, gpuf_error *err) {
  const bool as_one =
      f->bundled_count > 1 && gpufi_channel_try_scratch(f->channel, NULL) == GPUF_OK;
  const gpuf_status status = as_one ? flush_as_one(f, err) : flush_one_by_one(f, err);
  f->bundled_count = 0;
  return status;
}

/* True if the copy's host side begins where the bundle ends, or at the next multiple of 64 bytes,
 * and the whole fits the scratch and lies in one page-locked range. */
static bool continues_bundle(const flow *f, const gpufi_copy *copy) {
  const uintptr_t end = (uintptr_t)f->h_bundle + f->bundle_nbytes, begin = (uintptr_t)copy->h_data;
  const uintptr_t aligned = gpufi_round_up(end, BUNDLE_ALIGN_NBYTES);
  if (f->bundled_count == 0 || f->bundled_count == BUNDLE_COUNT_MAX ||
      (begin != end && begin != aligned)) {
    return false;
  }
  const size_t nbytes = (size_t)(begin - (uintptr_t)f->h_bundle) + copy->nbytes;
  return nbytes <= GPUFI_CHANNEL_BUFFER_NBYTES &&
         gpufi_pool_is_pinned(f->device.kind, f->h_bundle, nbytes);
}

static gpuf_status collect(flow *f, const gpufi_copy *copy, gpuf_error *err) {
  if (!continues_bundle(f, copy)) {
    const gpuf_status status = flush(f, err);
    if (status != GPUF_OK) {
      return status;
    }
    f->h_bundle = copy->h_data;
  }
  const size_t offset = (size_t)(copy->h_data - f->h_bundle);
  f->offsets[f->bundled_count] = offset;
  f->flat_copies[f->bundled_count] = (gpufi_flat_copy){copy->d_data, copy->d_data, copy->nbytes};
  f->bundled_count++;
  f->bundle_nbytes = offset + copy->nbytes;
  return GPUF_OK;
}

/* Give all scratch back before a wait for scratch: two threads that hold some, of any device, could
 * wait for each other. */
static void give_scratch(flow *flows) {
  for (flow *f = flows; f; f = f->next) {
    gpufi_channel_give_scratch(f->channel);
  }
}

static gpuf_status enqueue_gather(flow *flows, const flow *f, const gpufi_copy *copy,
                                  gpuf_error *err) {
  if (!f->channel->scratch) {
    give_scratch(flows);
  }
  const gpuf_status status = gpufi_channel_need_scratch(f->channel, err);
  return status == GPUF_OK ? gpufi_direct_enqueue(copy, f->channel, f->channel->stream, err)
                           : status;
}

/* `err` is not NULL. */
static gpuf_status add(flow **flows, gpufi_copy *copy, size_t index, gpuf_error *err) {
  flow *f = flow_of(flows, copy, index, err);
  if (!f) {
    return err->status;
  }
  if (copy->producer != GPUF_STREAM_NONE && copy->producer != f->joined) {
    const gpuf_status status = gpufi_channel_join(f->channel, copy->producer, err);
    if (status != GPUF_OK) {
      return status;
    }
    f->joined = copy->producer;
  }
  if (copy->route == GPUFI_ROUTE_FLAT && copy->nbytes <= BUNDLED_NBYTES_MAX) {
    return collect(f, copy, err);
  }
  copy->producer = GPUF_STREAM_NONE; /* joined above */
  return copy->route == GPUFI_ROUTE_GATHER
             ? enqueue_gather(*flows, f, copy, err)
             : gpufi_direct_enqueue(copy, f->channel, f->channel->stream, err);
}

/* Copy `inner` to `err` with the indices in front, and return its status. */
static gpuf_status fail_at(gpuf_error *err, const gpuf_error *inner, size_t first, size_t last) {
  return first == last ? gpufi_fail(err, inner->status, inner->native_code, "copy %zu: %s", first,
                                    inner->message)
                       : gpufi_fail(err, inner->status, inner->native_code,
                                    "one of copies %zu to %zu: %s", first, last, inner->message);
}

/* Enqueue what is left of every flow, so that all devices are at work before the first wait. */
static gpuf_status finish_enqueue(flow *flows, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (flow *f = flows; f && status == GPUF_OK; f = f->next) {
    gpuf_error inner;
    status = flush(f, &inner);
    if (status == GPUF_OK) {
      status = f->backend->event_record(f->device.index, f->channel->finished, f->channel->stream,
                                        &inner);
    }
    if (status != GPUF_OK) {
      fail_at(err, &inner, f->first_index, f->last_index);
    }
  }
  return status;
}

/* Wait for every flow and free it. After a failure, the work of the others is waited for too. */
static gpuf_status finish(flow *flows, gpuf_status status, gpuf_error *err) {
  while (flows) {
    flow *f = flows;
    gpuf_error inner;
    gpuf_status waited = GPUF_OK;
    if (status == GPUF_OK) {
      waited = f->backend->event_wait(f->device.index, f->channel->finished, &inner);
    }
    if (waited != GPUF_OK) {
      status = fail_at(err, &inner, f->first_index, f->last_index);
    }
    gpufi_channel_release(f->channel, status != GPUF_OK);
    flows = f->next;
    free(f);
  }
  return status;
}

/* Plan the pair and enqueue it, or copy it at once if it is not for the device alone. */
static gpuf_status copy_pair(flow **flows, const gpuf_tensor *dst, const gpuf_tensor *src,
                             size_t index, const gpuf_copy_options *options, gpuf_error *err) {
  gpufi_copy copy;
  gpufi_carrier carrier;
  const gpuf_status status = gpufi_copy_plan(&copy, dst, src, options, &carrier, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (carrier == GPUFI_CARRIER_DIRECT) {
    return add(flows, &copy, index, err);
  }
  give_scratch(*flows);
  return gpuf_copy(dst, src, options, err);
}

gpuf_status gpufi_copy_pairs(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                             const gpuf_copy_options *options, gpuf_future *future,
                             gpuf_error *err) {
  flow *flows = NULL;
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    gpuf_error inner;
    status = future ? gpufi_future_failure(future, &inner) : GPUF_OK;
    if (status == GPUF_OK) {
      status = copy_pair(&flows, &dsts[i], &srcs[i], i, options, &inner);
    }
    if (status != GPUF_OK) {
      fail_at(err, &inner, i, i);
    }
  }
  if (status == GPUF_OK) {
    status = finish_enqueue(flows, err);
  }
  return finish(flows, status, err);
}

gpuf_status gpuf_copy_many(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                           const gpuf_copy_options *options, gpuf_error *err) {
  gpuf_copy_options own;
  if (count > 0) {
    GPUFI_REQUIRE(dsts, err);
    GPUFI_REQUIRE(srcs, err);
  }
  const gpuf_status status = gpufi_copy_options_read(&own, options, err);
  return status == GPUF_OK ? gpufi_copy_pairs(dsts, srcs, count, &own, NULL, err) : status;
}
