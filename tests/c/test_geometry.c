/* Where a tensor's elements lie: src/core/geometry.h. */
#include "core/geometry.h"

#include "devices.h"

static gpuf_error err;
static char memory[4096];

/* Of int32, 1,000 bytes into `memory`, with strides in elements. */
static gpuf_tensor tensor_of(int32_t ndim, const int64_t *shape, const int64_t *strides) {
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, memory + 1000, cpu_device, GPUF_DTYPE_INT32, ndim, shape, &err));
  for (int32_t axis = 0; axis < ndim; axis++) {
    t.strides_nbytes[axis] = 4 * strides[axis];
  }
  CHECK_OK(gpuf_tensor_check(&t, &err));
  return t;
}

#define TENSOR(ndim, ...) tensor_of_lists(ndim, (const int64_t[2][4]){__VA_ARGS__})

static gpuf_tensor tensor_of_lists(int32_t ndim, const int64_t (*lists)[4]) {
  return tensor_of(ndim, lists[0], lists[1]);
}

static void fortran_order_is_told_from_c_order(void) {
  const gpuf_tensor f = TENSOR(3, {2, 3, 5}, {1, 2, 6}), c = TENSOR(3, {2, 3, 5}, {15, 5, 1});
  const gpuf_tensor gap = TENSOR(3, {2, 3, 5}, {1, 2, 7}), both = TENSOR(2, {1, 5}, {99, 1});
  const gpuf_tensor empty = TENSOR(2, {0, 5}, {7, 3}), one = TENSOR(2, {1, 1}, {7, 3});
  CHECK(gpufi_tensor_is_f_contiguous(&f) && !gpuf_tensor_is_contiguous(&f));
  CHECK(!gpufi_tensor_is_f_contiguous(&c) && gpuf_tensor_is_contiguous(&c));
  CHECK(!gpufi_tensor_is_f_contiguous(&gap));
  CHECK(gpufi_tensor_is_f_contiguous(&both) && gpuf_tensor_is_contiguous(&both));
  CHECK(gpufi_tensor_is_f_contiguous(&empty) && gpufi_tensor_is_f_contiguous(&one));
}

static void check_extent(const gpuf_tensor *t, ptrdiff_t low, ptrdiff_t high) {
  uintptr_t from, to;
  size_t below, above;
  gpufi_tensor_extent(t, &from, &to);
  gpufi_tensor_reach(t, &below, &above);
  CHECK(from == (uintptr_t)(memory + 1000 + low) && to == (uintptr_t)(memory + 1000 + high));
  CHECK(below == (size_t)-low && above == (size_t)high);
}

static void an_extent_holds_every_element_and_no_more(void) {
  const gpuf_tensor plain = TENSOR(2, {3, 5}, {5, 1}), back = TENSOR(2, {3, 5}, {-5, -1});
  const gpuf_tensor mixed = TENSOR(2, {3, 5}, {10, -2}), scalar = TENSOR(0, {0}, {0});
  const gpuf_tensor empty = TENSOR(2, {3, 0}, {10, -2}), repeated = TENSOR(1, {9}, {0});
  check_extent(&plain, 0, 60);
  check_extent(&back, -56, 4);
  check_extent(&mixed, -32, 84);
  check_extent(&scalar, 0, 4);
  check_extent(&empty, 0, 0);
  check_extent(&repeated, 0, 4);
}

int main(void) {
  TEST(fortran_order_is_told_from_c_order);
  TEST(an_extent_holds_every_element_and_no_more);
  return test_finish();
}
