#include <pthread.h>

#include "core/pool.h"
#include "core/runtime.h"
#include "devices.h"

static gpuf_error err;

static gpuf_pool_stats stats(void) {
  gpuf_pool_stats s = GPUF_POOL_STATS_INIT;
  gpuf_pool_get_stats(&s, NULL);
  return s;
}

static void a_buffer_that_came_back_is_used_again(void) {
  const size_t sizes[] = {1, 64, 4096, 500000, 600000, 40000000};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    void *first, *second;
    CHECK_OK(gpuf_pool_acquire(test_device, sizes[i], &first, &err));
    memset(first, 1, sizes[i]);
    gpuf_pool_release(first, NULL);
    const uint64_t misses = stats().miss_count;
    CHECK_OK(gpuf_pool_acquire(test_device, sizes[i], &second, &err));
    CHECK(second == first);
    CHECK(stats().miss_count == misses);
    gpuf_pool_release(second, NULL);
  }
  CHECK(stats().used_nbytes == 0);
}

static void buffers_in_use_do_not_overlap_and_are_aligned(void) {
  enum { COUNT = 300 };
  void *buffers[COUNT];
  size_t sizes[COUNT];
  uint64_t state = 9;
  for (int i = 0; i < COUNT; i++) {
    sizes[i] = 1 + random_below(&state, i % 10 == 0 ? 5000000 : 20000);
    CHECK_OK(gpuf_pool_acquire(test_device, sizes[i], &buffers[i], &err));
    CHECK((uintptr_t)buffers[i] % (sizes[i] >= 4096 ? 4096 : 64) == 0);
    memset(buffers[i], i & 0xff, sizes[i]);
  }
  for (int i = 0; i < COUNT; i++) {
    const unsigned char *bytes = buffers[i];
    CHECK(bytes[0] == (i & 0xff) && bytes[sizes[i] / 2] == (i & 0xff) &&
          bytes[sizes[i] - 1] == (i & 0xff));
    gpuf_pool_release(buffers[i], NULL);
  }
  CHECK(stats().used_nbytes == 0);
}

static void a_large_buffer_wastes_at_most_an_eighth(void) {
  uint64_t state = 3;
  gpuf_pool_trim(0);
  for (int i = 0; i < 20; i++) {
    const size_t nbytes = 524289 + random_below(&state, 50000000);
    void *buffer;
    CHECK_OK(gpuf_pool_acquire(test_device, nbytes, &buffer, &err));
    CHECK(stats().used_nbytes >= nbytes && stats().used_nbytes <= nbytes + nbytes / 7);
    gpuf_pool_release(buffer, NULL);
  }
}

static void the_cap_is_kept_and_its_error_says_how_to_raise_it(void) {
  void *first, *second;
  gpuf_pool_trim(0);
  const size_t cap = stats().cap_nbytes;
  gpuf_pool_set_cap((size_t)8 << 20);
  CHECK_OK(gpuf_pool_acquire(test_device, (size_t)6 << 20, &first, &err));
  CHECK_FAILS(gpuf_pool_acquire(test_device, (size_t)6 << 20, &second, &err), GPUF_ERR_NO_MEMORY,
              "GPUFETCH_POOL_MAX_NBYTES");
  CHECK(stats().reserved_nbytes <= (size_t)8 << 20);
  gpuf_pool_release(first, NULL);
  CHECK_OK(gpuf_pool_acquire(test_device, (size_t)3 << 20, &second, &err));
  CHECK(stats().reserved_nbytes <= (size_t)8 << 20);
  gpuf_pool_release(second, NULL);
  gpuf_pool_set_cap(cap);
}

/* A program that falls back to memory of its own keeps the buffers that it had. */
static void a_request_that_cannot_fit_leaves_unused_buffers_alone(void) {
  void *used, *unused, *refused;
  gpuf_pool_trim(0);
  const size_t cap = stats().cap_nbytes;
  gpuf_pool_set_cap((size_t)16 << 20);
  CHECK_OK(gpuf_pool_acquire(test_device, (size_t)4 << 20, &used, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, (size_t)8 << 20, &unused, &err));
  CHECK_OK(gpuf_pool_release(unused, &err));
  const size_t reserved = stats().reserved_nbytes;
  CHECK_FAILS(gpuf_pool_acquire(test_device, (size_t)17 << 20, &refused, &err), GPUF_ERR_NO_MEMORY,
              "cannot add 18874368");
  CHECK_FAILS(gpuf_pool_acquire_result(test_device, (size_t)40 << 20, &refused, &err),
              GPUF_ERR_NO_MEMORY, "of its cap of 16777216");
  /* Not even with all unused memory given up: the 4 MiB stay in use. */
  CHECK_FAILS(gpuf_pool_acquire(test_device, (size_t)13 << 20, &refused, &err), GPUF_ERR_NO_MEMORY,
              "4194304 of them in use");
  CHECK(stats().reserved_nbytes == reserved);
  /* What fits once unused memory is given up is had. */
  CHECK_OK(gpuf_pool_acquire(test_device, (size_t)12 << 20, &unused, &err));
  CHECK_OK(gpuf_pool_release(unused, &err));
  CHECK_OK(gpuf_pool_release(used, &err));
  gpuf_pool_set_cap(cap);
}

static void a_buffer_is_released_once(void) {
  const size_t sizes[] = {64, 5000, 600000, 40000000};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    void *buffer, *first, *second;
    char name[32];
    CHECK_OK(gpuf_pool_acquire(test_device, sizes[i], &buffer, &err));
    snprintf(name, sizeof(name), "%p", buffer);
    CHECK_OK(gpuf_pool_release(buffer, &err));
    const size_t used = stats().used_nbytes;
    CHECK_FAILS(gpuf_pool_release(buffer, &err), GPUF_ERR_STATE, name);
    CHECK(stats().used_nbytes == used);
    CHECK_OK(gpuf_pool_acquire(test_device, sizes[i], &first, &err));
    CHECK_OK(gpuf_pool_acquire(test_device, sizes[i], &second, &err));
    CHECK(first == buffer && second != first);
    CHECK_FAILS(gpuf_pool_release((char *)first + 1, &err), GPUF_ERR_INVALID, "not a buffer");
    CHECK_OK(gpuf_pool_release(first, &err));
    CHECK_OK(gpuf_pool_release(second, &err));
    gpuf_pool_trim(0);
    CHECK_FAILS(gpuf_pool_release(buffer, &err), GPUF_ERR_INVALID, name);
  }
  int on_the_stack;
  CHECK_FAILS(gpuf_pool_release(&on_the_stack, &err), GPUF_ERR_INVALID, "not a buffer");
  CHECK_OK(gpuf_pool_release(NULL, &err));
}

static void trimming_gives_unused_memory_back(void) {
  void *kept, *returned;
  CHECK_OK(gpuf_pool_acquire(test_device, 1000000, &kept, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, 70000000, &returned, &err));
  gpuf_pool_release(returned, NULL);
  gpuf_pool_trim(0);
  CHECK(stats().reserved_nbytes == stats().used_nbytes);
  memset(kept, 7, 1000000);
  gpuf_pool_release(kept, NULL);
  gpuf_pool_trim(0);
  CHECK(stats().reserved_nbytes == 0);
}

static void a_size_of_zero_or_beyond_memory_is_refused(void) {
  void *buffer;
  CHECK_FAILS(gpuf_pool_acquire(test_device, 0, &buffer, &err), GPUF_ERR_INVALID, "0 bytes");
  CHECK_FAILS(gpuf_pool_acquire(test_device, SIZE_MAX, &buffer, &err), GPUF_ERR_INVALID, "bytes");
  CHECK_FAILS(gpuf_pool_acquire(test_device, (size_t)1 << 50, &buffer, &err), GPUF_ERR_NO_MEMORY,
              "cap");
}

static void memory_beyond_a_buffer_does_not_count_as_pinned(void) {
  char other[64];
  void *buffer;
  CHECK_OK(gpuf_pool_acquire(test_device, 40000000, &buffer, &err));
  CHECK(gpufi_pool_is_pinned(test_device.kind, buffer, 40000000));
  CHECK(gpufi_pool_is_pinned(test_device.kind, (char *)buffer + 33554440, 100));
  CHECK(!gpufi_pool_is_pinned(test_device.kind, buffer, 80000000));
  CHECK(!gpufi_pool_is_pinned(GPUF_DEVICE_CPU, buffer, 1));
  CHECK(!gpufi_pool_is_pinned(test_device.kind, other, sizeof(other)));
  gpuf_pool_release(buffer, NULL);
}

static void a_result_is_pinned_when_it_is_used_again(void) {
  const size_t nbytes = (size_t)40 << 20;
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor d_tensor, result;
  void *d_ptr, *first, *second;
  gpuf_pool_trim(0);
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&d_tensor, d_ptr, test_device, GPUF_DTYPE_INT8, 1, shape, &err));
  CHECK_OK(gpuf_pool_acquire_result(test_device, nbytes, &first, &err));
  CHECK(!gpufi_pool_is_pinned(test_device.kind, first, nbytes));
  fill_random(first, nbytes, 1);
  CHECK_OK(gpuf_tensor_init(&result, first, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(&d_tensor, &result, NULL, &err));
  memset(first, 0, nbytes);
  CHECK_OK(gpuf_copy(&result, &d_tensor, NULL, &err)); /* staged */
  void *copy = malloc(nbytes);
  memcpy(copy, first, nbytes);
  gpuf_pool_release(first, NULL);
  CHECK_OK(gpuf_pool_acquire_result(test_device, nbytes, &second, &err));
  CHECK(second == first && gpufi_pool_is_pinned(test_device.kind, second, nbytes));
  memset(second, 0, nbytes);
  CHECK_OK(gpuf_copy(&result, &d_tensor, NULL, &err)); /* in place */
  CHECK(memcmp(copy, second, nbytes) == 0);
  gpuf_pool_release(second, NULL);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  free(copy);
}

static void a_buffer_that_cannot_be_pinned_is_nobodys(void) {
  const size_t nbytes = (size_t)40 << 20;
  const gpufi_backend *backend;
  void *buffer, *unchanged = &err;
  CHECK_OK(gpufi_backend_for(test_device, &backend, &err));
  gpuf_pool_trim(0);
  CHECK_OK(gpuf_pool_acquire_result(test_device, nbytes, &buffer, &err));
  gpuf_pool_release(buffer, NULL);
  /* Nothing is page-locked twice. */
  CHECK_OK(backend->pin(test_device.index, buffer, 4096, &err));
  if (gpuf_pool_acquire(test_device, nbytes, &unchanged, &err) == GPUF_OK) {
    backend->unpin(test_device.index, buffer);
    gpuf_pool_release(unchanged, NULL);
    SKIP("all memory is page-locked on this device");
  }
  backend->unpin(test_device.index, buffer);
  CHECK(unchanged == &err && stats().used_nbytes == 0);
  CHECK(gpuf_pool_release(buffer, &err) == GPUF_ERR_STATE);
  CHECK_OK(gpuf_pool_acquire(test_device, nbytes, &buffer, &err));
  gpuf_pool_release(buffer, NULL);
}

static void *use_pool(void *arg) {
  uint64_t state = (uint64_t)(uintptr_t)arg;
  bool ok = true;
  for (int i = 0; i < 200 && ok; i++) {
    const size_t nbytes = 1 + random_below(&state, i % 20 == 0 ? 3000000 : 10000);
    const unsigned char value = (unsigned char)state;
    void *buffer;
    ok = gpuf_pool_acquire(host_device, nbytes, &buffer, NULL) == GPUF_OK;
    if (ok) {
      memset(buffer, value, nbytes);
      ok = ((unsigned char *)buffer)[nbytes - 1] == value;
      gpuf_pool_release(buffer, NULL);
    }
    if (i % 50 == 0) {
      gpuf_pool_trim(0);
    }
  }
  return ok ? arg : NULL;
}

static void threads_share_the_pool_without_mixing_buffers(void) {
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, use_pool, (void *)(1000 * (i + 1))) == 0);
  }
  for (uintptr_t i = 0; i < 4; i++) {
    void *result;
    CHECK(pthread_join(threads[i], &result) == 0);
    CHECK(result == (void *)(1000 * (i + 1)));
  }
  CHECK(stats().used_nbytes == 0);
}

int main(void) {
  TEST_ON_DEVICES(a_buffer_that_came_back_is_used_again);
  TEST_ON_DEVICES(buffers_in_use_do_not_overlap_and_are_aligned);
  TEST_ON_DEVICES(a_large_buffer_wastes_at_most_an_eighth);
  TEST_ON_DEVICES(the_cap_is_kept_and_its_error_says_how_to_raise_it);
  TEST_ON_DEVICES(a_request_that_cannot_fit_leaves_unused_buffers_alone);
  TEST_ON_DEVICES(a_buffer_is_released_once);
  TEST_ON_DEVICES(trimming_gives_unused_memory_back);
  TEST_ON_DEVICES(a_size_of_zero_or_beyond_memory_is_refused);
  TEST_ON_DEVICES(memory_beyond_a_buffer_does_not_count_as_pinned);
  TEST_ON_DEVICES(a_result_is_pinned_when_it_is_used_again);
  TEST_ON_DEVICES(a_buffer_that_cannot_be_pinned_is_nobodys);
  TEST(threads_share_the_pool_without_mixing_buffers);
  return test_finish();
}
