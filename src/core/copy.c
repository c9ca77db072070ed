/* Planning a copy and starting it. */
#include "core/copy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/pool.h"
#include "core/runtime.h"

#define DEFAULT_THREAD_COUNT_MAX 12
#define DIRECT_PIECE_NBYTES ((size_t)64 << 20)
/* Up to here the copy runs on the producer's own stream: no second stream has to be joined. */
#define SAME_STREAM_NBYTES_MAX ((size_t)1 << 20)

static bool is_cpu(const gpuf_tensor *tensor) {
  return tensor->device.kind == GPUF_DEVICE_CPU;
}

static gpuf_status check_same_elements(const gpuf_tensor *dst, const gpuf_tensor *src,
                                       gpuf_error *err) {
  if (dst->dtype != src->dtype) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination's dtype is %s and the source's %s; they must be equal",
                      gpuf_dtype_name(dst->dtype), gpuf_dtype_name(src->dtype));
  }
  if (dst->ndim != src->ndim) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination has %" PRId32 " axes and the source %" PRId32
                      "; the shapes must be equal",
                      dst->ndim, src->ndim);
  }
  const bool empty = gpuf_tensor_count(dst) == 0; /* its strides mean nothing */
  for (int32_t axis = 0; axis < dst->ndim; axis++) {
    if (dst->shape[axis] != src->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the destination's shape[%" PRId32 "] is %" PRId64
                        " and the source's %" PRId64 "; the shapes must be equal",
                        axis, dst->shape[axis], src->shape[axis]);
    }
    if (dst->strides_nbytes[axis] == 0 && dst->shape[axis] > 1 && !empty) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the destination repeats one element along axis %" PRId32
                        " (stride 0); give it a memory of its own",
                        axis);
    }
  }
  return GPUF_OK;
}

static gpuf_status check_arguments(const gpuf_tensor *dst, const gpuf_tensor *src,
                                   const gpuf_copy_options *options, gpuf_error *err) {
  gpuf_status status = gpuf_tensor_check(dst, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_check(src, err);
  }
  if (status == GPUF_OK) {
    status = check_same_elements(dst, src, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (!is_cpu(dst) && !is_cpu(src)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "both sides are on devices (%s:%" PRId32 " and %s:%" PRId32
                      "); copy between devices with the framework that owns them",
                      gpuf_device_kind_name(dst->device.kind), dst->device.index,
                      gpuf_device_kind_name(src->device.kind), src->device.index);
  }
  if (options && (options->thread_count < 0 || options->thread_count > GPUFI_COPY_THREADS_MAX)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.thread_count is %" PRId32 "; it must be 0 to %d",
                      options->thread_count, GPUFI_COPY_THREADS_MAX);
  }
  return GPUF_OK;
}

static int32_t default_thread_count(void) {
  const int32_t cpus = gpufi_cpu_count();
  return cpus < DEFAULT_THREAD_COUNT_MAX ? cpus : DEFAULT_THREAD_COUNT_MAX;
}

/* Pieces of a direct contiguous copy may have any size; every other piece has to fit a lane's
 * buffers. */
static void plan_pieces(gpufi_copy *copy, const gpuf_copy_options *options) {
  const size_t element_nbytes = copy->device_layout.element_nbytes;
  const size_t max_nbytes =
      copy->host_pinned && copy->device_contiguous ? DIRECT_PIECE_NBYTES : GPUFI_LANE_BUFFER_NBYTES;
  size_t nbytes = options && options->chunk_nbytes > 0 ? options->chunk_nbytes : max_nbytes;
  nbytes = nbytes < max_nbytes ? nbytes : max_nbytes;
  nbytes -= nbytes % element_nbytes;
  copy->piece_nbytes = nbytes > 0 ? nbytes : element_nbytes;
  const size_t piece_count = (copy->nbytes + copy->piece_nbytes - 1) / copy->piece_nbytes;
  int32_t threads =
      options && options->thread_count > 0 ? options->thread_count : default_thread_count();
  copy->thread_count = piece_count < (size_t)threads ? (int32_t)piece_count : threads;
}

/* For checked tensors with at least one element, one of them on the CPU. */
static gpuf_status plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                        const gpuf_copy_options *options, gpuf_error *err) {
  const gpuf_tensor *device_side = is_cpu(src) ? dst : src;
  const gpuf_tensor *host_side = is_cpu(src) ? src : dst;
  const gpuf_status status = gpufi_backend_for(device_side->device, &copy->backend, err);
  if (status != GPUF_OK) {
    return status;
  }
  copy->device = device_side->device;
  copy->direction = is_cpu(src) ? GPUFI_TO_DEVICE : GPUFI_TO_HOST;
  copy->d_data = device_side->data;
  copy->h_data = host_side->data;
  copy->producer = device_side->stream;
  copy->nbytes = gpuf_tensor_nbytes(src);
  gpufi_strided_init(&copy->device_layout, device_side);
  gpufi_strided_init(&copy->host_layout, host_side);
  copy->device_contiguous = gpufi_strided_is_contiguous(&copy->device_layout);
  copy->host_contiguous = gpufi_strided_is_contiguous(&copy->host_layout);
  copy->host_pinned =
      copy->host_contiguous && gpufi_pool_is_pinned(copy->device.kind, copy->h_data, copy->nbytes);
  plan_pieces(copy, options);
  return GPUF_OK;
}

/* Memory to memory, on the calling thread; through a small buffer if both sides are strided. */
static void copy_on_cpu(const gpuf_tensor *dst, const gpuf_tensor *src) {
  char buffer[16384];
  gpufi_strided to, from;
  gpufi_strided_init(&to, dst);
  gpufi_strided_init(&from, src);
  const int64_t count = gpuf_tensor_count(src);
  if (gpufi_strided_is_contiguous(&to)) {
    gpufi_strided_pack(&from, src->data, 0, count, dst->data);
    return;
  }
  const int64_t step = (int64_t)(sizeof(buffer) / from.element_nbytes);
  for (int64_t first = 0; first < count; first += step) {
    const int64_t part = count - first < step ? count - first : step;
    gpufi_strided_pack(&from, src->data, first, part, buffer);
    gpufi_strided_unpack(&to, dst->data, first, part, buffer);
  }
}

/* Start a copy in an initialised future. `same_stream`: a direct copy may run on the producer's
 * stream; `own_share`: the caller takes part in a staged one. */
static gpuf_status start(gpuf_future *future, const gpuf_tensor *dst, const gpuf_tensor *src,
                         const gpuf_copy_options *options, bool blocking, gpuf_error *err) {
  gpufi_copy *copy = &future->copy;
  gpuf_status status = check_arguments(dst, src, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpuf_tensor_count(src) == 0 || (is_cpu(dst) && is_cpu(src))) {
    if (gpuf_tensor_count(src) > 0) {
      copy_on_cpu(dst, src);
    }
    future->settled = true;
    return GPUF_OK;
  }
  status = plan(copy, dst, src, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!copy->host_pinned) {
    return gpufi_staged_start(future, blocking ? 1 : 0, err);
  }
  status = gpufi_lane_acquire(copy->backend, copy->device, &future->lane, err);
  if (status != GPUF_OK) {
    return status;
  }
  const bool on_producer = blocking && copy->producer != GPUF_STREAM_NONE &&
                           copy->device_contiguous && copy->nbytes <= SAME_STREAM_NBYTES_MAX;
  const gpuf_stream stream = on_producer ? copy->producer : future->lane->stream;
  status = gpufi_direct_enqueue(copy, future->lane, stream, err);
  if (status != GPUF_OK) {
    if (on_producer) {
      copy->backend->stream_synchronize(copy->device.index, stream, NULL);
    }
    gpufi_lane_release(future->lane, true);
    future->lane = NULL;
  }
  return status;
}

gpuf_status gpuf_copy(const gpuf_tensor *dst, const gpuf_tensor *src,
                      const gpuf_copy_options *options, gpuf_error *err) {
  gpuf_future future;
  gpufi_future_init(&future);
  gpuf_status status = start(&future, dst, src, options, true, err);
  if (status == GPUF_OK) {
    if (!future.settled && !future.lane) {
      gpufi_staged_run(&future);
    }
    status = gpuf_future_wait(&future, -1, err);
  } else {
    future.settled = true;
  }
  gpufi_future_fini(&future);
  return status;
}

gpuf_status gpuf_copy_async(const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, gpuf_future **out, gpuf_error *err) {
  *out = NULL;
  gpuf_future *future = malloc(sizeof(*future));
  if (!future) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a future");
  }
  gpufi_future_init(future);
  const gpuf_status status = start(future, dst, src, options, false, err);
  if (status == GPUF_OK) {
    *out = future;
  } else {
    future->settled = true;
    gpuf_future_destroy(future);
  }
  return status;
}

gpuf_status gpufi_copy_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, bool *direct, gpuf_error *err) {
  gpuf_status status = check_arguments(dst, src, options, err);
  *direct = false;
  if (status == GPUF_OK && gpuf_tensor_count(src) > 0 && !(is_cpu(dst) && is_cpu(src))) {
    status = plan(copy, dst, src, options, err);
    *direct = status == GPUF_OK && copy->host_pinned;
  }
  return status;
}
