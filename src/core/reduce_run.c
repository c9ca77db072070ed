/* Running a reduction where the tensor lies, and bringing its result to the caller. */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/channel.h"
#include "core/reduce.h"
#include "core/runtime.h"

_Static_assert(GPUFI_REDUCE_STAGED_NBYTES_MAX <= GPUFI_CHANNEL_BUFFER_NBYTES,
               "a result fits a buffer");

#define SCRATCH_ALIGN_NBYTES ((size_t)256)

static size_t edges_nbytes(const gpufi_reduce *job) {
  return job->kind == GPUFI_REDUCE_HISTOGRAM ? ((size_t)job->bin_count + 1) * sizeof(double) : 0;
}

/* Where the result is to go. */
typedef struct target {
  gpufi_reduce_head *head;
  void *const *planes;
} target;

/* Copy a result that is in host memory to its target. */
static void take_result(const gpufi_reduce *job, const char *data, const target *to) {
  const size_t nbytes = gpufi_reduce_plane_nbytes(job);
  memcpy(to->head, data, sizeof(*to->head));
  data += sizeof(*to->head);
  for (int i = 0; i < gpufi_reduce_plane_count(job); i++) {
    memcpy(to->planes[i], data + (size_t)i * nbytes, nbytes);
  }
}

static gpuf_status run_on_cpu(const gpufi_reduce *job, const char *base, const double *edges,
                              const target *to, gpuf_error *err) {
  const size_t result_nbytes = gpufi_reduce_result_nbytes(job);
  const size_t data_nbytes =
      gpufi_round_up(result_nbytes + edges_nbytes(job), SCRATCH_ALIGN_NBYTES);
  const size_t nbytes = data_nbytes + gpufi_reduce_cpu_scratch_nbytes(job);
  char *data = malloc(nbytes);
  if (!data) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for %zu bytes of results",
                      nbytes);
  }
  if (edges) {
    memcpy(data + result_nbytes, edges, edges_nbytes(job));
  }
  gpufi_reduce_on_cpu(job, base, data, data + data_nbytes);
  take_result(job, data, to);
  free(data);
  return GPUF_OK;
}

/* Copy a histogram's edges to the device. They fit a staging buffer, because there are no more than
 * GPUF_HISTOGRAM_BINS_MAX bins. */
static gpuf_status send_edges(const gpufi_reduce *job, gpufi_channel *channel, const double *edges,
                              gpuf_error *err) {
  const size_t nbytes = edges_nbytes(job);
  char *d_edges = (char *)channel->d_workspace + gpufi_reduce_result_nbytes(job);
  if (!edges) {
    return GPUF_OK;
  }
  memcpy(channel->buffers[0].data, edges, nbytes);
  return channel->backend->copy(channel->device.index, d_edges, channel->buffers[0].data, nbytes,
                                GPUFI_TO_DEVICE, channel->stream, err);
}

/* Copy a plane of any size to its target, after the channel's work. */
static gpuf_status receive_plane(gpufi_channel *channel, const char *d_plane, size_t nbytes,
                                 void *plane, gpuf_error *err) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor src, dst;
  gpuf_status status =
      gpuf_tensor_init(&src, d_plane, channel->device, GPUF_DTYPE_UINT8, 1, shape, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_init(&dst, plane, (gpuf_device){GPUF_DEVICE_CPU, 0}, GPUF_DTYPE_UINT8, 1,
                              shape, err);
  }
  src.stream = channel->stream;
  return status == GPUF_OK ? gpuf_copy(&dst, &src, NULL, err) : status;
}

/* Bring a small result in one transfer, and of a larger one the head and each plane on its own. */
static gpuf_status receive(const gpufi_reduce *job, gpufi_channel *channel, const target *to,
                           gpuf_error *err) {
  gpufi_staging_buffer *buffer = &channel->buffers[0];
  const size_t result_nbytes = gpufi_reduce_result_nbytes(job);
  const size_t plane_nbytes = gpufi_reduce_plane_nbytes(job);
  const bool staged = result_nbytes <= GPUFI_REDUCE_STAGED_NBYTES_MAX;
  const char *d_planes = (const char *)channel->d_workspace + sizeof(*to->head);
  gpuf_status status = channel->backend->copy(
      channel->device.index, buffer->data, channel->d_workspace,
      staged ? result_nbytes : sizeof(*to->head), GPUFI_TO_HOST, channel->stream, err);
  if (status == GPUF_OK) {
    status =
        channel->backend->event_record(channel->device.index, buffer->copied, channel->stream, err);
  }
  for (int i = 0; i < gpufi_reduce_plane_count(job) && !staged && status == GPUF_OK; i++) {
    status = receive_plane(channel, d_planes + (size_t)i * plane_nbytes, plane_nbytes,
                           to->planes[i], err);
  }
  if (status == GPUF_OK) {
    status = channel->backend->event_wait(channel->device.index, buffer->copied, err);
  }
  if (status == GPUF_OK && staged) {
    take_result(job, buffer->data, to);
  } else if (status == GPUF_OK) {
    memcpy(to->head, buffer->data, sizeof(*to->head));
  }
  return status;
}

static gpuf_status run_on_channel(const gpufi_reduce *job, gpufi_channel *channel,
                                  const gpuf_tensor *src, const char *base, const double *edges,
                                  const target *to, gpuf_error *err) {
  const gpufi_backend *backend = channel->backend;
  const size_t data_nbytes =
      gpufi_round_up(gpufi_reduce_result_nbytes(job) + edges_nbytes(job), SCRATCH_ALIGN_NBYTES);
  const size_t scratch_nbytes = backend->reduce_scratch_nbytes(job, base);
  gpuf_status status = gpufi_channel_need_staging(channel, err);
  if (status == GPUF_OK) {
    status = gpufi_channel_need_workspace(channel, data_nbytes + scratch_nbytes, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_channel_join(channel, src->stream, err);
  }
  if (status == GPUF_OK) {
    status = send_edges(job, channel, edges, err);
  }
  if (status == GPUF_OK) {
    status = backend->reduce(src->device.index, job, base, channel->d_workspace,
                             (char *)channel->d_workspace + data_nbytes, channel->stream, err);
  }
  return status == GPUF_OK ? receive(job, channel, to, err) : status;
}

gpuf_status gpufi_reduce_run(const gpufi_reduce *job, const gpuf_tensor *src, const char *base,
                             const double *edges, gpufi_reduce_head *head, void *const planes[2],
                             gpuf_error *err) {
  const target to = {head, planes};
  const gpufi_backend *backend;
  gpufi_channel *channel;
  if (src->device.kind == GPUF_DEVICE_CPU) {
    return run_on_cpu(job, base, edges, &to, err);
  }
  gpuf_status status = gpufi_backend_for(src->device, &backend, err);
  if (status == GPUF_OK) {
    status = gpufi_channel_acquire(backend, src->device, &channel, err);
  }
  if (status == GPUF_OK) {
    status = run_on_channel(job, channel, src, base, edges, &to, err);
    gpufi_channel_release(channel, status != GPUF_OK);
  }
  return status;
}
