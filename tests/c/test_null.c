/* NULL for each pointer argument of the public calls in gpufetch.h, reduce.h and share.h. */
#include <gpufetch/reduce.h>
#include <gpufetch/share.h>

#include "devices.h"

static gpuf_error err;

#define REFUSED(call, name) CHECK_FAILS(call, GPUF_ERR_INVALID, name)

/* A tensor of four floats on `device`. */
static gpuf_tensor tensor_on(gpuf_device device, void *data) {
  const int64_t shape[1] = {4};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  return tensor;
}

static void calls_on_devices_and_streams_refuse_null(void) {
  gpuf_device device;
  gpuf_stream stream;
  REFUSED(gpuf_device_count(GPUF_DEVICE_HOST, NULL, &err), "count");
  REFUSED(gpuf_device_get_info(host_device, NULL, &err), "GPUF_DEVICE_INFO_INIT");
  REFUSED(gpuf_device_default(NULL, &err), "device");
  REFUSED(gpuf_device_of(NULL, &device, &err), "");
  REFUSED(gpuf_device_of(&device, NULL, &err), "device");
  REFUSED(gpuf_alloc(host_device, 16, NULL, &err), "d_ptr");
  CHECK_OK(gpuf_free(host_device, NULL, &err));
  REFUSED(gpuf_stream_create(host_device, NULL, &err), "stream");
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  REFUSED(gpuf_host_launch(host_device, stream, NULL, &stream, 4, &err), "kernel");
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
  CHECK(gpuf_host_pointer(NULL) == NULL);
}

static void calls_on_tensors_refuse_null(void) {
  static float data[4];
  const int64_t shape[1] = {4};
  gpuf_tensor tensor = tensor_on(cpu_device, data);
  REFUSED(gpuf_tensor_init(NULL, data, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err), "tensor");
  REFUSED(gpuf_tensor_init(&tensor, NULL, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err), "NULL");
  REFUSED(gpuf_tensor_init(&tensor, data, cpu_device, GPUF_DTYPE_FLOAT32, 1, NULL, &err), "shape");
  REFUSED(gpuf_tensor_check(NULL, &err), "tensor");
  REFUSED(gpuf_tensor_slice(NULL, 0, 0, 1, 1, &err), "tensor");
  REFUSED(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, shape, NULL, &err), "tensor");
  REFUSED(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, NULL, &tensor, &err), "shape");
  REFUSED(gpuf_tensor_free(NULL, &err), "tensor");
  REFUSED(gpuf_tensor_copy(NULL, &tensor, GPUF_STREAM_LEGACY, &err), "dst");
  REFUSED(gpuf_tensor_copy(&tensor, NULL, GPUF_STREAM_LEGACY, &err), "src");
  CHECK(gpuf_tensor_count(NULL) == 0 && gpuf_tensor_nbytes(NULL) == 0);
  CHECK(!gpuf_tensor_is_contiguous(NULL));
}

static void calls_on_the_pool_refuse_null(void) {
  REFUSED(gpuf_pool_acquire(host_device, 16, NULL, &err), "ptr");
  REFUSED(gpuf_pool_acquire_result(host_device, 16, NULL, &err), "ptr");
  REFUSED(gpuf_pool_get_stats(NULL, &err), "GPUF_POOL_STATS_INIT");
  gpuf_pool_release(NULL, NULL);
}

static void copies_refuse_null(void) {
  static float from[4] = {1, 2, 3, 4}, to[4];
  const gpuf_tensor src = tensor_on(cpu_device, from), dst = tensor_on(cpu_device, to);
  gpuf_future *future;
  REFUSED(gpuf_copy(NULL, &src, NULL, &err), "dst");
  REFUSED(gpuf_copy(&dst, NULL, NULL, &err), "src");
  REFUSED(gpuf_copy_async(NULL, &src, NULL, &future, &err), "dst");
  REFUSED(gpuf_copy_async(&dst, NULL, NULL, &future, &err), "src");
  REFUSED(gpuf_copy_async(&dst, &src, NULL, NULL, &err), "future");
  REFUSED(gpuf_copy_many(NULL, &src, 1, NULL, &err), "dsts");
  REFUSED(gpuf_copy_many(&dst, NULL, 1, NULL, &err), "srcs");
  CHECK_OK(gpuf_copy_many(NULL, NULL, 0, NULL, &err));
  REFUSED(gpuf_future_wait(NULL, -1, &err), "future");
  CHECK(gpuf_future_done(NULL));
  gpuf_future_destroy(NULL);
  CHECK(to[0] == 0);
  CHECK(gpuf_copy(NULL, NULL, NULL, NULL) == GPUF_ERR_INVALID);
  CHECK_OK(gpuf_copy(&dst, &src, NULL, NULL));
  CHECK(to[3] == 4);
}

static void reductions_refuse_null(void) {
  static float data[4];
  const gpuf_tensor src = tensor_on(cpu_device, data);
  const int64_t shape[1] = {2};
  const gpuf_overview_method mean = GPUF_OVERVIEW_MEAN, minmax = GPUF_OVERVIEW_MINMAX;
  float cells[2];
  uint64_t bins[2];
  gpuf_stats stats = GPUF_STATS_INIT;
  REFUSED(gpuf_reduce_overview(NULL, mean, shape, cells, NULL, NULL, &err), "tensor");
  REFUSED(gpuf_reduce_overview(&src, mean, NULL, cells, NULL, NULL, &err), "shape");
  REFUSED(gpuf_reduce_overview(&src, mean, shape, NULL, NULL, NULL, &err), "result");
  REFUSED(gpuf_reduce_overview(&src, minmax, shape, cells, NULL, NULL, &err), "result_max");
  REFUSED(gpuf_reduce_stats(NULL, &stats, &err), "tensor");
  REFUSED(gpuf_reduce_stats(&src, NULL, &err), "GPUF_STATS_INIT");
  REFUSED(gpuf_reduce_histogram(NULL, 2, NULL, bins, NULL, NULL, &err), "src");
  REFUSED(gpuf_reduce_histogram(&src, 2, NULL, NULL, NULL, NULL, &err), "bins");
  CHECK_OK(gpuf_reduce_histogram(&src, 2, NULL, bins, NULL, NULL, &err));
}

static void calls_on_shares_refuse_null(void) {
  const int64_t shape[1] = {4};
  gpuf_share_handle handle;
  gpuf_share_info info = GPUF_SHARE_INFO_INIT;
  gpuf_attachment *attachment;
  gpuf_tensor tensor, view;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  int32_t count;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, shape, &tensor, &err));
  REFUSED(gpuf_share(NULL, NULL, &handle, &err), "tensor");
  REFUSED(gpuf_share(&tensor, NULL, NULL, &err), "handle");
  CHECK_OK(gpuf_share(&tensor, NULL, &handle, &err));
  REFUSED(gpuf_unshare(NULL, 0, NULL, &err), "handle");
  REFUSED(gpuf_share_importer_count(NULL, &count, &err), "handle");
  REFUSED(gpuf_share_importer_count(&handle, NULL, &err), "importer_count");
  REFUSED(gpuf_attach(NULL, &attachment, &view, &err), "handle");
  REFUSED(gpuf_attach(&handle, NULL, &view, &err), "attachment");
  REFUSED(gpuf_attach(&handle, &attachment, NULL, &err), "tensor");
  REFUSED(gpuf_attachment_check(NULL, &err), "attachment");
  CHECK_OK(gpuf_detach(NULL, &err));
  REFUSED(gpuf_share_to_text(NULL, text, &err), "handle");
  REFUSED(gpuf_share_to_text(&handle, NULL, &err), "text");
  REFUSED(gpuf_share_from_text(NULL, &handle, &err), "text");
  REFUSED(gpuf_share_from_text("", NULL, &err), "handle");
  REFUSED(gpuf_share_describe(NULL, &info, &err), "handle");
  REFUSED(gpuf_share_describe(&handle, NULL, &err), "GPUF_SHARE_INFO_INIT");
  CHECK_OK(gpuf_unshare(&handle, 0, NULL, &err));
  CHECK_OK(gpuf_tensor_free(&tensor, &err));
  CHECK(tensor.data == NULL);
}

int main(void) {
  TEST(calls_on_devices_and_streams_refuse_null);
  TEST(calls_on_tensors_refuse_null);
  TEST(calls_on_the_pool_refuse_null);
  TEST(copies_refuse_null);
  TEST(reductions_refuse_null);
  TEST(calls_on_shares_refuse_null);
  return test_finish();
}
