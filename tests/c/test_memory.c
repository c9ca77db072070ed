/* Device memory: what gpuf_free keeps, and what it does not. */
#include <gpufetch/reduce.h>
#include <string.h>

#include "devices.h"

#define NBYTES ((size_t)64 << 20)

static gpuf_error err;

static size_t free_nbytes(void) {
  gpuf_device_info info = GPUF_DEVICE_INFO_INIT;
  CHECK_OK(gpuf_device_get_info(test_device, &info, &err));
  return info.free_nbytes;
}

static void trim_gives_all_freed_memory_back(void) {
  void *d_first, *d_second;
  gpuf_device_trim();
  const size_t before = free_nbytes();
  CHECK_OK(gpuf_alloc(test_device, NBYTES, &d_first, &err));
  CHECK_OK(gpuf_alloc(test_device, NBYTES + 1, &d_second, &err));
  CHECK(d_first != d_second);
  CHECK(free_nbytes() <= before - 2 * NBYTES);
  CHECK_OK(gpuf_free(test_device, d_first, &err));
  CHECK_OK(gpuf_free(test_device, d_second, &err));
  gpuf_device_trim();
  CHECK(free_nbytes() == before);
}

static void reduce_to(gpuf_tensor *src, int64_t cell_count, void *cells) {
  CHECK_OK(gpuf_reduce_overview(src, GPUF_OVERVIEW_FIRST, &cell_count, cells, NULL, NULL, &err));
}

static void trim_gives_back_what_a_reduction_keeps(void) {
  const int64_t shape[1] = {4 << 20}, cell_count = 2 << 20;
  static uint8_t cells[2 << 20];
  gpuf_tensor src;
  void *d_ptr;
  CHECK_OK(gpuf_alloc(test_device, (size_t)shape[0], &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&src, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  reduce_to(&src, cell_count, cells); /* also for what the driver never gives back */
  gpuf_device_trim();
  const size_t before = free_nbytes();
  reduce_to(&src, cell_count, cells);
  CHECK(free_nbytes() < before);
  gpuf_device_trim();
  CHECK(free_nbytes() == before);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void memory_is_not_freed_twice(void) {
  void *d_ptr, *d_again;
  CHECK_OK(gpuf_alloc(test_device, NBYTES, &d_ptr, &err));
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  CHECK(gpuf_free(test_device, d_ptr, &err) != GPUF_OK);
  CHECK_OK(gpuf_alloc(test_device, NBYTES, &d_ptr, &err)); /* still in one piece */
  CHECK_OK(gpuf_alloc(test_device, NBYTES, &d_again, &err));
  CHECK(d_ptr != d_again);
  CHECK_OK(gpuf_free(test_device, d_again, &err));
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

/* What is kept is not missing where memory is short. */
static void a_request_for_all_that_is_left_succeeds(void) {
  void *d_kept, *d_rest;
  if (test_device.kind == GPUF_DEVICE_HOST) {
    SKIP("the host backend's memory is as large as the machine's");
  }
  gpuf_device_trim();
  const size_t most = free_nbytes() / 16 * 15;
  CHECK_OK(gpuf_alloc(test_device, (size_t)2 << 30, &d_kept, &err));
  CHECK_OK(gpuf_free(test_device, d_kept, &err));
  CHECK_OK(gpuf_alloc(test_device, most, &d_rest, &err));
  CHECK_OK(gpuf_free(test_device, d_rest, &err));
  CHECK(free_nbytes() >= most);
}

static void too_large_a_request_says_what_is_left(void) {
  void *d_ptr = NULL;
  CHECK_FAILS(gpuf_alloc(test_device, SIZE_MAX / 2, &d_ptr, &err), GPUF_ERR_NO_DEVICE_MEMORY,
              "no memory for");
  CHECK(gpuf_alloc(test_device, SIZE_MAX, &d_ptr, &err) == GPUF_ERR_NO_DEVICE_MEMORY);
}

int main(void) {
  TEST_ON_DEVICES(trim_gives_all_freed_memory_back);
  TEST_ON_DEVICES(trim_gives_back_what_a_reduction_keeps);
  TEST_ON_DEVICES(memory_is_not_freed_twice);
  TEST_ON_DEVICES(a_request_for_all_that_is_left_succeeds);
  TEST_ON_DEVICES(too_large_a_request_says_what_is_left);
  return test_finish();
}
