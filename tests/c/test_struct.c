/* Structs of programs that were compiled against an older or a newer header. Those of hdf5.h are
 * in test_hdf5_bad_input.c, and those of serve.h in test_serve.c. */
#include <gpufetch/reduce.h>
#include <gpufetch/share.h>

#include "structs.h"

/* A struct may end in padding, which an older program leaves undefined: a member that is added must
 * begin at this size or beyond. */
_Static_assert(sizeof(gpuf_copy_options) == 24, "a new member begins at byte 24");
_Static_assert(sizeof(gpuf_share_info) % 8 == 0 && offsetof(gpuf_share_info, readonly) % 8 == 0,
               "a new member begins 8 bytes after readonly");

static gpuf_tensor a_tensor(void *data, gpuf_device device) {
  const int64_t shape[1] = {4};
  gpuf_tensor tensor;
  CHECK(gpuf_tensor_init(&tensor, data, device, GPUF_DTYPE_FLOAT32, 1, shape, NULL) == GPUF_OK);
  return tensor;
}

static gpuf_status get_device_info(void *given) {
  return gpuf_device_get_info(host_device, given, &err);
}

static gpuf_status get_pool_stats(void *given) {
  return gpuf_pool_get_stats(given, &err);
}

static float source[4] = {1, 2, 3, 4};

static gpuf_status copy(void *given) {
  float result[4] = {0};
  const gpuf_tensor src = a_tensor(source, cpu_device), dst = a_tensor(result, cpu_device);
  const gpuf_status status = gpuf_copy(&dst, &src, given, &err);
  CHECK(status != GPUF_OK || memcmp(result, source, sizeof(result)) == 0);
  return status;
}

static gpuf_status copy_async(void *given) {
  float result[4];
  gpuf_future *future = NULL;
  const gpuf_tensor src = a_tensor(source, cpu_device), dst = a_tensor(result, cpu_device);
  gpuf_status status = gpuf_copy_async(&dst, &src, given, &future, &err);
  CHECK((future != NULL) == (status == GPUF_OK));
  gpuf_future_destroy(future);
  return status;
}

static gpuf_status copy_many(void *given) {
  float result[4];
  const gpuf_tensor src = a_tensor(source, cpu_device), dst = a_tensor(result, cpu_device);
  return gpuf_copy_many(&dst, &src, 1, given, &err);
}

static gpuf_status overview(void *given) {
  const int64_t shape[1] = {2};
  float cells[2];
  const gpuf_tensor src = a_tensor(source, cpu_device);
  return gpuf_reduce_overview(&src, GPUF_OVERVIEW_MEAN, shape, cells, NULL, given, &err);
}

static gpuf_status stats(void *given) {
  const gpuf_tensor src = a_tensor(source, cpu_device);
  return gpuf_reduce_stats(&src, given, &err);
}

static gpuf_status histogram(void *given) {
  uint64_t bins[3];
  const gpuf_tensor src = a_tensor(source, cpu_device);
  return gpuf_reduce_histogram(&src, 3, NULL, bins, NULL, given, &err);
}

static gpuf_status share(void *given) {
  gpuf_share_handle handle;
  void *d_data;
  gpuf_status status = gpuf_alloc(host_device, 16, &d_data, &err);
  CHECK(status == GPUF_OK);
  const gpuf_tensor src = a_tensor(d_data, host_device);
  status = gpuf_share(&src, given, &handle, &err);
  CHECK(status != GPUF_OK || gpuf_unshare(&handle, -1, NULL, NULL) == GPUF_OK);
  CHECK(gpuf_free(host_device, d_data, NULL) == GPUF_OK);
  return status;
}

static gpuf_share_handle described;

static gpuf_status share_describe(void *given) {
  return gpuf_share_describe(&described, given, &err);
}

static void structs_of_other_versions_are_taken(void) {
  static const versioned structs[] = {
      {sizeof(gpuf_device_info), "GPUF_DEVICE_INFO_INIT", get_device_info},
      {sizeof(gpuf_pool_stats), "GPUF_POOL_STATS_INIT", get_pool_stats},
      {sizeof(gpuf_copy_options), "GPUF_COPY_OPTIONS_INIT", copy},
      {sizeof(gpuf_copy_options), "GPUF_COPY_OPTIONS_INIT", copy_async},
      {sizeof(gpuf_copy_options), "GPUF_COPY_OPTIONS_INIT", copy_many},
      {sizeof(gpuf_counts), "GPUF_COUNTS_INIT", overview},
      {sizeof(gpuf_stats), "GPUF_STATS_INIT", stats},
      {sizeof(gpuf_histogram_rest), "GPUF_HISTOGRAM_REST_INIT", histogram},
      {sizeof(gpuf_share_options), "GPUF_SHARE_OPTIONS_INIT", share},
      {sizeof(gpuf_share_info), "GPUF_SHARE_INFO_INIT", share_describe},
  };
  void *d_data;
  CHECK_OK(gpuf_alloc(host_device, 16, &d_data, &err));
  const gpuf_tensor shared = a_tensor(d_data, host_device);
  CHECK_OK(gpuf_share(&shared, NULL, &described, &err));
  for (size_t i = 0; i < sizeof(structs) / sizeof(structs[0]); i++) {
    check_versions(&structs[i]);
  }
  CHECK_OK(gpuf_unshare(&described, -1, NULL, &err));
  CHECK_OK(gpuf_free(host_device, d_data, &err));
}

/* A member that the caller's struct has is taken from it, and one that it lacks is the default. */
static void an_older_struct_has_its_members_and_no_others(void) {
  float result[4];
  gpuf_copy_options options = GPUF_COPY_OPTIONS_INIT;
  const gpuf_tensor src = a_tensor(source, cpu_device);
  gpuf_tensor dst = a_tensor(result, cpu_device);
  options.thread_count = -1;
  options.cast = true;
  dst.dtype = GPUF_DTYPE_INT32;
  CHECK_FAILS(gpuf_copy(&dst, &src, &options, &err), GPUF_ERR_INVALID, "thread_count is -1");
  options.thread_count = 0;
  CHECK_OK(gpuf_copy(&dst, &src, &options, &err));
  options.struct_nbytes = offsetof(gpuf_copy_options, thread_count);
  CHECK_FAILS(gpuf_copy(&dst, &src, &options, &err), GPUF_ERR_INVALID, "unless options.cast");
  dst.dtype = src.dtype;
  options.thread_count = -1;
  CHECK_OK(gpuf_copy(&dst, &src, &options, &err));
  options.struct_nbytes = offsetof(gpuf_copy_options, cast); /* no struct has that size */
  CHECK_FAILS(gpuf_copy(&dst, &src, &options, &err), GPUF_ERR_INVALID, "no size of this struct");
}

static void an_older_result_has_what_it_has_members_for(void) {
  gpuf_stats all = GPUF_STATS_INIT, older = GPUF_STATS_INIT;
  const gpuf_tensor src = a_tensor(source, cpu_device);
  older.struct_nbytes = offsetof(gpuf_stats, variance);
  older.variance = 77;
  CHECK_OK(gpuf_reduce_stats(&src, &all, &err));
  CHECK_OK(gpuf_reduce_stats(&src, &older, &err));
  CHECK(all.count == 4 && all.mean == 2.5 && all.variance == 1.25);
  CHECK(all.struct_nbytes == sizeof(all) && older.struct_nbytes == offsetof(gpuf_stats, variance));
  CHECK(older.count == 4 && older.mean == 2.5 && older.variance == 77);
}

/* A program asks the header for a version, also in the preprocessor. */
static void versions_are_compared_by_major_and_then_by_minor(void) {
#if !GPUF_VERSION_AT_LEAST(0, 1) || GPUF_VERSION_AT_LEAST(1000, 0)
#error "GPUF_VERSION_AT_LEAST"
#endif
  CHECK(GPUF_VERSION_AT_LEAST(GPUF_VERSION_MAJOR, GPUF_VERSION_MINOR));
  CHECK(!GPUF_VERSION_AT_LEAST(GPUF_VERSION_MAJOR, GPUF_VERSION_MINOR + 1));
  CHECK(!GPUF_VERSION_AT_LEAST(GPUF_VERSION_MAJOR + 1, 0));
  CHECK(GPUF_VERSION_AT_LEAST(GPUF_VERSION_MAJOR - 1, GPUF_VERSION_MINOR + 1));
}

int main(void) {
  TEST(structs_of_other_versions_are_taken);
  TEST(an_older_struct_has_its_members_and_no_others);
  TEST(an_older_result_has_what_it_has_members_for);
  TEST(versions_are_compared_by_major_and_then_by_minor);
  return test_finish();
}
