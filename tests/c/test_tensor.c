#include "devices.h"

static gpuf_error err;

static gpuf_tensor tensor_of(int32_t ndim, const int64_t *shape) {
  static char memory[64];
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_FLOAT32, ndim, shape, &err));
  return t;
}

static void strides_of_a_fresh_tensor_are_c_order(void) {
  const int64_t shape[3] = {2, 3, 5};
  const gpuf_tensor t = tensor_of(3, shape);
  CHECK(t.strides_nbytes[0] == 60 && t.strides_nbytes[1] == 20 && t.strides_nbytes[2] == 4);
  CHECK(gpuf_tensor_count(&t) == 30);
  CHECK(gpuf_tensor_nbytes(&t) == 120);
  CHECK(gpuf_tensor_is_contiguous(&t));
}

static void a_scalar_has_one_element_and_an_empty_shape_none(void) {
  const int64_t empty[3] = {4, 0, INT64_MAX};
  const gpuf_tensor scalar = tensor_of(0, NULL);
  CHECK(gpuf_tensor_count(&scalar) == 1 && gpuf_tensor_nbytes(&scalar) == 4);
  const gpuf_tensor none = tensor_of(3, empty);
  CHECK(gpuf_tensor_count(&none) == 0 && gpuf_tensor_is_contiguous(&none));
}

static void a_bad_rank_shape_or_dtype_is_refused(void) {
  gpuf_tensor t;
  int64_t shape[GPUF_NDIM_MAX + 1] = {1};
  char memory[4];
  CHECK_FAILS(
      gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_INT8, GPUF_NDIM_MAX + 1, shape, &err),
      GPUF_ERR_INVALID, "ndim is 33");
  CHECK_FAILS(gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_INT8, -1, shape, &err),
              GPUF_ERR_INVALID, "ndim is -1");
  CHECK_FAILS(gpuf_tensor_init(&t, memory, cpu_device, (gpuf_dtype)0, 0, NULL, &err),
              GPUF_ERR_INVALID, "dtype 0");
  shape[0] = -3;
  CHECK_FAILS(gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err),
              GPUF_ERR_INVALID, "shape[0] is -3");
}

static void a_size_that_overflows_is_refused(void) {
  gpuf_tensor t;
  const int64_t wide[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
  const int64_t one_too_many[1] = {INT64_MAX / 4 + 1};
  char memory[4];
  CHECK_FAILS(gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_INT8, 2, wide, &err),
              GPUF_ERR_INVALID, "span more than");
  CHECK_FAILS(gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_INT32, 1, one_too_many, &err),
              GPUF_ERR_INVALID, "span more than");
}

static void a_stride_that_reaches_too_far_is_refused(void) {
  const int64_t shape[2] = {3, 5};
  gpuf_tensor t = tensor_of(2, shape);
  t.strides_nbytes[0] = INT64_MAX / 2;
  CHECK_FAILS(gpuf_tensor_check(&t, &err), GPUF_ERR_INVALID, "span more than");
  t.strides_nbytes[0] = INT64_MIN;
  CHECK_FAILS(gpuf_tensor_check(&t, &err), GPUF_ERR_INVALID, "span more than");
}

/* Those of NumPy's views, and what DLPack producers leave there, are of any size. */
static void a_stride_that_means_nothing_is_ignored(void) {
  const int64_t shape[3] = {1, 3, 1}, empty[2] = {0, 3};
  const int64_t any[] = {0, 1, -7, 12345, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++) {
    gpuf_tensor t = tensor_of(3, shape);
    t.strides_nbytes[0] = t.strides_nbytes[2] = any[i];
    CHECK_OK(gpuf_tensor_check(&t, &err));
    CHECK(gpuf_tensor_is_contiguous(&t));
    CHECK_OK(gpuf_tensor_slice(&t, 0, 0, 1000, 1, &err));
    CHECK_OK(gpuf_tensor_slice(&t, 1, 1, 1, 2, &err));
    CHECK_OK(gpuf_tensor_check(&t, &err));
    t = tensor_of(2, empty);
    t.strides_nbytes[0] = t.strides_nbytes[1] = any[i];
    CHECK_OK(gpuf_tensor_check(&t, &err));
    CHECK(gpuf_tensor_is_contiguous(&t));
  }
}

static void a_cpu_beyond_the_first_is_refused(void) {
  const int64_t shape[1] = {4};
  static char memory[64];
  gpuf_tensor t, whole = tensor_of(1, shape);
  for (int32_t index = -1; index <= 3; index += 4) {
    const gpuf_device cpu = {GPUF_DEVICE_CPU, index};
    CHECK_FAILS(gpuf_tensor_init(&t, memory, cpu, GPUF_DTYPE_FLOAT32, 1, shape, &err),
                GPUF_ERR_INVALID, index < 0 ? "no device cpu:-1" : "no device cpu:3");
    t = whole;
    t.device = cpu;
    CHECK_FAILS(gpuf_tensor_check(&t, &err), GPUF_ERR_INVALID, "the CPU's index is 0");
    CHECK_FAILS(gpuf_copy(&whole, &t, NULL, &err), GPUF_ERR_INVALID, "the CPU's index is 0");
    CHECK_FAILS(gpuf_copy(&t, &whole, NULL, &err), GPUF_ERR_INVALID, "the CPU's index is 0");
  }
}

static void elements_beyond_all_addresses_are_refused(void) {
  const int64_t shape[2] = {3, 4};
  gpuf_tensor t;
  void *const last = (void *)(UINTPTR_MAX - 10);
  CHECK_FAILS(gpuf_tensor_init(&t, last, cpu_device, GPUF_DTYPE_INT8, 2, shape, &err),
              GPUF_ERR_INVALID, "to 12 behind it, which is beyond memory");
  CHECK_OK(gpuf_tensor_init(&t, (void *)7, cpu_device, GPUF_DTYPE_INT8, 2, shape, &err));
  t.strides_nbytes[0] = -4;
  CHECK_FAILS(gpuf_tensor_check(&t, &err), GPUF_ERR_INVALID, "8 bytes before data");
}

static void null_data_is_refused_only_with_elements(void) {
  const int64_t some[1] = {1}, none[1] = {0};
  gpuf_tensor t;
  CHECK_FAILS(gpuf_tensor_init(&t, NULL, cpu_device, GPUF_DTYPE_INT8, 1, some, &err),
              GPUF_ERR_INVALID, "data is NULL");
  CHECK_OK(gpuf_tensor_init(&t, NULL, cpu_device, GPUF_DTYPE_INT8, 1, none, &err));
}

static void a_slice_addresses_the_elements_it_names(void) {
  const int64_t shape[2] = {4, 10};
  gpuf_tensor t = tensor_of(2, shape);
  char *start = t.data;
  CHECK_OK(gpuf_tensor_slice(&t, 1, 8, -3, 3, &err));
  CHECK((char *)t.data == start + 32 && t.strides_nbytes[1] == -12 && t.shape[1] == 3);
  CHECK_OK(gpuf_tensor_slice(&t, 1, 1, 1, 2, &err));
  CHECK((char *)t.data == start + 20 && t.shape[1] == 2);
  CHECK_OK(gpuf_tensor_slice(&t, 0, 4, 1, 0, &err));
  CHECK(gpuf_tensor_count(&t) == 0);
}

static void a_slice_outside_its_axis_is_refused_without_change(void) {
  const int64_t shape[1] = {10};
  gpuf_tensor t = tensor_of(1, shape);
  const gpuf_tensor before = t;
  CHECK_FAILS(gpuf_tensor_slice(&t, 0, 8, 2, 2, &err), GPUF_ERR_INVALID, "leaves axis 0");
  CHECK_FAILS(gpuf_tensor_slice(&t, 0, -1, 1, 1, &err), GPUF_ERR_INVALID, "leaves axis 0");
  CHECK_FAILS(gpuf_tensor_slice(&t, 0, 0, INT64_MAX, 3, &err), GPUF_ERR_INVALID, "leaves axis");
  CHECK_FAILS(gpuf_tensor_slice(&t, 0, 0, 1, -1, &err), GPUF_ERR_INVALID, "leaves axis 0");
  CHECK_FAILS(gpuf_tensor_slice(&t, 1, 0, 1, 1, &err), GPUF_ERR_INVALID, "axis 1");
  CHECK(memcmp(&before, &t, sizeof(t)) == 0);
}

static void every_dtype_has_a_name_and_a_size(void) {
  for (int dtype = 1; dtype <= (int)GPUF_DTYPE_MAX; dtype++) {
    CHECK(gpuf_dtype_nbytes((gpuf_dtype)dtype) > 0);
    CHECK(strcmp(gpuf_dtype_name((gpuf_dtype)dtype), "unknown") != 0);
  }
  CHECK(gpuf_dtype_nbytes((gpuf_dtype)(GPUF_DTYPE_MAX + 1)) == 0);
  CHECK(strcmp(gpuf_dtype_name((gpuf_dtype)0), "unknown") == 0);
}

/* Descriptors that were filled in by hand and are wrong: nobody allocates too little by them. */
static void a_count_that_overflows_is_no_small_number(void) {
  gpuf_tensor t = {.dtype = GPUF_DTYPE_FLOAT64, .ndim = 2, .shape = {INT64_C(1) << 32, 1}};
  t.shape[1] = INT64_C(1) << 32; /* 2^64 elements: 0, were they counted modulo 2^64 */
  CHECK(gpuf_tensor_count(&t) == INT64_MAX && gpuf_tensor_nbytes(&t) == SIZE_MAX);
  CHECK(!gpuf_tensor_is_contiguous(&t));
  t.shape[1] = INT64_C(1) << 30; /* 2^62 elements, 2^65 bytes */
  CHECK(gpuf_tensor_count(&t) == INT64_C(1) << 62 && gpuf_tensor_nbytes(&t) == SIZE_MAX);
  CHECK(!gpuf_tensor_is_contiguous(&t));
  t.shape[1] = -1;
  CHECK(gpuf_tensor_count(&t) == INT64_MAX && gpuf_tensor_nbytes(&t) == SIZE_MAX);
  t.shape[0] = -1; /* two lengths whose product is 1 */
  CHECK(gpuf_tensor_count(&t) == INT64_MAX && !gpuf_tensor_is_contiguous(&t));
  t = (gpuf_tensor){.dtype = GPUF_DTYPE_FLOAT64, .ndim = GPUF_NDIM_MAX + 1};
  CHECK(gpuf_tensor_count(&t) == INT64_MAX && gpuf_tensor_nbytes(&t) == SIZE_MAX);
  t.ndim = -1;
  CHECK(gpuf_tensor_count(&t) == INT64_MAX && !gpuf_tensor_is_contiguous(&t));
  t = (gpuf_tensor){.dtype = (gpuf_dtype)99, .ndim = 1, .shape = {3}};
  CHECK(gpuf_tensor_count(&t) == 3 && gpuf_tensor_nbytes(&t) == SIZE_MAX);
  t = (gpuf_tensor){.dtype = GPUF_DTYPE_INT8, .ndim = 3, .shape = {INT64_MAX, 0, INT64_MAX}};
  CHECK(gpuf_tensor_count(&t) == 0 && gpuf_tensor_nbytes(&t) == 0 && gpuf_tensor_is_contiguous(&t));
}

int main(void) {
  TEST(strides_of_a_fresh_tensor_are_c_order);
  TEST(a_scalar_has_one_element_and_an_empty_shape_none);
  TEST(a_bad_rank_shape_or_dtype_is_refused);
  TEST(a_size_that_overflows_is_refused);
  TEST(a_stride_that_reaches_too_far_is_refused);
  TEST(a_stride_that_means_nothing_is_ignored);
  TEST(a_cpu_beyond_the_first_is_refused);
  TEST(elements_beyond_all_addresses_are_refused);
  TEST(null_data_is_refused_only_with_elements);
  TEST(a_slice_addresses_the_elements_it_names);
  TEST(a_slice_outside_its_axis_is_refused_without_change);
  TEST(a_count_that_overflows_is_no_small_number);
  TEST(every_dtype_has_a_name_and_a_size);
  return test_finish();
}
