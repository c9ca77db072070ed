#include "core/copy.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/struct.h"
#include "core/overlap.h"
#include "core/staged.h"

/* A blocking copy up to this size runs on the producer's own stream, which saves ordering a second
 * stream behind it; not where another thread may take its failure from there. */
#define SAME_STREAM_NBYTES_MAX ((size_t)1 << 20)

static bool is_cpu(const gpuf_tensor *tensor) {
  return tensor->device.kind == GPUF_DEVICE_CPU;
}

static gpuf_status check_same_elements(const gpuf_tensor *dst, const gpuf_tensor *src,
                                       const gpuf_copy_options *options, gpuf_error *err) {
  if (dst->dtype != src->dtype && !options->cast) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination's dtype is %s and the source's %s; they must be equal, "
                      "unless options.cast is set",
                      gpuf_dtype_name(dst->dtype), gpuf_dtype_name(src->dtype));
  }
  if (!gpufi_cast_offered((gpufi_cast){src->dtype, dst->dtype})) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "a cast from %s to %s is not offered; copy without one and convert with "
                      "astype",
                      gpuf_dtype_name(src->dtype), gpuf_dtype_name(dst->dtype));
  }
  const gpuf_status status = gpufi_destination_check(dst, src, err);
  return status == GPUF_OK ? gpufi_overlap_check(dst, src, err) : status;
}

static gpuf_status check_arguments(const gpuf_tensor *dst, const gpuf_tensor *src,
                                   const gpuf_copy_options *options, gpuf_error *err) {
  gpuf_status status = gpuf_tensor_check(dst, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_check(src, err);
  }
  if (status == GPUF_OK) {
    status = check_same_elements(dst, src, options, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (!is_cpu(dst) && !is_cpu(src)) {
    return gpufi_fail(
        err, GPUF_ERR_UNSUPPORTED, 0,
        "both sides are on devices (%s:%" PRId32 " and %s:%" PRId32
        "); use gpuf_tensor_copy within one device, and the framework that owns them between "
        "two",
        gpuf_device_kind_name(dst->device.kind), dst->device.index,
        gpuf_device_kind_name(src->device.kind), src->device.index);
  }
  if (options->thread_count < 0 || options->thread_count > GPUFI_COPY_THREADS_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.thread_count is %" PRId32 "; it must be 0 to %d",
                      options->thread_count, GPUFI_COPY_THREADS_MAX);
  }
  return GPUF_OK;
}

gpuf_status gpufi_copy_options_read(gpuf_copy_options *own, const gpuf_copy_options *given,
                                    gpuf_error *err) {
  return gpufi_struct_read(own, sizeof(*own), given, "GPUF_COPY_OPTIONS_INIT", err);
}

gpuf_status gpufi_copy_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, gpufi_carrier *carrier,
                            gpuf_error *err) {
  gpuf_status status = check_arguments(dst, src, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpuf_tensor_count(src) == 0 || (is_cpu(dst) && is_cpu(src))) {
    const bool done = gpuf_tensor_count(src) == 0 ||
                      (dst->dtype == src->dtype && gpufi_tensors_coincide(dst, src));
    *carrier = done ? GPUFI_CARRIER_NONE : GPUFI_CARRIER_CPU;
    return GPUF_OK;
  }
  status = gpufi_plan(copy, dst, src, options, err);
  if (status == GPUF_OK) {
    *carrier = copy->host_pinned ? GPUFI_CARRIER_DIRECT : GPUFI_CARRIER_STAGED;
  }
  return status;
}

/* Copy on the calling thread, through a small buffer if both sides are strided or the elements are
 * cast. */
static void copy_on_cpu(gpuf_tensor dst, gpuf_tensor src) {
  char packed[8192], converted[8192];
  const gpufi_cast cast = {src.dtype, dst.dtype};
  const bool casts = cast.from != cast.to;
  const int64_t count = gpuf_tensor_count(&src);
  gpufi_strided to, from;
  gpufi_plan_order(&dst, &src);
  gpufi_strided_init(&to, &dst);
  gpufi_strided_init(&from, &src);
  if (!casts && gpufi_strided_is_contiguous(&to)) {
    gpufi_strided_pack(&from, src.data, 0, count, dst.data);
    return;
  }
  const int64_t step = (int64_t)sizeof(packed) / 16; /* elements have 16 bytes at most */
  for (int64_t first = 0; first < count; first += step) {
    const int64_t step_count = count - first < step ? count - first : step;
    gpufi_strided_pack(&from, src.data, first, step_count, packed);
    if (casts) {
      gpufi_cast_elements(cast, packed, step_count, converted);
    }
    gpufi_strided_unpack(&to, dst.data, first, step_count, casts ? converted : packed);
  }
}

/* Start a copy to or from pinned host memory. */
static gpuf_status start_direct(gpuf_future *future, bool blocking, gpuf_error *err) {
  const gpufi_copy *copy = &future->copy;
  gpufi_channel **channel = &future->channels[0];
  gpuf_status status = gpufi_channel_acquire(copy->backend, copy->device, channel, err);
  if (status != GPUF_OK) {
    return status;
  }
  future->channel_count = 1;
  const bool on_producer = blocking && copy->backend->fails_for_good &&
                           copy->producer != GPUF_STREAM_NONE && copy->route == GPUFI_ROUTE_FLAT &&
                           copy->nbytes <= SAME_STREAM_NBYTES_MAX;
  if (copy->route == GPUFI_ROUTE_GATHER) {
    status = gpufi_gather_enqueue(copy, future->channels, &future->channel_count, err);
  } else {
    status = gpufi_direct_enqueue(copy, *channel, on_producer ? copy->producer : (*channel)->stream,
                                  err);
  }
  if (status != GPUF_OK) {
    if (on_producer) {
      copy->backend->stream_synchronize(copy->device.index, copy->producer, NULL);
    }
    gpufi_future_release_channels(future, true);
  }
  return status;
}

/* Start a copy in an initialized future. If it is `blocking`, a small direct copy may run on the
 * producer's stream, and the caller takes part in a copy by threads. */
static gpuf_status start(gpuf_future *future, const gpuf_tensor *dst, const gpuf_tensor *src,
                         const gpuf_copy_options *options, bool blocking, gpuf_error *err) {
  gpufi_carrier carrier;
  gpuf_status status = gpufi_copy_plan(&future->copy, dst, src, options, &carrier, err);
  if (status != GPUF_OK) {
    return status;
  }
  switch (carrier) {
  case GPUFI_CARRIER_DIRECT:
    return start_direct(future, blocking, err);
  case GPUFI_CARRIER_STAGED:
    status = (blocking ? gpufi_channel_name_stream : gpufi_channel_keep_stream)(
        future->copy.backend, future->copy.device, &future->copy.producer, &future->keeper, err);
    if (status == GPUF_OK) {
      gpufi_staged_prepare(future);
      gpufi_future_start_threads(future, blocking ? 1 : 0);
    }
    return status;
  case GPUFI_CARRIER_CPU:
    copy_on_cpu(*dst, *src);
    break;
  case GPUFI_CARRIER_NONE:
    break;
  }
  gpufi_future_settle(future);
  return GPUF_OK;
}

gpuf_status gpuf_copy(const gpuf_tensor *dst, const gpuf_tensor *src,
                      const gpuf_copy_options *options, gpuf_error *err) {
  GPUFI_REQUIRE(dst, err);
  GPUFI_REQUIRE(src, err);
  gpuf_future future;
  gpuf_copy_options own;
  gpuf_status status = gpufi_copy_options_read(&own, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_future_init(&future);
  status = start(&future, dst, src, &own, true, err);
  if (status == GPUF_OK) {
    if (future.run) {
      future.run(&future);
    }
    status = gpuf_future_wait(&future, -1, err);
  } else {
    gpufi_future_settle(&future);
  }
  gpufi_future_fini(&future);
  return status;
}

gpuf_status gpuf_copy_async(const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, gpuf_future **future,
                            gpuf_error *err) {
  GPUFI_REQUIRE(future, err);
  *future = NULL;
  GPUFI_REQUIRE(dst, err);
  GPUFI_REQUIRE(src, err);
  gpuf_copy_options own;
  gpuf_status status = gpufi_copy_options_read(&own, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_future *created = malloc(sizeof(*created));
  if (!created) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a future");
  }
  gpufi_future_init(created);
  status = start(created, dst, src, &own, false, err);
  if (status == GPUF_OK) {
    *future = created;
  } else {
    gpufi_future_settle(created);
    gpuf_future_destroy(created);
  }
  return status;
}
