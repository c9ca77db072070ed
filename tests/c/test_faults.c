/* Copies, tensors and streams with the n-th call of a kind failing, for every n: whatever is
 * reported as GPUF_OK has every byte right, whatever fails says why, and the next attempt works. */
#include "fault_tensors.h"

static const gpuf_copy_options two_threads = {
    .struct_nbytes = sizeof(gpuf_copy_options), .piece_nbytes = 64 << 10, .thread_count = 2};

/* --- To the CPU ------------------------------------------------------------------- */

static gpuf_status fetch_from(const gpuf_tensor *src, const gpuf_copy_options *options,
                              bool *right) {
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  const gpuf_status status = gpuf_copy(&dst, src, options, &err);
  *right = is_whole(result);
  return status;
}

static gpuf_status fetch(bool *right) {
  const gpuf_copy_options four_threads = {
      .struct_nbytes = sizeof(gpuf_copy_options), .piece_nbytes = 32 << 10, .thread_count = 4};
  return fetch_from(&d_source, &four_threads, right);
}

static gpuf_status fetch_by_per_thread_stream(bool *right) {
  gpuf_tensor src = d_source;
  src.stream = GPUF_STREAM_PER_THREAD;
  return fetch_from(&src, &two_threads, right);
}

static gpuf_status fetch_async(bool *right) {
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  gpuf_future *future;
  gpuf_status status = gpuf_copy_async(&dst, &d_source, &two_threads, &future, &err);
  if (status == GPUF_OK) {
    status = gpuf_future_wait(future, -1, &err);
    gpuf_future_destroy(future);
  } else {
    CHECK(!future);
  }
  *right = is_whole(result);
  return status;
}

/* Waits with a time limit, which poll, until the copy is done. */
static gpuf_status fetch_pinned_async(bool *right) {
  void *pinned;
  gpuf_future *future = NULL;
  gpuf_status status = gpuf_pool_acquire(host_device, sizeof(values), &pinned, &err);
  if (status != GPUF_OK) {
    return status;
  }
  memset(pinned, 0xa5, sizeof(values));
  const gpuf_tensor dst = tensor_of(pinned, cpu_device, ROWS, COLUMNS);
  status = gpuf_copy_async(&dst, &d_source, NULL, &future, &err);
  if (status == GPUF_OK) {
    do {
      status = gpuf_future_wait(future, 1000000, &err);
    } while (status == GPUF_ERR_TIMEOUT);
    CHECK(gpuf_future_done(future));
  }
  *right = is_whole(pinned);
  gpuf_future_destroy(future);
  gpuf_pool_release(pinned, NULL);
  return status;
}

static gpuf_status fetch_abandoned(bool *right) {
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  gpuf_future *future;
  const gpuf_status status = gpuf_copy_async(&dst, &d_source, &two_threads, &future, &err);
  if (status == GPUF_OK) {
    gpuf_future_destroy(future);
    memset(result, 0, sizeof(result)); /* nothing writes here any more */
  }
  *right = true;
  for (size_t i = 0; i < COUNT; i++) {
    *right = *right && result[i] == 0;
  }
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

/* Of a view that the device packs, in several pieces, into memory that it writes itself. */
static gpuf_status fetch_strided_pinned(bool *right) {
  const gpuf_tensor src = every_second_column(d_source);
  void *pinned;
  gpuf_status status = gpuf_pool_acquire(host_device, sizeof(values), &pinned, &err);
  if (status == GPUF_OK) {
    memset(pinned, 0xa5, sizeof(values));
    const gpuf_tensor dst = tensor_of(pinned, cpu_device, ROWS, COLUMNS / 2);
    status = gpuf_copy(&dst, &src, &two_threads, &err);
    *right = has_every_second_column(pinned);
    gpuf_pool_release(pinned, NULL);
  }
  return status;
}

static gpuf_status fetch_new_result(bool *right) {
  const size_t nbytes = (size_t)33 << 20; /* large enough to be staged at first */
  void *buffer;
  gpuf_status status = gpuf_pool_acquire_result(host_device, nbytes, &buffer, &err);
  if (status == GPUF_OK) {
    memset(buffer, 0xa5, sizeof(values));
    const gpuf_tensor dst = tensor_of(buffer, cpu_device, ROWS, COLUMNS);
    status = gpuf_copy(&dst, &d_source, &two_threads, &err);
    *right = is_whole(buffer);
    gpuf_pool_release(buffer, NULL);
  }
  return status;
}

static gpuf_status fetch_strided(bool *right) {
  const gpuf_tensor src = every_second_column(d_source);
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS / 2);
  const gpuf_status status = gpuf_copy(&dst, &src, &two_threads, &err);
  *right = has_every_second_column(result);
  return status;
}

/* The left half of each row, into every second element. */
static gpuf_status fetch_left_half(const gpuf_copy_options *options, bool *right) {
  gpuf_tensor src = d_source;
  CHECK_OK(gpuf_tensor_slice(&src, 1, 0, 1, COLUMNS / 2, &err));
  const gpuf_tensor dst = every_second_column(fresh_result(ROWS, COLUMNS));
  const gpuf_status status = gpuf_copy(&dst, &src, options, &err);
  *right = true;
  for (size_t i = 0; i < COUNT / 2; i++) {
    const size_t row = i / (COLUMNS / 2), column = i % (COLUMNS / 2);
    *right = *right && result[row * COLUMNS + 2 * column] == values[row * COLUMNS + column];
  }
  return status;
}

/* The rows are wide enough for 2-D copies. */
static gpuf_status fetch_rows(bool *right) {
  return fetch_left_half(&two_threads, right);
}

static gpuf_status fetch_cast(bool *right) {
  const gpuf_copy_options cast = {.struct_nbytes = sizeof(gpuf_copy_options),
                                  .piece_nbytes = 64 << 10,
                                  .thread_count = 2,
                                  .cast = true};
  static double doubles[COUNT];
  gpuf_tensor dst = tensor_of(doubles, cpu_device, ROWS, COLUMNS);
  memset(doubles, 0xa5, sizeof(doubles));
  dst.dtype = GPUF_DTYPE_FLOAT64;
  dst.strides_nbytes[0] = 8 * COLUMNS;
  dst.strides_nbytes[1] = 8;
  const gpuf_status status = gpuf_copy(&dst, &d_source, &cast, &err);
  *right = true;
  for (size_t i = 0; i < COUNT; i++) {
    *right = *right && doubles[i] == (double)values[i];
  }
  return status;
}

/* --- To the device ------------------------------------------------------------------ */

static gpuf_status send(bool *right) {
  const gpuf_tensor src = tensor_of(values, cpu_device, ROWS, COLUMNS);
  const gpuf_status status = gpuf_copy(&d_target, &src, &two_threads, &err);
  *right = is_whole(take_target());
  return status;
}

static gpuf_status send_pinned(bool *right) {
  void *pinned;
  gpuf_status status = gpuf_pool_acquire(host_device, sizeof(values), &pinned, &err);
  if (status == GPUF_OK) {
    memcpy(pinned, values, sizeof(values));
    const gpuf_tensor src = tensor_of(pinned, cpu_device, ROWS, COLUMNS);
    status = gpuf_copy(&d_target, &src, NULL, &err);
    *right = is_whole(take_target());
    gpuf_pool_release(pinned, NULL);
  }
  return status;
}

static gpuf_status send_strided(bool *right) {
  const gpuf_tensor whole = tensor_of(values, cpu_device, ROWS, COLUMNS);
  const gpuf_tensor src = every_second_column(whole), dst = every_second_column(d_target);
  const gpuf_status status = gpuf_copy(&dst, &src, &two_threads, &err);
  const float *const got = take_target();
  *right = true;
  for (size_t i = 0; i < COUNT; i += 2) {
    *right = *right && got[i] == values[i] && isnan(got[i + 1]);
  }
  return status;
}

static gpuf_status send_cast(bool *right) {
  const gpuf_copy_options cast = {.struct_nbytes = sizeof(gpuf_copy_options),
                                  .piece_nbytes = 64 << 10,
                                  .thread_count = 2,
                                  .cast = true};
  static double doubles[COUNT];
  gpuf_tensor src = tensor_of(doubles, cpu_device, ROWS, COLUMNS);
  src.dtype = GPUF_DTYPE_FLOAT64;
  src.strides_nbytes[0] = 8 * COLUMNS;
  src.strides_nbytes[1] = 8;
  for (size_t i = 0; i < COUNT; i++) {
    doubles[i] = (double)values[i];
  }
  const gpuf_status status = gpuf_copy(&d_target, &src, &cast, &err);
  *right = is_whole(take_target());
  return status;
}

/* --- Many at once ------------------------------------------------------------------- */

#define MANY 6

/* Rows, in the parts that both ways of copying many take. */
static gpuf_tensor part(gpuf_tensor tensor, int i) {
  CHECK_OK(gpuf_tensor_slice(&tensor, 0, i * (ROWS / MANY), 1, ROWS / MANY, &err));
  return tensor;
}

static gpuf_status fetch_many(bool *right) {
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  gpuf_tensor srcs[MANY], dsts[MANY];
  for (int i = 0; i < MANY; i++) {
    srcs[i] = part(d_source, i);
    dsts[i] = part(dst, i);
  }
  const gpuf_status status = gpuf_copy_many(dsts, srcs, MANY, &two_threads, &err);
  *right = is_whole(result);
  return status;
}

/* Into and out of buffers of the pool, small and strided, in one call. */
static gpuf_status copy_many_both_ways(bool *right) {
  gpuf_tensor srcs[2 * MANY], dsts[2 * MANY];
  void *in, *out = NULL;
  gpuf_status status = gpuf_pool_acquire(host_device, sizeof(values), &in, &err);
  if (status == GPUF_OK) {
    status = gpuf_pool_acquire(host_device, sizeof(values), &out, &err);
  }
  if (status == GPUF_OK) {
    const gpuf_tensor to = tensor_of(in, cpu_device, ROWS, COLUMNS);
    const gpuf_tensor from = tensor_of(out, cpu_device, ROWS, COLUMNS);
    memset(in, 0xa5, sizeof(values));
    memcpy(out, values, sizeof(values));
    for (int i = 0; i < MANY; i++) {
      const gpuf_tensor away = part(d_target, i), back = part(to, i);
      srcs[2 * i] = part(d_source, i);
      dsts[2 * i] = back;
      srcs[2 * i + 1] = i == 3 ? every_second_column(part(from, i)) : part(from, i);
      dsts[2 * i + 1] = i == 3 ? every_second_column(away) : away;
    }
    status = gpuf_copy_many(dsts, srcs, 2 * MANY, NULL, &err);
    *right = is_whole(in);
    const float *const got = take_target();
    for (size_t i = 0; i < COUNT; i++) {
      const bool is_left = i / (COUNT / MANY) == 3 && i % 2 == 1;
      *right = *right && (is_left ? isnan(got[i]) : got[i] == values[i]);
    }
  }
  gpuf_pool_release(out, NULL);
  if (out || status == GPUF_OK) {
    gpuf_pool_release(in, NULL);
  }
  return status;
}

/* --- Within one memory ----------------------------------------------------------------- */

static gpuf_status copy_on_cpu(bool *right) {
  const gpuf_tensor src = tensor_of(values, cpu_device, ROWS, COLUMNS);
  return fetch_from(&src, NULL, right);
}

static gpuf_status copy_on_device(const gpuf_tensor *dst, const gpuf_tensor *src) {
  gpuf_stream stream;
  gpuf_status status = gpuf_stream_create(host_device, &stream, &err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpuf_tensor_copy(dst, src, stream, &err);
  /* The work of a copy that has failed may go on; and a wait that fails does not wait. */
  gpuf_error waited;
  const gpuf_status synchronized = gpuf_stream_synchronize(host_device, stream, &waited);
  faults_disarm();
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &waited));
  if (status == GPUF_OK && synchronized != GPUF_OK) {
    err = waited;
    status = synchronized;
  }
  return status;
}

static gpuf_status copy_flat_on_device(bool *right) {
  gpuf_tensor src = d_source;
  src.stream = GPUF_STREAM_LEGACY;
  const gpuf_status status = copy_on_device(&d_target, &src);
  *right = is_whole(take_target());
  return status;
}

/* Neither side is packed, so that the elements pass through scratch. */
static gpuf_status copy_strided_on_device(bool *right) {
  const gpuf_tensor src = every_second_column(d_source), dst = every_second_column(d_target);
  const gpuf_status status = copy_on_device(&dst, &src);
  const float *const got = take_target();
  *right = true;
  for (size_t i = 0; i < COUNT; i += 2) {
    *right = *right && got[i] == values[i] && isnan(got[i + 1]);
  }
  return status;
}

/* --- Behind work that has failed ----------------------------------------------------------- */

static gpuf_tensor d_small, d_freed; /* a copy from one to the other fails on its stream */

static void prepare_with_freed(void) {
  const int64_t count = 16;
  prepare_tensors();
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, &count, &d_small, &err));
  gpuf_tensor gone;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, &count, &gone, &err));
  d_freed = gone;
  CHECK_OK(gpuf_tensor_free(&gone, &err));
}

static gpuf_status stream_with_failed_work(gpuf_stream *stream) {
  gpuf_status status = gpuf_stream_create(host_device, stream, &err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_copy(&d_small, &d_freed, *stream, &err);
    if (status != GPUF_OK) {
      faults_disarm();
      CHECK_OK(gpuf_stream_destroy(host_device, *stream, NULL));
    }
  }
  return status;
}

/* The failure stays the stream's. */
static gpuf_status copy_on_device_behind_failed_work(bool *right) {
  const gpuf_tensor src = every_second_column(d_source), dst = every_second_column(d_target);
  gpuf_stream stream;
  gpuf_status status = stream_with_failed_work(&stream);
  if (status == GPUF_OK) {
    status = gpuf_tensor_copy(&dst, &src, stream, &err);
    *right = gpuf_stream_synchronize(host_device, stream, NULL) != GPUF_OK;
    faults_disarm();
    gpuf_stream_destroy(host_device, stream, NULL);
  }
  take_target();
  return status;
}

/* The failure is the call's. */
static gpuf_status fetch_many_behind_failed_work(bool *right) {
  gpuf_tensor srcs[MANY], dsts[MANY];
  gpuf_tensor src = d_source;
  void *pinned;
  gpuf_status status = gpuf_pool_acquire(host_device, sizeof(values), &pinned, &err);
  if (status != GPUF_OK) {
    return status;
  }
  status = stream_with_failed_work(&src.stream);
  if (status == GPUF_OK) {
    for (int i = 0; i < MANY; i++) {
      srcs[i] = part(src, i);
      dsts[i] = part(tensor_of(pinned, cpu_device, ROWS, COLUMNS), i);
    }
    status = gpuf_copy_many(dsts, srcs, MANY, NULL, &err);
    *right = strstr(err.message, "not inside a live allocation");
    status = *right ? GPUF_OK : status; /* GPUF_OK for a copy that was not made is not right */
    faults_disarm();
    gpuf_stream_destroy(host_device, src.stream, NULL);
  }
  gpuf_pool_release(pinned, NULL);
  return status;
}

/* --- Memory and streams ------------------------------------------------------------------ */

static gpuf_status tensor_of_ones_own(bool *right) {
  const int64_t shape[] = {ROWS, COLUMNS};
  gpuf_tensor own = {.data = NULL};
  gpuf_device found;
  gpuf_status status = gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 2, shape, &own, &err);
  if (status != GPUF_OK) {
    CHECK(!own.data);
    return status;
  }
  status = gpuf_device_of(own.data, &found, &err);
  *right = found.kind == GPUF_DEVICE_HOST && gpuf_tensor_nbytes(&own) == sizeof(values);
  const gpuf_status freed = gpuf_tensor_free(&own, &err);
  CHECK(!own.data == (freed == GPUF_OK));
  return status == GPUF_OK ? freed : status;
}

static void double_kernel(const void *args) {
  const device_access *const a = args;
  float *const elements = gpuf_host_pointer(a->d_ptr);
  for (size_t i = 0; i < COUNT; i++) {
    elements[i] = 2 * values[i];
  }
}

/* A program's own kernel on a stream of its own, and a copy behind it. */
static gpuf_status kernel_on_stream(bool *right) {
  const device_access args = {.d_ptr = d_target.data};
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  gpuf_tensor src = d_target;
  gpuf_error ignored;
  gpuf_status status = gpuf_stream_create(host_device, &src.stream, &err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpuf_host_launch(host_device, src.stream, double_kernel, &args, sizeof(args), &err);
  if (status == GPUF_OK) {
    status = gpuf_copy(&dst, &src, &two_threads, &err);
  }
  *right = true;
  for (size_t i = 0; i < COUNT; i++) {
    *right = *right && result[i] == 2 * values[i];
  }
  faults_disarm();
  CHECK_OK(gpuf_stream_destroy(host_device, src.stream, &ignored));
  take_target();
  return status;
}

static const operation operations[] = {
    {"fetch", fetch, false},
    {"fetch behind the thread's own stream", fetch_by_per_thread_stream, true},
    {"fetch_async", fetch_async, false},
    {"fetch_async into a pool buffer", fetch_pinned_async, false},
    {"fetch_async that is abandoned", fetch_abandoned, true},
    {"fetch into a pool buffer", fetch_pinned, false},
    {"fetch of a strided view into a pool buffer", fetch_strided_pinned, false},
    {"fetch into a new result", fetch_new_result, false},
    {"fetch of a strided view", fetch_strided, false},
    {"fetch of wide rows into a strided view", fetch_rows, false},
    {"fetch with a cast", fetch_cast, true},
    {"send", send, false},
    {"send from a pool buffer", send_pinned, false},
    {"send into a strided view", send_strided, false},
    {"send with a cast", send_cast, true},
    {"fetch of many", fetch_many, false},
    {"copies of many both ways", copy_many_both_ways, true},
    {"copy between arrays", copy_on_cpu, false},
    {"copy within the device", copy_flat_on_device, false},
    {"copy within the device through scratch", copy_strided_on_device, false},
    {"copy within the device behind failed work", copy_on_device_behind_failed_work, false},
    {"fetch of many behind failed work", fetch_many_behind_failed_work, false},
    {"tensor_alloc and tensor_free", tensor_of_ones_own, false},
    {"kernel on a stream", kernel_on_stream, false},
};

int main(void) {
  fill_values();
  return run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare_with_freed);
}
