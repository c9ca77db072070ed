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

int main(void) {
  TEST(strides_of_a_fresh_tensor_are_c_order);
  TEST(a_scalar_has_one_element_and_an_empty_shape_none);
  TEST(a_bad_rank_shape_or_dtype_is_refused);
  TEST(a_size_that_overflows_is_refused);
  TEST(a_stride_that_reaches_too_far_is_refused);
  TEST(null_data_is_refused_only_with_elements);
  TEST(a_slice_addresses_the_elements_it_names);
  TEST(a_slice_outside_its_axis_is_refused_without_change);
  TEST(every_dtype_has_a_name_and_a_size);
  return test_finish();
}
