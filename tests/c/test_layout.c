/* Copies of views of any layout, against the packing reference of strided.c. */
#include <time.h>

#include "backend/backend.h"
#include "backend/host/faults.h"
#include "backend/host/memory.h"
#include "core/geometry.h"
#include "core/scratch.h"
#include "devices.h"

static gpuf_error err;

#define MEMORY_NBYTES (4 << 20)

static char memory[MEMORY_NBYTES], expected[MEMORY_NBYTES], received[MEMORY_NBYTES];

static const gpuf_dtype dtypes[] = {GPUF_DTYPE_UINT8, GPUF_DTYPE_BFLOAT16, GPUF_DTYPE_FLOAT32,
                                    GPUF_DTYPE_FLOAT64, GPUF_DTYPE_COMPLEX128};

/* Copy between all of the device's bytes at d_ptr and host memory. */
static void transfer(void *d_ptr, void *bytes, size_t nbytes, bool upload) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor device_side, host_side;
  CHECK_OK(gpuf_tensor_init(&device_side, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&host_side, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(upload ? gpuf_copy(&device_side, &host_side, NULL, &err)
                  : gpuf_copy(&host_side, &device_side, NULL, &err));
}

static void *device_alloc(size_t nbytes) {
  void *d_ptr;
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  return d_ptr;
}

/* Lengths that give short contiguous ranges, tiles and wide rows; at most 2^17 elements. */
static int32_t random_shape(int64_t *shape, uint64_t *state) {
  const int32_t ndim = 1 + (int32_t)random_below(state, 4);
  int64_t left = 1 << 17;
  for (int32_t axis = 0; axis < ndim; axis++) {
    const uint64_t limits[] = {3, 40, 90, 9000};
    const uint64_t limit = limits[random_below(state, 4)];
    shape[axis] = 1 + (int64_t)random_below(state, limit < (uint64_t)left ? limit : (uint64_t)left);
    left /= shape[axis];
  }
  return ndim;
}

/* Elements of `shape` in memory at `data`, in a random order of the axes, with random gaps and
 * directions. Elements do not overlap. The extent is at most three times the elements' size. */
static gpuf_tensor random_layout(char *data, gpuf_device device, gpuf_dtype dtype, int32_t ndim,
                                 const int64_t *shape, uint64_t *state) {
  gpuf_tensor t;
  int32_t order[4];
  int64_t stride = (int64_t)gpuf_dtype_nbytes(dtype);
  CHECK_OK(gpuf_tensor_init(&t, data, device, dtype, ndim, shape, &err));
  for (int32_t i = 0; i < ndim; i++) {
    const int32_t at = (int32_t)random_below(state, (uint64_t)i + 1);
    order[i] = order[at];
    order[at] = i;
  }
  const int32_t gap_at = (int32_t)random_below(state, 2 * (uint64_t)ndim); /* or nowhere */
  for (int32_t i = ndim - 1; i >= 0; i--) {
    const int32_t axis = order[i];
    stride *= i == gap_at ? 1 + (int64_t)random_below(state, 3) : 1;
    t.strides_nbytes[axis] = stride;
    if (random_below(state, 4) == 0) {
      t.data = (char *)t.data + (shape[axis] - 1) * stride;
      t.strides_nbytes[axis] = -stride;
    }
    stride *= shape[axis];
  }
  return t;
}

static void packed_reference(const gpuf_tensor *view, char *packed) {
  gpufi_strided layout;
  gpufi_strided_init(&layout, view);
  gpufi_strided_pack(&layout, view->data, 0, gpuf_tensor_count(view), packed);
}

/* The same view of other memory. */
static gpuf_tensor moved(gpuf_tensor view, const void *from, void *to, gpuf_device device) {
  view.data = (char *)to + ((char *)view.data - (const char *)from);
  view.device = device;
  return view;
}

static gpuf_dtype random_dtype(int32_t ndim, const int64_t *shape, uint64_t *state) {
  const gpuf_dtype dtype = dtypes[random_below(state, 5)];
  int64_t count = 1;
  for (int32_t axis = 0; axis < ndim; axis++) {
    count *= shape[axis];
  }
  return count * (int64_t)gpuf_dtype_nbytes(dtype) * 3 < MEMORY_NBYTES - 64 ? dtype
                                                                            : GPUF_DTYPE_INT8;
}

static void a_random_view_is_fetched_right(void) {
  uint64_t state = 101;
  void *pinned, *d_ptr = device_alloc(MEMORY_NBYTES);
  CHECK_OK(gpuf_pool_acquire(test_device, MEMORY_NBYTES, &pinned, &err));
  fill_random(memory, sizeof(memory), 7);
  transfer(d_ptr, memory, sizeof(memory), true);
  for (int round = 0; round < 250; round += test_every()) {
    int64_t shape[4];
    const int32_t ndim = random_shape(shape, &state);
    const gpuf_dtype dtype = random_dtype(ndim, shape, &state);
    const uint64_t shift = random_below(&state, 2) * random_below(&state, 16);
    gpuf_tensor view = random_layout(memory + shift, cpu_device, dtype, ndim, shape, &state);
    if (random_below(&state, 5) == 0) {
      view.strides_nbytes[random_below(&state, (uint64_t)ndim)] = 0;
    }
    const gpuf_tensor src = moved(view, memory, d_ptr, test_device);
    const gpuf_copy_options options = {.struct_nbytes = sizeof(options),
                                       .piece_nbytes = random_below(&state, 2) *
                                                       (1 + random_below(&state, 60000)),
                                       .thread_count = 1 + (int32_t)random_below(&state, 3)};
    gpuf_tensor dst;
    const size_t nbytes = gpuf_tensor_nbytes(&view);
    packed_reference(&view, expected);
    CHECK_OK(gpuf_tensor_init(&dst, pinned, cpu_device, dtype, ndim, shape, &err));
    memset(pinned, 0, nbytes);
    CHECK_OK(gpuf_copy(&dst, &src, &options, &err));
    CHECK(memcmp(pinned, expected, nbytes) == 0);
    char *other = random_below(&state, 2) ? pinned : received;
    dst = random_layout(other, cpu_device, dtype, ndim, shape, &state);
    CHECK_OK(gpuf_copy(&dst, &src, &options, &err));
    packed_reference(&dst, other == pinned ? received : pinned);
    CHECK(memcmp(other == pinned ? received : pinned, expected, nbytes) == 0);
  }
  gpuf_pool_release(pinned, NULL);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

/* Bytes between the elements must stay. */
static void a_random_view_is_written_right_and_nothing_else(void) {
  uint64_t state = 202;
  void *pinned, *d_ptr = device_alloc(MEMORY_NBYTES);
  CHECK_OK(gpuf_pool_acquire(test_device, MEMORY_NBYTES, &pinned, &err));
  fill_random(pinned, MEMORY_NBYTES, 8);
  for (int round = 0; round < 80; round += test_every()) {
    int64_t shape[4];
    const int32_t ndim = random_shape(shape, &state);
    const gpuf_dtype dtype = random_dtype(ndim, shape, &state);
    const uint64_t shift = random_below(&state, 2) * random_below(&state, 16);
    const gpuf_tensor view = random_layout(memory + shift, cpu_device, dtype, ndim, shape, &state);
    const gpuf_tensor dst = moved(view, memory, d_ptr, test_device);
    const gpuf_copy_options options = {.struct_nbytes = sizeof(options),
                                       .piece_nbytes = random_below(&state, 2) *
                                                       (1 + random_below(&state, 60000))};
    gpuf_tensor src = random_layout(pinned, cpu_device, dtype, ndim, shape, &state);
    if (random_below(&state, 5) == 0) {
      src.strides_nbytes[random_below(&state, (uint64_t)ndim)] = 0;
    }
    memset(memory, 0x5a, sizeof(memory));
    transfer(d_ptr, memory, sizeof(memory), true);
    CHECK_OK(gpuf_copy(&view, &src, NULL, &err));
    CHECK_OK(gpuf_copy(&dst, &src, &options, &err));
    transfer(d_ptr, received, sizeof(received), false);
    CHECK(memcmp(memory, received, sizeof(memory)) == 0);
  }
  gpuf_pool_release(pinned, NULL);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

/* Indices past 2^32, which broadcast axes give without the memory; plain and by tiles. */
static void elements_past_two_to_the_32_are_found(void) {
  const gpufi_strided layouts[] = {
      {.ndim = 3, .element_nbytes = 4, .shape = {1 << 25, 1 << 10, 3}, .strides_nbytes = {0, 8, 4}},
      {.ndim = 3, .element_nbytes = 2, .shape = {1 << 25, 64, 64}, .strides_nbytes = {0, 2, 130}},
      {.ndim = 3, .element_nbytes = 8, .shape = {1 << 25, 64, 64}, .strides_nbytes = {0, -8, 520}},
  };
  const gpufi_backend *backend =
      test_device.kind == GPUF_DEVICE_CUDA ? &gpufi_backend_cuda : &gpufi_backend_host;
  char *d_ptr = device_alloc(MEMORY_NBYTES), *d_packed = device_alloc(MEMORY_NBYTES);
  gpuf_stream stream;
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  fill_random(memory, sizeof(memory), 9);
  transfer(d_ptr, memory, sizeof(memory), true);
  for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
    const gpufi_strided *layout = &layouts[i];
    const size_t base = 1 << 16; /* a stride is negative */
    const int64_t first = ((int64_t)1 << 33) + 77, count = 20000;
    const size_t nbytes = (size_t)count * layout->element_nbytes;
    gpufi_strided_pack(layout, memory + base, first, count, expected);
    const gpufi_packing packing = {.layout = *layout,
                                   .d_base = d_ptr + base,
                                   .first = first,
                                   .count = count,
                                   .d_packed = d_packed};
    CHECK_OK(backend->pack(0, &packing, stream, &err));
    CHECK_OK(gpuf_stream_synchronize(test_device, stream, &err));
    transfer(d_packed, received, nbytes, false);
    CHECK(memcmp(received, expected, nbytes) == 0);
  }
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  CHECK_OK(gpuf_free(test_device, d_packed, &err));
}

/* On a device that has no scratch yet and cannot allocate any. */
static void without_scratch(const gpuf_tensor *view, const gpuf_tensor *dst, void *d_ptr,
                            gpuf_status outcome) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const gpuf_device second = {GPUF_DEVICE_HOST, 1};
  const gpuf_tensor src = moved(*view, memory, d_ptr, second);
  const gpufi_host_faults none = GPUFI_HOST_FAULTS_NONE;
  faults.alloc_fail_after = 0;
  gpufi_host_faults_set(&faults);
  const gpuf_status status = gpuf_copy(dst, &src, NULL, &err);
  gpufi_host_faults_set(&none);
  CHECK(status == outcome);
}

static void wide_rows_and_like_layouts_need_no_scratch(void) {
  const int64_t shape[3] = {5, 65, 5000};
  const gpuf_device second = {GPUF_DEVICE_HOST, 1};
  gpuf_tensor view, dst;
  void *d_ptr;
  CHECK_OK(gpuf_alloc(second, MEMORY_NBYTES, &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&view, memory, cpu_device, GPUF_DTYPE_INT8, 3, shape, &err));
  CHECK_OK(gpuf_tensor_init(&dst, received, cpu_device, GPUF_DTYPE_INT8, 3, shape, &err));
  without_scratch(&view, &dst, d_ptr, GPUF_OK);
  gpufi_tensor_swap_axes(&view, 0, 2); /* alike on both sides */
  gpufi_tensor_swap_axes(&dst, 0, 2);
  without_scratch(&view, &dst, d_ptr, GPUF_OK);
  gpufi_tensor_swap_axes(&view, 0, 2);
  gpufi_tensor_swap_axes(&dst, 0, 2);
  view.strides_nbytes[1] = 5001; /* wide rows */
  view.strides_nbytes[0] = 5001 * 70;
  without_scratch(&view, &dst, d_ptr, GPUF_OK);
  view.strides_nbytes[2] = 2;
  view.strides_nbytes[1] = 10002;
  without_scratch(&view, &dst, d_ptr, GPUF_ERR_NO_DEVICE_MEMORY);
  CHECK_OK(gpuf_free(second, d_ptr, &err));
}

/* Gathers that are all in flight at once, waited for in the reverse order, with no more scratch
 * than `bound_nbytes` on the device. */
static void gather_many(size_t bound_nbytes, bool pinned) {
  enum { FUTURES = TEST_OR_LESS(24, 3), COUNT = 3 << 20 };
  const int64_t shape[1] = {COUNT / 2};
  gpuf_future *futures[FUTURES];
  char *targets[FUTURES];
  gpuf_tensor src, dst;
  void *d_ptr = device_alloc(COUNT);
  transfer(d_ptr, memory, COUNT, true);
  const size_t before = gpufi_host_allocated_nbytes(0);
  CHECK_OK(gpuf_tensor_init(&src, d_ptr, test_device, GPUF_DTYPE_INT8, 1, shape, &err));
  src.strides_nbytes[0] = 2;
  for (int i = 0; i < FUTURES; i++) {
    const gpuf_copy_options options = {
        .struct_nbytes = sizeof(options), .piece_nbytes = 300000, .thread_count = 2};
    if (pinned) {
      CHECK_OK(gpuf_pool_acquire(test_device, COUNT, (void **)&targets[i], &err));
    } else {
      targets[i] = malloc(COUNT);
    }
    CHECK_OK(gpuf_tensor_init(&dst, targets[i], cpu_device, GPUF_DTYPE_INT8, 1, shape, &err));
    CHECK_OK(gpuf_copy_async(&dst, &src, &options, &futures[i], &err));
  }
  for (int i = FUTURES - 1; i >= 0; i--) {
    CHECK_OK(gpuf_future_wait(futures[i], -1, &err));
    gpuf_future_destroy(futures[i]);
    for (int64_t k = 0; k < shape[0]; k++) {
      CHECK(targets[i][k] == memory[2 * k]);
    }
    if (pinned) {
      gpuf_pool_release(targets[i], NULL);
    } else {
      free(targets[i]);
    }
  }
  if (test_device.kind == GPUF_DEVICE_HOST) {
    CHECK(gpufi_host_allocated_nbytes(0) - before <= bound_nbytes);
  }
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void scratch_stays_within_its_bound(void) {
  fill_random(memory, sizeof(memory), 10);
  gather_many((size_t)64 << 20, true);
  gather_many((size_t)64 << 20, false);
}

/* Has to come before the next test, while there is no more scratch than for one piece. */
static void scratch_for_one_piece_is_enough(void) {
  fill_random(memory, sizeof(memory), 11);
  setenv("GPUFETCH_SCRATCH_MAX_NBYTES", "1", 1);
  gather_many(GPUFI_SCRATCH_NBYTES, true);
  gather_many(GPUFI_SCRATCH_NBYTES, false);
  unsetenv("GPUFETCH_SCRATCH_MAX_NBYTES");
}

enum { GATHER_COUNT = 2 << 20 };

/* Every second byte of device memory, and pinned memory for them. */
typedef struct gather {
  void *d_ptr, *pinned;
  gpuf_tensor src, dst;
} gather;

static gather gather_create(void) {
  const int64_t shape[1] = {GATHER_COUNT};
  gather g;
  test_device = host_device;
  g.d_ptr = device_alloc(2 * GATHER_COUNT);
  transfer(g.d_ptr, memory, 2 * GATHER_COUNT, true);
  CHECK_OK(gpuf_pool_acquire(host_device, GATHER_COUNT, &g.pinned, &err));
  CHECK_OK(gpuf_tensor_init(&g.src, g.d_ptr, host_device, GPUF_DTYPE_INT8, 1, shape, &err));
  g.src.strides_nbytes[0] = 2;
  CHECK_OK(gpuf_tensor_init(&g.dst, g.pinned, cpu_device, GPUF_DTYPE_INT8, 1, shape, &err));
  return g;
}

static void gather_destroy(const gather *g) {
  gpuf_pool_release(g->pinned, NULL);
  CHECK_OK(gpuf_free(host_device, g->d_ptr, &err));
}

/* A gather runs on several streams: a failure on any of them is the copy's, and none is left. */
static void a_gather_that_fails_on_one_stream_fails(void) {
  const gpufi_host_faults none = GPUFI_HOST_FAULTS_NONE;
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .piece_nbytes = 500000};
  gather g = gather_create();
  for (int64_t limit = 0; limit < GATHER_COUNT; limit += 400000) {
    faults.copy_fail_after_nbytes = limit;
    gpufi_host_faults_set(&faults);
    const gpuf_status status = gpuf_copy(&g.dst, &g.src, &options, &err);
    gpufi_host_faults_set(&none);
    CHECK(status == GPUF_ERR_DEVICE && strstr(err.message, "injected"));
    CHECK_OK(gpuf_copy(&g.dst, &g.src, &options, &err));
  }
  /* Past the allocation, on the side where the destination is not, because overlaps are refused
   * before: the packing fails, not the transfer. */
  g.src.strides_nbytes[0] = (uintptr_t)g.pinned > (uintptr_t)g.d_ptr ? -2 : 4;
  CHECK_FAILS(gpuf_copy(&g.dst, &g.src, &options, &err), GPUF_ERR_DEVICE, "live allocation");
  gather_destroy(&g);
}

static void a_gather_in_flight_times_out_and_then_ends(void) {
  const gpufi_host_faults none = GPUFI_HOST_FAULTS_NONE;
  const gpufi_host_faults slow = {-1, -1, 20000000, 0};
  gpuf_future *future;
  gather g = gather_create();
  gpufi_host_faults_set(&slow);
  const gpuf_status started = gpuf_copy_async(&g.dst, &g.src, NULL, &future, &err);
  const bool early = started == GPUF_OK && gpuf_future_done(future);
  gpufi_host_faults_set(&none);
  CHECK(started == GPUF_OK && !early);
  CHECK_OK(gpuf_future_wait(future, -1, &err));
  CHECK_OK(gpuf_future_wait(future, 0, &err));
  gpuf_future_destroy(future);
  for (size_t i = 0; i < GATHER_COUNT; i++) {
    CHECK(((char *)g.pinned)[i] == memory[2 * i]);
  }
  gather_destroy(&g);
}

int main(void) {
  TEST(wide_rows_and_like_layouts_need_no_scratch);
  TEST_ON_DEVICES(scratch_for_one_piece_is_enough);
  TEST_ON_DEVICES(scratch_stays_within_its_bound);
  TEST_ON_DEVICES(a_random_view_is_fetched_right);
  TEST_ON_DEVICES(a_random_view_is_written_right_and_nothing_else);
  TEST_ON_DEVICES(elements_past_two_to_the_32_are_found);
  TEST(a_gather_that_fails_on_one_stream_fails);
  TEST(a_gather_in_flight_times_out_and_then_ends);
  return test_finish();
}
