#include "backend/host/reduce.h"

#include "backend/host/faults.h"
#include "backend/host/memory.h"
#include "backend/host/stream.h"

typedef struct reduce_args {
  const gpufi_reduce *job;
  const void *d_base;
  void *d_result;
  void *d_scratch;
} reduce_args;

static gpuf_status reduce_work(const void *args, gpuf_error *err) {
  const reduce_args *a = args;
  const gpufi_reduce *job = a->job;
  const size_t scratch_nbytes = gpufi_reduce_cpu_scratch_nbytes(job);
  int64_t low = 0, high = job->element_nbytes;
  void *first = NULL, *result = NULL, *scratch = NULL;
  for (int32_t axis = 0; axis < job->ndim; axis++) {
    const int64_t span = (job->axes[axis].length - 1) * job->axes[axis].stride_nbytes;
    *(span < 0 ? &low : &high) += span;
  }
  gpufi_host_delay(0);
  gpuf_status status =
      gpufi_host_resolve((const char *)a->d_base + low, (size_t)(high - low), &first, err);
  if (status == GPUF_OK) {
    status = gpufi_host_resolve(a->d_result, gpufi_reduce_result_nbytes(job), &result, err);
  }
  if (status == GPUF_OK && scratch_nbytes > 0) {
    status = gpufi_host_resolve(a->d_scratch, scratch_nbytes, &scratch, err);
  }
  if (status == GPUF_OK) {
    gpufi_reduce_on_cpu(job, (char *)first - low, result, scratch);
  }
  return status;
}

size_t gpufi_host_reduce_scratch_nbytes(const gpufi_reduce *job, const void *d_base) {
  return gpufi_reduce_cpu_scratch_nbytes(job);
}

gpuf_status gpufi_host_reduce(int32_t device, const gpufi_reduce *job, const void *d_base,
                              void *d_result, void *d_scratch, gpuf_stream stream,
                              gpuf_error *err) {
  const reduce_args args = {job, d_base, d_result, d_scratch};
  return gpufi_host_enqueue(device, stream, reduce_work, &args, sizeof(args), err);
}
