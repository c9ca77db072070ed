#include "backend/host/faults.h"
#include "backend/strided.h"
#include "devices.h"

static gpuf_error err;

static void upload(void *d_ptr, const void *bytes, size_t nbytes) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor dst, src;
  CHECK_OK(gpuf_tensor_init(&dst, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&src, (void *)bytes, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &src, NULL, &err));
}

static void download(void *bytes, const void *d_ptr, size_t nbytes) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor dst, src;
  CHECK_OK(gpuf_tensor_init(&src, (void *)d_ptr, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&dst, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &src, NULL, &err));
}

static void *device_alloc(size_t nbytes) {
  void *d_ptr;
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  return d_ptr;
}

/* Through pageable and pinned memory, sizes around the pieces' and the segments' ends. */
static void bytes_survive_the_round_trip(void) {
  const size_t sizes[] = {1, 7, 4096, 4194303, 4194304, 4194305, 9000001, 33554432, 70000003};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    const size_t nbytes = sizes[i];
    char *sent = malloc(nbytes), *received = malloc(nbytes);
    void *pinned, *d_ptr = device_alloc(nbytes);
    fill_random(sent, nbytes, i + 1);
    upload(d_ptr, sent, nbytes);
    download(received, d_ptr, nbytes);
    CHECK(memcmp(sent, received, nbytes) == 0);
    CHECK_OK(gpuf_pool_acquire(test_device, nbytes, &pinned, &err));
    download(pinned, d_ptr, nbytes);
    CHECK(memcmp(sent, pinned, nbytes) == 0);
    for (size_t k = 0; k < nbytes; k++) {
      ((char *)pinned)[k] ^= 0x5a;
    }
    upload(d_ptr, pinned, nbytes);
    download(received, d_ptr, nbytes);
    CHECK(memcmp(received, pinned, nbytes) == 0);
    gpuf_pool_release(pinned, NULL);
    CHECK_OK(gpuf_free(test_device, d_ptr, &err));
    free(sent);
    free(received);
  }
}

/* A view of a (6, 50, 70) array: every third plane backwards, columns before rows. */
static gpuf_tensor strided_view(void *data, gpuf_device device, gpuf_dtype dtype) {
  const int64_t shape[3] = {6, 50, 70};
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, data, device, dtype, 3, shape, &err));
  CHECK_OK(gpuf_tensor_slice(&t, 0, 5, -3, 2, &err));
  CHECK_OK(gpuf_tensor_slice(&t, 2, 69, -2, 35, &err));
  t.shape[1] = 35;
  t.shape[2] = 50;
  const int64_t stride = t.strides_nbytes[1];
  t.strides_nbytes[1] = t.strides_nbytes[2];
  t.strides_nbytes[2] = stride;
  return t;
}

static const gpuf_dtype dtypes[] = {GPUF_DTYPE_INT8, GPUF_DTYPE_FLOAT16, GPUF_DTYPE_FLOAT32,
                                    GPUF_DTYPE_INT64, GPUF_DTYPE_COMPLEX128};

static void packed_reference(const gpuf_tensor *view, void *packed) {
  gpufi_strided layout;
  gpufi_strided_init(&layout, view);
  gpufi_strided_pack(&layout, view->data, 0, gpuf_tensor_count(view), packed);
}

/* Device views and host views that are strided, contiguous and pinned, in small and default pieces.
 */
static void a_strided_fetch_agrees_with_the_reference(void) {
  enum { COUNT = 6 * 50 * 70 };
  static char source[COUNT * 16], expected[COUNT * 16], out[COUNT * 16], packed[COUNT * 16];
  const gpuf_copy_options options[] = {
      GPUF_COPY_OPTIONS_INIT,
      {sizeof(options[0]), .piece_nbytes = 1000, .thread_count = 3},
      {sizeof(options[0]), .piece_nbytes = 1, .thread_count = 1}};
  fill_random(source, sizeof(source), 11);
  for (int i = 0; i < 15; i++) {
    const gpuf_dtype dtype = dtypes[i % 5];
    const size_t nbytes = COUNT * gpuf_dtype_nbytes(dtype);
    if (i / 5 == 2 && dtype != GPUF_DTYPE_COMPLEX128) {
      continue; /* pieces of one element: slow, and one type shows it */
    }
    void *pinned, *d_ptr = device_alloc(nbytes);
    upload(d_ptr, source, nbytes);
    const gpuf_tensor d_view = strided_view(d_ptr, test_device, dtype);
    gpuf_tensor src = strided_view(source, cpu_device, dtype), dst;
    const size_t view_nbytes = gpuf_tensor_nbytes(&src);
    packed_reference(&src, expected);

    CHECK_OK(gpuf_pool_acquire(test_device, view_nbytes, &pinned, &err));
    CHECK_OK(gpuf_tensor_init(&dst, pinned, cpu_device, dtype, 3, src.shape, &err));
    CHECK_OK(gpuf_copy(&dst, &d_view, &options[i / 5], &err));
    CHECK(memcmp(pinned, expected, view_nbytes) == 0);
    gpuf_pool_release(pinned, NULL);

    memset(out, 0, sizeof(out));
    dst = strided_view(out, cpu_device, dtype);
    CHECK_OK(gpuf_copy(&dst, &d_view, &options[i / 5], &err));
    packed_reference(&dst, packed);
    CHECK(memcmp(packed, expected, view_nbytes) == 0);
    CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  }
}

/* Elements outside the view must keep their bytes. */
static void a_strided_upload_writes_its_elements_only(void) {
  enum { COUNT = 6 * 50 * 70 };
  static char before[COUNT * 16], expected[COUNT * 16], after[COUNT * 16], packed[COUNT * 16];
  fill_random(before, sizeof(before), 21);
  fill_random(packed, sizeof(packed), 22);
  for (int i = 0; i < 5; i++) {
    const gpuf_dtype dtype = dtypes[i];
    const size_t nbytes = COUNT * gpuf_dtype_nbytes(dtype);
    void *d_ptr = device_alloc(nbytes);
    gpuf_tensor src;
    upload(d_ptr, before, nbytes);
    const gpuf_tensor d_view = strided_view(d_ptr, test_device, dtype);
    CHECK_OK(gpuf_tensor_init(&src, packed, cpu_device, dtype, 3, d_view.shape, &err));
    CHECK_OK(gpuf_copy(&d_view, &src, NULL, &err));
    memcpy(expected, before, nbytes);
    const gpuf_tensor view = strided_view(expected, cpu_device, dtype);
    CHECK_OK(gpuf_copy(&view, &src, NULL, &err));
    download(after, d_ptr, nbytes);
    CHECK(memcmp(after, expected, nbytes) == 0);
    CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  }
}

/* A pointer that is no multiple of the element's size, as a byte offset into a record gives. */
static void an_unaligned_device_view_is_read_and_written_right(void) {
  enum { ROWS = 40, COLUMNS = 30, PITCH = COLUMNS * 8 + 5 };
  static char source[ROWS * PITCH + 3], out[ROWS * COLUMNS * 8];
  const int64_t shape[2] = {ROWS, COLUMNS};
  void *d_ptr = device_alloc(sizeof(source));
  gpuf_tensor d_view, dst;
  fill_random(source, sizeof(source), 31);
  upload(d_ptr, source, sizeof(source));
  CHECK_OK(gpuf_tensor_init(&d_view, (char *)d_ptr + 3, test_device, GPUF_DTYPE_FLOAT64, 2, shape,
                            &err));
  d_view.strides_nbytes[0] = PITCH;
  CHECK_OK(gpuf_tensor_init(&dst, out, cpu_device, GPUF_DTYPE_FLOAT64, 2, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &d_view, NULL, &err));
  for (size_t row = 0; row < ROWS; row++) {
    CHECK(memcmp(out + row * COLUMNS * 8, source + 3 + row * PITCH, COLUMNS * 8) == 0);
  }
  for (size_t i = 0; i < sizeof(out); i++) {
    out[i] = (char)~out[i];
  }
  CHECK_OK(gpuf_copy(&d_view, &dst, NULL, &err));
  download(source, d_ptr, sizeof(source));
  for (size_t row = 0; row < ROWS; row++) {
    CHECK(memcmp(out + row * COLUMNS * 8, source + 3 + row * PITCH, COLUMNS * 8) == 0);
  }
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void a_broadcast_view_is_expanded(void) {
  const int64_t shape[2] = {3, 4};
  const int32_t row[4] = {10, 20, 30, 40};
  int32_t out[3][4];
  void *d_ptr = device_alloc(sizeof(row));
  gpuf_tensor d_view, dst;
  upload(d_ptr, row, sizeof(row));
  CHECK_OK(gpuf_tensor_init(&d_view, d_ptr, test_device, GPUF_DTYPE_INT32, 2, shape, &err));
  d_view.strides_nbytes[0] = 0;
  CHECK_OK(gpuf_tensor_init(&dst, out, cpu_device, GPUF_DTYPE_INT32, 2, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &d_view, NULL, &err));
  for (int i = 0; i < 3; i++) {
    CHECK(memcmp(out[i], row, sizeof(row)) == 0);
  }
  d_view.device = cpu_device;
  CHECK_FAILS(gpuf_copy(&d_view, &dst, NULL, &err), GPUF_ERR_INVALID, "repeats one element");
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void scalars_and_empty_tensors_are_copied(void) {
  const int64_t empty[2] = {0, 5};
  const double sent = 3.25;
  double received = 0;
  void *d_ptr = device_alloc(sizeof(sent));
  gpuf_tensor d_scalar, scalar;
  upload(d_ptr, &sent, sizeof(sent));
  CHECK_OK(gpuf_tensor_init(&d_scalar, d_ptr, test_device, GPUF_DTYPE_FLOAT64, 0, NULL, &err));
  CHECK_OK(gpuf_tensor_init(&scalar, &received, cpu_device, GPUF_DTYPE_FLOAT64, 0, NULL, &err));
  CHECK_OK(gpuf_copy(&scalar, &d_scalar, NULL, &err));
  CHECK(received == 3.25);
  CHECK_OK(gpuf_tensor_init(&d_scalar, NULL, test_device, GPUF_DTYPE_FLOAT64, 2, empty, &err));
  CHECK_OK(gpuf_tensor_init(&scalar, NULL, cpu_device, GPUF_DTYPE_FLOAT64, 2, empty, &err));
  CHECK_OK(gpuf_copy(&scalar, &d_scalar, NULL, &err));
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void sides_that_do_not_fit_are_refused(void) {
  const int64_t shape[2] = {2, 3}, other[2] = {2, 4};
  char memory[64];
  gpuf_tensor a, b;
  CHECK_OK(gpuf_tensor_init(&a, memory, cpu_device, GPUF_DTYPE_INT16, 2, shape, &err));
  CHECK_OK(gpuf_tensor_init(&b, memory, test_device, GPUF_DTYPE_INT16, 2, other, &err));
  CHECK_FAILS(gpuf_copy(&a, &b, NULL, &err), GPUF_ERR_INVALID, "shape[1] is 3");
  b.ndim = 1;
  CHECK_FAILS(gpuf_copy(&a, &b, NULL, &err), GPUF_ERR_INVALID, "axes");
  b = a;
  b.dtype = GPUF_DTYPE_FLOAT16;
  CHECK_FAILS(gpuf_copy(&a, &b, NULL, &err), GPUF_ERR_INVALID, "dtype is int16");
  b = a;
  a.device = b.device = test_device;
  CHECK_FAILS(gpuf_copy(&a, &b, NULL, &err), GPUF_ERR_UNSUPPORTED, "both sides are on devices");
  a.device = (gpuf_device){test_device.kind, 77};
  b.device = cpu_device;
  CHECK_FAILS(gpuf_copy(&b, &a, NULL, &err), GPUF_ERR_NO_DEVICE, ":77");
  a.device = test_device;
  CHECK_FAILS(gpuf_copy(&b, &a,
                        &(gpuf_copy_options){.struct_nbytes = sizeof(gpuf_copy_options),
                                             .thread_count = 1000},
                        &err),
              GPUF_ERR_INVALID, "thread_count is 1000");
}

static void copies_on_the_cpu_take_any_layout(void) {
  enum { COUNT = 6 * 50 * 70 };
  static float source[COUNT], out[COUNT], expected[COUNT], packed[COUNT];
  fill_random(source, sizeof(source), 41);
  const gpuf_tensor src = strided_view(source, cpu_device, GPUF_DTYPE_FLOAT32);
  const gpuf_tensor dst = strided_view(out, cpu_device, GPUF_DTYPE_FLOAT32);
  packed_reference(&src, expected);
  CHECK_OK(gpuf_copy(&dst, &src, NULL, &err));
  packed_reference(&dst, packed);
  CHECK(memcmp(packed, expected, gpuf_tensor_nbytes(&src)) == 0);
}

static void fetch_with_faults(const gpufi_host_faults *faults, gpuf_tensor *dst,
                              const gpuf_tensor *src, gpuf_status expected, const char *text) {
  gpufi_host_faults_set(faults);
  const gpuf_status status = gpuf_copy(dst, src, NULL, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK(status == expected);
  CHECK(strstr(err.message, text));
  CHECK_OK(gpuf_copy(dst, src, NULL, &err)); /* nothing is broken for the next one */
}

static void a_link_that_fails_midway_is_an_error_and_leaves_no_trace(void) {
  const int64_t shape[1] = {20000000};
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  void *pinned, *d_ptr;
  gpuf_tensor d_tensor, dst;
  char *pageable = malloc((size_t)shape[0]);
  CHECK_OK(gpuf_alloc(host_device, (size_t)shape[0], &d_ptr, &err));
  CHECK_OK(gpuf_pool_acquire(host_device, (size_t)shape[0], &pinned, &err));
  CHECK_OK(gpuf_tensor_init(&d_tensor, d_ptr, host_device, GPUF_DTYPE_INT8, 1, shape, &err));
  for (int64_t limit = 0; limit < shape[0]; limit += 6000000) {
    faults.copy_fail_after_nbytes = limit;
    CHECK_OK(gpuf_tensor_init(&dst, pinned, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err));
    fetch_with_faults(&faults, &dst, &d_tensor, GPUF_ERR_DEVICE, "injected");
    dst.data = pageable;
    fetch_with_faults(&faults, &dst, &d_tensor, GPUF_ERR_DEVICE, "injected");
    fetch_with_faults(&faults, &d_tensor, &dst, GPUF_ERR_DEVICE, "injected");
  }
  gpuf_pool_release(pinned, NULL);
  CHECK_OK(gpuf_free(host_device, d_ptr, &err));
  free(pageable);
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  gpuf_pool_get_stats(&stats, NULL);
  CHECK(stats.used_nbytes == 0);
}

static void no_device_memory_for_scratch_is_an_error(void) {
  enum { COUNT = 6 * 50 * 70 };
  static float out[COUNT];
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const gpuf_device second = {GPUF_DEVICE_HOST, 1}; /* no channel has scratch there yet */
  void *d_ptr;
  CHECK_OK(gpuf_alloc(second, sizeof(out), &d_ptr, &err));
  gpuf_tensor src = strided_view(d_ptr, second, GPUF_DTYPE_FLOAT32), dst;
  CHECK_OK(gpuf_tensor_init(&dst, out, cpu_device, GPUF_DTYPE_FLOAT32, 3, src.shape, &err));
  faults.alloc_fail_after = 0;
  fetch_with_faults(&faults, &dst, &src, GPUF_ERR_NO_DEVICE_MEMORY, "host:1 has no memory");
  CHECK_OK(gpuf_free(second, d_ptr, &err));
}

/* The pool's cap does not stop a copy: it is staged through a few buffers. */
static void a_copy_works_with_the_pool_at_its_cap(void) {
  const size_t nbytes = 9000001;
  char *sent = malloc(nbytes), *received = malloc(nbytes);
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  void *d_ptr = device_alloc(nbytes);
  gpuf_pool_get_stats(&stats, NULL);
  gpuf_pool_trim(0);
  gpuf_pool_set_cap(0);
  fill_random(sent, nbytes, 51);
  upload(d_ptr, sent, nbytes);
  download(received, d_ptr, nbytes);
  gpuf_pool_set_cap(stats.cap_nbytes);
  CHECK(memcmp(sent, received, nbytes) == 0);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  gpuf_pool_get_stats(&stats, NULL);
  CHECK(stats.used_nbytes == 0);
  free(sent);
  free(received);
}

int main(void) {
  TEST_ON_DEVICES(bytes_survive_the_round_trip);
  TEST_ON_DEVICES(a_strided_fetch_agrees_with_the_reference);
  TEST_ON_DEVICES(a_strided_upload_writes_its_elements_only);
  TEST_ON_DEVICES(an_unaligned_device_view_is_read_and_written_right);
  TEST_ON_DEVICES(a_broadcast_view_is_expanded);
  TEST_ON_DEVICES(scalars_and_empty_tensors_are_copied);
  TEST_ON_DEVICES(sides_that_do_not_fit_are_refused);
  TEST(copies_on_the_cpu_take_any_layout);
  TEST(a_link_that_fails_midway_is_an_error_and_leaves_no_trace);
  TEST(no_device_memory_for_scratch_is_an_error);
  TEST_ON_DEVICES(a_copy_works_with_the_pool_at_its_cap);
  return test_finish();
}
