/* Every public operation with the n-th call of a kind failing, for every n: whatever is reported as
 * GPUF_OK has every byte right, whatever fails says so, and the next attempt works. */
#include <gpufetch/reduce.h>
#include <gpufetch/share.h>
#include <math.h>

#include "fault_cases.h"

#define ROWS 96
#define COLUMNS 1000
#define COUNT ((size_t)ROWS * COLUMNS)
/* --- What operations work on ------------------------------------------------------- */

static float values[COUNT]; /* what the device holds */
static float result[COUNT];
static gpuf_tensor d_source, d_target;

static gpuf_tensor tensor_of(void *data, gpuf_device device, int64_t rows, int64_t columns) {
  const int64_t shape[] = {rows, columns};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  return tensor;
}

static gpuf_tensor device_tensor(float *from) {
  const int64_t shape[] = {ROWS, COLUMNS};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 2, shape, &tensor, &err));
  if (from) {
    access_device(tensor.data, from, sizeof(values), true);
  }
  return tensor;
}

static void prepare(void) {
  for (size_t i = 0; i < COUNT; i++) {
    values[i] = sinf((float)(i % COLUMNS) / 50.0F) + (float)(i / COLUMNS);
  }
  d_source = device_tensor(values);
  d_target = device_tensor(NULL);
}

static bool is_whole(const float *got) {
  return memcmp(got, values, sizeof(values)) == 0;
}

/* The destination of copies to the CPU, without anything right in it. */
static gpuf_tensor fresh_result(int64_t rows, int64_t columns) {
  memset(result, 0xa5, sizeof(result));
  return tensor_of(result, cpu_device, rows, columns);
}

static gpuf_tensor every_second_column(gpuf_tensor tensor) {
  CHECK_OK(gpuf_tensor_slice(&tensor, 1, 0, 2, tensor.shape[1] / 2, &err));
  return tensor;
}

static bool has_every_second_column(const float *got) {
  for (size_t i = 0; i < COUNT / 2; i++) {
    if (got[i] != values[2 * i]) {
      return false;
    }
  }
  return true;
}

/* --- The operations: each gives a status, and *right if it is GPUF_OK ------------------ */

static const gpuf_copy_options four_threads = {
    .struct_nbytes = sizeof(gpuf_copy_options), .piece_nbytes = 16 << 10, .thread_count = 4};

static gpuf_status fetch(bool *right) {
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  const gpuf_status status = gpuf_copy(&dst, &d_source, &four_threads, &err);
  *right = is_whole(result);
  return status;
}

static gpuf_status fetch_async(bool *right) {
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  gpuf_future *future;
  gpuf_status status = gpuf_copy_async(&dst, &d_source, &four_threads, &future, &err);
  if (status == GPUF_OK) {
    status = gpuf_future_wait(future, -1, &err);
    gpuf_future_destroy(future);
  }
  *right = is_whole(result);
  return status;
}

static gpuf_status fetch_pinned(bool *right) {
  void *pinned;
  gpuf_status status = gpuf_pool_acquire(host_device, sizeof(values), &pinned, &err);
  if (status == GPUF_OK) {
    memset(pinned, 0xa5, sizeof(values));
    const gpuf_tensor dst = tensor_of(pinned, cpu_device, ROWS, COLUMNS);
    status = gpuf_copy(&dst, &d_source, NULL, &err);
    *right = is_whole(pinned);
    gpuf_pool_release(pinned, NULL);
  }
  return status;
}

static gpuf_status fetch_new_result(bool *right) {
  void *block;
  gpuf_status status = gpuf_pool_acquire_result(host_device, sizeof(values), &block, &err);
  if (status == GPUF_OK) {
    const gpuf_tensor dst = tensor_of(block, cpu_device, ROWS, COLUMNS);
    status = gpuf_copy(&dst, &d_source, NULL, &err);
    *right = is_whole(block);
    gpuf_pool_release(block, NULL);
  }
  return status;
}

static gpuf_status fetch_strided(bool *right) {
  const gpuf_tensor src = every_second_column(d_source);
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS / 2);
  const gpuf_status status = gpuf_copy(&dst, &src, &four_threads, &err);
  *right = has_every_second_column(result);
  return status;
}

static gpuf_status fetch_coded(bool *right) {
  const gpuf_copy_options options = {.struct_nbytes = sizeof(gpuf_copy_options),
                                     .piece_nbytes = 16 << 10,
                                     .thread_count = 4,
                                     .via = GPUF_VIA_CODEC};
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  const gpuf_status status = gpuf_copy(&dst, &d_source, &options, &err);
  *right = is_whole(result);
  return status;
}

static gpuf_status send(bool *right) {
  const gpuf_tensor src = tensor_of(values, cpu_device, ROWS, COLUMNS);
  memset(result, 0xa5, sizeof(result));
  const gpuf_status status = gpuf_copy(&d_target, &src, &four_threads, &err);
  if (status == GPUF_OK) {
    faults_disarm();
    access_device(d_target.data, result, sizeof(result), false);
  }
  *right = is_whole(result);
  return status;
}

#define MANY 12

static gpuf_status fetch_many(bool *right) {
  gpuf_tensor srcs[MANY], dsts[MANY];
  memset(result, 0xa5, sizeof(result));
  const int64_t rows = ROWS / MANY;
  for (int i = 0; i < MANY; i++) {
    srcs[i] = d_source;
    CHECK_OK(gpuf_tensor_slice(&srcs[i], 0, i * rows, 1, rows, &err));
    dsts[i] = tensor_of(result + (size_t)i * rows * COLUMNS, cpu_device, rows, COLUMNS);
  }
  const gpuf_status status = gpuf_copy_many(dsts, srcs, MANY, &four_threads, &err);
  *right = is_whole(result);
  return status;
}

static gpuf_status statistics(bool *right) {
  gpuf_stats stats = GPUF_STATS_INIT;
  const gpuf_status status = gpuf_reduce_stats(&d_source, &stats, &err);
  float greatest = values[0];
  for (size_t i = 1; i < COUNT; i++) {
    greatest = values[i] > greatest ? values[i] : greatest;
  }
  *right = stats.count == COUNT && stats.max.f64 == (double)greatest;
  return status;
}

static gpuf_status overview(bool *right) {
  const int64_t shape[] = {ROWS, 10};
  memset(result, 0xa5, sizeof(result));
  const gpuf_status status =
      gpuf_reduce_overview(&d_source, GPUF_OVERVIEW_FIRST, shape, result, NULL, NULL, &err);
  *right = true;
  for (size_t i = 0; i < (size_t)ROWS * 10; i++) {
    *right = *right && result[i] == values[i * (COLUMNS / 10)];
  }
  return status;
}

static gpuf_status histogram(bool *right) {
  uint64_t bins[64], total = 0;
  const double range[2] = {-10, 1000};
  memset(bins, 0xa5, sizeof(bins));
  const gpuf_status status = gpuf_reduce_histogram(&d_source, 64, range, bins, NULL, NULL, &err);
  for (int i = 0; i < 64; i++) {
    total += bins[i];
  }
  *right = total == COUNT;
  return status;
}

static gpuf_status share_and_attach(bool *right) {
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor seen;
  gpuf_status status = gpuf_share(&d_source, NULL, &handle, &err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpuf_attach(&handle, &attachment, &seen, &err);
  if (status == GPUF_OK) {
    *right = seen.data == d_source.data;
    status = gpuf_detach(attachment, &err);
  }
  gpuf_error ignored;
  const gpuf_status ended = gpuf_unshare(&handle, 0, NULL, &ignored);
  return status == GPUF_OK ? ended : status;
}

static const operation operations[] = {
    {"fetch", fetch},
    {"fetch_async", fetch_async},
    {"fetch into a pool buffer", fetch_pinned},
    {"fetch into a new result", fetch_new_result},
    {"fetch of a strided view", fetch_strided},
    {"fetch through the codec", fetch_coded},
    {"send", send},
    {"fetch of many", fetch_many},
    {"statistics", statistics},
    {"overview", overview},
    {"histogram", histogram},
    {"share and attach", share_and_attach},
};

int main(void) {
  return run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare);
}
