/* Tensors that share memory: told apart from those that interleave, and refused as the two sides of
 * a copy. */
#include "core/overlap.h"

#include "devices.h"

#define MEMORY_NBYTES 400

static gpuf_error err;
static uint8_t memory[MEMORY_NBYTES];

/* A view of `base`, at random, of up to three axes; its elements lie within MEMORY_NBYTES. */
static gpuf_tensor random_view(uint64_t *state, void *base, gpuf_device device, gpuf_dtype dtype,
                               int32_t ndim, const int64_t *shape) {
  const int64_t unit = (int64_t)gpuf_dtype_nbytes(dtype);
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, base, device, dtype, ndim, shape, &err));
  int64_t below = 0;
  for (int32_t axis = 0; axis < ndim; axis++) {
    t.strides_nbytes[axis] = unit * ((int64_t)random_below(state, 13) - 6);
    below += t.strides_nbytes[axis] < 0 ? -t.strides_nbytes[axis] * (shape[axis] - 1) : 0;
  }
  t.data = (char *)base + below + unit * (int64_t)random_below(state, 12);
  return t;
}

static void random_shape(uint64_t *state, int32_t *ndim, int64_t *shape) {
  *ndim = (int32_t)random_below(state, 4);
  for (int32_t axis = 0; axis < *ndim; axis++) {
    shape[axis] = 1 + (int64_t)random_below(state, 4);
  }
}

/* Address of element `index`, in C order, from `base`. */
static size_t place(const gpuf_tensor *t, const void *base, int64_t index) {
  ptrdiff_t at = (char *)t->data - (const char *)base;
  for (int32_t axis = t->ndim - 1; axis >= 0; axis--) {
    at += index % t->shape[axis] * t->strides_nbytes[axis];
    index /= t->shape[axis];
  }
  return (size_t)at;
}

/* Count how often each byte is an element's; *repeats if one is that of several. */
static void mark(const gpuf_tensor *t, const void *base, uint8_t *marks, bool *repeats) {
  const size_t nbytes = gpuf_dtype_nbytes(t->dtype);
  memset(marks, 0, MEMORY_NBYTES);
  *repeats = false;
  for (int64_t i = 0; i < gpuf_tensor_count(t); i++) {
    for (size_t byte = 0; byte < nbytes; byte++) {
      *repeats |= marks[place(t, base, i) + byte]++ > 0;
    }
  }
}

static bool share_a_byte(const uint8_t *a, const uint8_t *b) {
  bool found = false;
  for (int i = 0; i < MEMORY_NBYTES; i++) {
    found |= a[i] && b[i];
  }
  return found;
}

static const gpuf_dtype dtypes[] = {GPUF_DTYPE_INT8, GPUF_DTYPE_INT16, GPUF_DTYPE_INT32};

static void what_is_said_of_random_views_is_true_to_the_byte(void) {
  uint64_t state = 1;
  int found = 0, repeated = 0;
  const int cases = 40000 * test_times();
  for (int i = 0; i < cases; i++) {
    int64_t shape[3];
    int32_t ndim;
    uint8_t marks_a[MEMORY_NBYTES], marks_b[MEMORY_NBYTES];
    bool repeats_a, repeats_b;
    random_shape(&state, &ndim, shape);
    const gpuf_tensor a =
        random_view(&state, memory, cpu_device, dtypes[random_below(&state, 3)], ndim, shape);
    random_shape(&state, &ndim, shape);
    gpuf_tensor b =
        random_view(&state, memory, cpu_device, dtypes[random_below(&state, 3)], ndim, shape);
    b.data = (char *)b.data + random_below(&state, 4); /* elements may overlap in part */
    mark(&a, memory, marks_a, &repeats_a);
    mark(&b, memory, marks_b, &repeats_b);
    CHECK(gpufi_tensors_overlap(&a, &b) == share_a_byte(marks_a, marks_b));
    CHECK(gpufi_tensors_overlap(&b, &a) == share_a_byte(marks_a, marks_b));
    CHECK(gpufi_tensor_repeats_elements(&a) == repeats_a);
    found += share_a_byte(marks_a, marks_b);
    repeated += repeats_a;
  }
  CHECK(found > cases / 10 && found < cases / 10 * 9);
  CHECK(repeated > cases / 10 && repeated < cases / 10 * 9);
}

#define VIEW(base, ...) view_of_lists(base, (const int64_t[2][2]){__VA_ARGS__})

/* Of uint8, with a shape and strides; no element is touched. */
static gpuf_tensor view_of_lists(uintptr_t base, const int64_t (*lists)[2]) {
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, (void *)base, cpu_device, GPUF_DTYPE_UINT8, 2, lists[0], &err));
  memcpy(t.strides_nbytes, lists[1], sizeof(lists[1]));
  return t;
}

/* The kinds of view that programs have: halves of a row, every second column, tiles, planes. */
static void large_views_that_interleave_are_told_apart(void) {
  const int64_t n = 1 << 20, row = 3 << 20;
  const uintptr_t base = 1 << 30;
  const gpuf_tensor even = VIEW(base, {n, n}, {row, 2}), odd = VIEW(base + 1, {n, n}, {row, 2});
  const gpuf_tensor left = VIEW(base, {n, n}, {row, 1}), right = VIEW(base + n, {n, n}, {row, 1});
  const gpuf_tensor beyond = VIEW(base + n - 1, {n, n}, {row, 1});
  const gpuf_tensor back = VIEW(base + (n - 1) * row + n, {n, n}, {-row, 1});
  const gpuf_tensor transposed = VIEW(base + n, {n, n}, {1, row});
  CHECK(!gpufi_tensors_overlap(&even, &odd) && !gpufi_tensors_overlap(&left, &right));
  CHECK(!gpufi_tensors_overlap(&left, &back) && !gpufi_tensors_overlap(&left, &transposed));
  CHECK(gpufi_tensors_overlap(&even, &left) && gpufi_tensors_overlap(&left, &beyond));
  CHECK(gpufi_tensors_overlap(&right, &back) && gpufi_tensors_overlap(&right, &transposed));
  CHECK(!gpufi_tensor_repeats_elements(&even) && !gpufi_tensor_repeats_elements(&back));
}

static void a_tensor_that_spans_all_addresses_does_not_overflow(void) {
  const gpuf_tensor vast = VIEW(1, {2, 1}, {INT64_MAX - 8, 1});
  const gpuf_tensor more = VIEW(16, {2, 2}, {INT64_MAX / 2, INT64_MAX / 2 - 9});
  CHECK(gpufi_tensors_overlap(&vast, &more));
  CHECK(!gpufi_tensor_repeats_elements(&vast));
}

static void extents_and_empty_tensors(void) {
  const int64_t ten[1] = {10}, none[1] = {0};
  gpuf_tensor a, b;
  CHECK_OK(gpuf_tensor_init(&a, memory + 100, cpu_device, GPUF_DTYPE_INT32, 1, ten, &err));
  b = a;
  CHECK(gpufi_tensors_overlap(&a, &b) && gpufi_tensors_coincide(&a, &b));
  b.data = memory + 139;
  CHECK(gpufi_tensors_overlap(&a, &b) && gpufi_tensors_overlap(&b, &a));
  CHECK(!gpufi_tensors_coincide(&a, &b));
  b.data = memory + 140;
  CHECK(!gpufi_tensors_overlap(&a, &b) && !gpufi_tensors_overlap(&b, &a));
  CHECK_OK(gpuf_tensor_init(&b, memory + 100, cpu_device, GPUF_DTYPE_INT32, 1, none, &err));
  CHECK(!gpufi_tensors_overlap(&a, &b) && !gpufi_tensors_overlap(&b, &b));
}

static void an_element_that_is_repeated_is_found(void) {
  const gpuf_tensor distinct = VIEW(4096, {3, 5}, {5, 1}), single = VIEW(4096, {1, 5}, {0, 1});
  const gpuf_tensor repeated = VIEW(4096, {3, 5}, {1, 0}), empty = VIEW(4096, {3, 0}, {0, 0});
  const gpuf_tensor windows = VIEW(4096, {3, 5}, {1, 1}), apart = VIEW(4096, {2, 2}, {3, 2});
  CHECK(!gpufi_tensor_repeats_elements(&distinct) && !gpufi_tensor_repeats_elements(&single));
  CHECK(gpufi_tensor_repeats_elements(&repeated) && gpufi_tensor_repeats_elements(&windows));
  CHECK(!gpufi_tensor_repeats_elements(&empty) && !gpufi_tensor_repeats_elements(&apart));
}

static void a_destination_has_the_sources_shape_and_distinct_elements(void) {
  const gpuf_tensor src = VIEW(4096, {3, 5}, {0, 1}), dst = VIEW(4096, {3, 5}, {-5, -1});
  const gpuf_tensor longer = VIEW(4096, {3, 6}, {6, 1}), empty = VIEW(4096, {0, 5}, {0, 0});
  const gpuf_tensor windows = VIEW(4096, {3, 5}, {1, 1});
  const int64_t fifteen[1] = {15};
  gpuf_tensor flat;
  CHECK_OK(gpuf_tensor_init(&flat, memory, cpu_device, GPUF_DTYPE_UINT8, 1, fifteen, &err));
  CHECK_OK(gpufi_destination_check(&dst, &src, &err));
  CHECK_OK(gpufi_destination_check(&empty, &empty, &err));
  CHECK_FAILS(gpufi_destination_check(&flat, &src, &err), GPUF_ERR_INVALID, "1 axes");
  CHECK_FAILS(gpufi_destination_check(&longer, &src, &err), GPUF_ERR_INVALID, "shape[1] is 6");
  CHECK_FAILS(gpufi_destination_check(&src, &dst, &err), GPUF_ERR_INVALID, "along axis 0");
  CHECK_FAILS(gpufi_destination_check(&windows, &dst, &err), GPUF_ERR_INVALID, "0x1000 share");
}

/* --- Copies ------------------------------------------------------------- */

/* Where a test's bytes are: on a device, or the CPU's `memory`. */
static char *base;

static void exchange(uint8_t *bytes, bool to_base) {
  const int64_t shape[1] = {MEMORY_NBYTES};
  gpuf_tensor there, here;
  CHECK_OK(gpuf_tensor_init(&there, base, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&here, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(to_base ? &there : &here, to_base ? &here : &there, NULL, &err));
}

static gpuf_status copy_within(const gpuf_tensor *dst, const gpuf_tensor *src) {
  gpuf_status status;
  if (test_device.kind == GPUF_DEVICE_CPU) {
    return gpuf_copy(dst, src, NULL, &err);
  }
  status = gpuf_tensor_copy(dst, src, GPUF_STREAM_LEGACY, &err);
  CHECK_OK(gpuf_stream_synchronize(test_device, GPUF_STREAM_LEGACY, &err));
  return status;
}

/* One memory, two views: either every byte is right, or nothing is done and the addresses named. */
static void check_copies_within_one_memory(int cases) {
  uint64_t state = 5;
  int copied = 0, refused = 0;
  for (int i = 0; i < cases; i++) {
    uint8_t before[MEMORY_NBYTES], after[MEMORY_NBYTES], expected[MEMORY_NBYTES];
    uint8_t marks_src[MEMORY_NBYTES], marks_dst[MEMORY_NBYTES];
    bool repeats_src, repeats;
    int64_t shape[3];
    int32_t ndim;
    const gpuf_dtype dtype = dtypes[random_below(&state, 3)];
    const size_t nbytes = gpuf_dtype_nbytes(dtype);
    random_shape(&state, &ndim, shape);
    const gpuf_tensor src = random_view(&state, base, test_device, dtype, ndim, shape);
    const gpuf_tensor dst =
        i % 8 == 0 ? src : random_view(&state, base, test_device, dtype, ndim, shape);
    fill_random(before, sizeof(before), (uint64_t)i + 1);
    memcpy(expected, before, sizeof(before));
    exchange(before, true);
    mark(&src, base, marks_src, &repeats_src);
    mark(&dst, base, marks_dst, &repeats);
    bool coincide = true;
    for (int64_t k = 0; k < gpuf_tensor_count(&src); k++) {
      coincide &= place(&dst, base, k) == place(&src, base, k);
    }
    const bool clash = repeats || (share_a_byte(marks_src, marks_dst) && !coincide);
    const gpuf_status status = copy_within(&dst, &src);
    CHECK(status == (clash ? GPUF_ERR_INVALID : GPUF_OK));
    if (clash) {
      CHECK(strstr(err.message, "memory") && (strstr(err.message, "0x") || repeats));
    }
    for (int64_t k = 0; k < gpuf_tensor_count(&src) && !clash; k++) {
      memcpy(expected + place(&dst, base, k), before + place(&src, base, k), nbytes);
    }
    exchange(after, false);
    CHECK(memcmp(after, expected, sizeof(after)) == 0);
    copied += !clash;
    refused += clash;
  }
  CHECK(copied > cases / 10 && refused > cases / 10);
}

static void copies_within_one_memory_are_right_or_refused(void) {
  void *d_ptr;
  CHECK_OK(gpuf_alloc(test_device, MEMORY_NBYTES, &d_ptr, &err));
  base = d_ptr;
  check_copies_within_one_memory(300 * test_times());
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void copies_within_an_array_are_right_or_refused(void) {
  test_device = cpu_device;
  base = (char *)memory;
  check_copies_within_one_memory(4000 * test_times());
}

static void a_cast_in_place_is_right_and_any_other_overlap_refused(void) {
  const gpuf_copy_options cast = {.struct_nbytes = sizeof(cast), .cast = true};
  const int64_t shape[1] = {5000};
  static int32_t values[5001];
  gpuf_tensor src, dst;
  for (int32_t i = 0; i < 5000; i++) {
    values[i] = i;
  }
  CHECK_OK(gpuf_tensor_init(&src, values, cpu_device, GPUF_DTYPE_INT32, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&dst, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &src, &cast, &err));
  for (int32_t i = 0; i < 5000; i++) {
    const float wanted = (float)i;
    CHECK(memcmp(&values[i], &wanted, sizeof(wanted)) == 0);
  }
  dst.data = values + 1;
  CHECK_FAILS(gpuf_copy(&dst, &src, &cast, &err), GPUF_ERR_INVALID, "share memory");
  dst = src;
  dst.dtype = GPUF_DTYPE_INT16;
  dst.strides_nbytes[0] = 2;
  CHECK_FAILS(gpuf_copy(&dst, &src, &cast, &err), GPUF_ERR_INVALID, "share memory");
}

int main(void) {
  TEST(what_is_said_of_random_views_is_true_to_the_byte);
  TEST(large_views_that_interleave_are_told_apart);
  TEST(a_tensor_that_spans_all_addresses_does_not_overflow);
  TEST(extents_and_empty_tensors);
  TEST(an_element_that_is_repeated_is_found);
  TEST(a_destination_has_the_sources_shape_and_distinct_elements);
  TEST(copies_within_an_array_are_right_or_refused);
  TEST_ON_DEVICES(copies_within_one_memory_are_right_or_refused);
  TEST(a_cast_in_place_is_right_and_any_other_overlap_refused);
  return test_finish();
}
