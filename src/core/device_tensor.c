/* Tensors in device memory of their own, and copies from one to another. */
#include <inttypes.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/channel.h"
#include "core/overlap.h"
#include "core/plan.h"
#include "core/runtime.h"

/* Packed elements begin at a multiple of this, as the backends require. */
#define PACKED_ALIGN_NBYTES ((uintptr_t)16)
/* A copy of one contiguous range is given to the device as several, which keep more of it busy. */
#define FLAT_COPIES_MAX 8
#define FLAT_COPY_NBYTES_MIN ((size_t)1 << 20)

gpuf_status gpuf_tensor_alloc(gpuf_device device, gpuf_dtype dtype, int32_t ndim,
                              const int64_t *shape, gpuf_tensor *tensor, gpuf_error *err) {
  gpuf_tensor t;
  GPUFI_REQUIRE(tensor, err);
  /* The size is checked before there is memory; until then any pointer but NULL will do. */
  gpuf_status status = gpuf_tensor_init(&t, &t, device, dtype, ndim, shape, err);
  if (status == GPUF_OK) {
    status = gpuf_alloc(device, gpuf_tensor_nbytes(&t), &t.data, err);
  }
  if (status == GPUF_OK) {
    *tensor = t;
  }
  return status;
}

gpuf_status gpuf_tensor_free(gpuf_tensor *tensor, gpuf_error *err) {
  GPUFI_REQUIRE(tensor, err);
  const gpuf_status status = gpuf_free(tensor->device, tensor->data, err);
  if (status == GPUF_OK) {
    tensor->data = NULL;
  }
  return status;
}

static gpuf_status check_devices(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_error *err) {
  if (dst->device.kind == GPUF_DEVICE_CPU || src->device.kind == GPUF_DEVICE_CPU) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the %s is on the CPU; use gpuf_copy, which copies between a device and the "
                      "CPU",
                      dst->device.kind == GPUF_DEVICE_CPU ? "destination" : "source");
  }
  if (!gpufi_is_same_device(dst->device, src->device)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the destination is on %s:%" PRId32 " and the source on %s:%" PRId32
                      "; copy to host memory with gpuf_copy and from there to the other device, or "
                      "use the framework that owns them",
                      gpuf_device_kind_name(dst->device.kind), dst->device.index,
                      gpuf_device_kind_name(src->device.kind), src->device.index);
  }
  return GPUF_OK;
}

static gpuf_status check(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_stream stream,
                         gpuf_error *err) {
  gpuf_status status = gpuf_tensor_check(dst, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_check(src, err);
  }
  if (status == GPUF_OK) {
    status = check_devices(dst, src, err);
  }
  if (status == GPUF_OK && dst->dtype != src->dtype) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination's dtype is %s and the source's %s; they must be equal",
                      gpuf_dtype_name(dst->dtype), gpuf_dtype_name(src->dtype));
  }
  if (status == GPUF_OK && stream == GPUF_STREAM_NONE) {
    return gpufi_fail(
        err, GPUF_ERR_INVALID, 0,
        "stream is GPUF_STREAM_NONE; pass the stream that the copy is to run on, such "
        "as GPUF_STREAM_LEGACY");
  }
  if (status == GPUF_OK) {
    status = gpufi_destination_check(dst, src, err);
  }
  return status == GPUF_OK ? gpufi_overlap_check(dst, src, err) : status;
}

/* Let later work on `stream` wait for what is on the tensors' own streams now. */
static gpuf_status wait_for_producers(const gpufi_backend *backend, const gpuf_tensor *dst,
                                      const gpuf_tensor *src, gpuf_stream stream, gpuf_error *err) {
  const gpuf_stream producers[2] = {src->stream, dst->stream};
  gpuf_status status = GPUF_OK;
  for (int i = 0; i < 2 && status == GPUF_OK; i++) {
    gpufi_channel *channel = NULL;
    if (producers[i] == GPUF_STREAM_NONE || producers[i] == stream) {
      continue;
    }
    status = gpufi_channel_acquire(backend, dst->device, &channel, err);
    if (status == GPUF_OK) {
      status = gpufi_channel_order(channel, producers[i], stream, true, err);
    }
    gpufi_channel_release(channel, status != GPUF_OK);
  }
  return status;
}

static gpuf_status copy_flat(const gpufi_backend *backend, const gpuf_tensor *dst,
                             const gpuf_tensor *src, gpuf_stream stream, gpuf_error *err) {
  const size_t nbytes = gpuf_tensor_nbytes(src);
  const size_t least = gpufi_round_up_16(nbytes / FLAT_COPIES_MAX + 1);
  const size_t step = least > FLAT_COPY_NBYTES_MIN ? least : FLAT_COPY_NBYTES_MIN;
  gpufi_flat_copy flat_copies[FLAT_COPIES_MAX];
  size_t count = 0;
  for (size_t offset = 0; offset < nbytes; offset += step) {
    flat_copies[count++] =
        (gpufi_flat_copy){(char *)dst->data + offset, (const char *)src->data + offset,
                          gpufi_min_nbytes(nbytes - offset, step)};
  }
  return backend->gather(dst->device.index, flat_copies, count, stream, err);
}

/* Pack as many elements at a time as scratch holds, and unpack it from there. Other work may use
 * the scratch as soon as that on `stream` is done. */
static gpuf_status copy_through_scratch(const gpufi_backend *backend, const gpuf_tensor *dst,
                                        const gpuf_tensor *src, gpuf_stream stream,
                                        gpuf_error *err) {
  const int32_t device = dst->device.index;
  const int64_t count = gpuf_tensor_count(src);
  gpufi_scratch *scratch = NULL;
  gpuf_status status = gpufi_scratch_take(backend, dst->device, stream, true, &scratch, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_packing from = gpufi_packing_whole(src, scratch->d_data);
  gpufi_packing to = gpufi_packing_whole(dst, scratch->d_data);
  const int64_t step = (int64_t)(GPUFI_SCRATCH_NBYTES / from.layout.element_nbytes);
  for (int64_t first = 0; first < count && status == GPUF_OK; first += step) {
    from.first = to.first = first;
    from.count = to.count = gpufi_min_int64(count - first, step);
    status = backend->pack(device, &from, stream, err);
    if (status == GPUF_OK) {
      status = backend->unpack(device, &to, stream, err);
    }
  }
  gpufi_scratch_give(backend, scratch, stream);
  return status;
}

/* Enqueue the copy in the way that takes the least work for these layouts. Both have elements. */
static gpuf_status enqueue(const gpufi_backend *backend, gpuf_tensor dst, gpuf_tensor src,
                           gpuf_stream stream, gpuf_error *err) {
  gpufi_plan_order(&dst, &src);
  const gpufi_packing to = gpufi_packing_whole(&dst, src.data);
  const gpufi_packing from = gpufi_packing_whole(&src, dst.data);
  const bool to_packed = gpufi_strided_is_contiguous(&to.layout);
  const bool from_packed = gpufi_strided_is_contiguous(&from.layout);
  if (to_packed && from_packed) {
    return copy_flat(backend, &dst, &src, stream, err);
  }
  if (to_packed && (uintptr_t)dst.data % PACKED_ALIGN_NBYTES == 0) {
    return backend->pack(dst.device.index, &from, stream, err);
  }
  if (from_packed && (uintptr_t)src.data % PACKED_ALIGN_NBYTES == 0) {
    return backend->unpack(dst.device.index, &to, stream, err);
  }
  return copy_through_scratch(backend, &dst, &src, stream, err);
}

gpuf_status gpuf_tensor_copy(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_stream stream,
                             gpuf_error *err) {
  const gpufi_backend *backend;
  GPUFI_REQUIRE(dst, err);
  GPUFI_REQUIRE(src, err);
  gpuf_status status = check(dst, src, stream, err);
  if (status == GPUF_OK) {
    status = gpufi_backend_for(dst->device, &backend, err);
  }
  if (status != GPUF_OK || gpuf_tensor_count(src) == 0) {
    return status;
  }
  status = wait_for_producers(backend, dst, src, stream, err);
  return status == GPUF_OK ? enqueue(backend, *dst, *src, stream, err) : status;
}
