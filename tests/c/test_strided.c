#include "backend/strided.h"
#include "core/geometry.h"
#include "devices.h"

static gpuf_error err;

/* The address of an element by the definition of strides, axis by axis. */
static const char *element_at(const gpuf_tensor *t, int64_t index) {
  const char *address = t->data;
  for (int32_t axis = t->ndim - 1; axis >= 0; axis--) {
    address += index % t->shape[axis] * t->strides_nbytes[axis];
    index /= t->shape[axis];
  }
  return address;
}

/* A random view of `memory`: random rank, lengths, order of axes, steps and directions. */
static gpuf_tensor random_view(char *memory, size_t memory_nbytes, gpuf_dtype dtype,
                               uint64_t *state) {
  int64_t shape[4];
  gpuf_tensor t;
  const int32_t ndim = (int32_t)random_below(state, 5);
  for (int32_t axis = 0; axis < ndim; axis++) {
    shape[axis] = 1 + (int64_t)random_below(state, 9);
  }
  CHECK_OK(gpuf_tensor_init(&t, memory, cpu_device, dtype, ndim, shape, &err));
  CHECK(gpuf_tensor_nbytes(&t) <= memory_nbytes);
  for (int32_t axis = 0; axis < ndim; axis++) {
    const int64_t length = t.shape[axis];
    const int64_t step = 1 + (int64_t)random_below(state, 3);
    const int64_t count = (length - 1) / step + 1;
    if (random_below(state, 2)) {
      CHECK_OK(gpuf_tensor_slice(&t, axis, (count - 1) * step, -step, count, &err));
    } else {
      CHECK_OK(gpuf_tensor_slice(&t, axis, 0, step, count, &err));
    }
    const int32_t other = (int32_t)random_below(state, (uint64_t)ndim);
    gpufi_tensor_swap_axes(&t, axis, other);
  }
  return t;
}

static const gpuf_dtype dtypes[] = {GPUF_DTYPE_INT8, GPUF_DTYPE_BFLOAT16, GPUF_DTYPE_FLOAT32,
                                    GPUF_DTYPE_FLOAT64, GPUF_DTYPE_COMPLEX128};

/* One of many cases: a random view of `memory`, its layout and the size of its elements. */
typedef struct view_case {
  gpuf_tensor t;
  gpufi_strided layout;
  int64_t count;
  size_t element_nbytes;
} view_case;

static view_case random_case(int round, char *memory, size_t memory_nbytes, uint64_t *state) {
  view_case c = {.t = random_view(memory, memory_nbytes, dtypes[round % 5], state)};
  c.count = gpuf_tensor_count(&c.t);
  c.element_nbytes = gpuf_dtype_nbytes(c.t.dtype);
  gpufi_strided_init(&c.layout, &c.t);
  return c;
}

static void packing_a_random_view_agrees_with_its_definition(void) {
  static char memory[9 * 9 * 9 * 9 * 16], packed[sizeof(memory)];
  uint64_t state = 1;
  fill_random(memory, sizeof(memory), 2);
  for (int round = 0; round < 2000; round++) {
    const view_case c = random_case(round, memory, sizeof(memory), &state);
    const int64_t first = (int64_t)random_below(&state, (uint64_t)c.count);
    const int64_t count = 1 + (int64_t)random_below(&state, (uint64_t)(c.count - first));
    gpufi_strided_pack(&c.layout, c.t.data, first, count, packed);
    for (int64_t i = 0; i < count; i++) {
      const char *const element = packed + (size_t)i * c.element_nbytes;
      CHECK(memcmp(element, element_at(&c.t, first + i), c.element_nbytes) == 0);
    }
  }
}

static void unpacking_writes_the_elements_and_nothing_else(void) {
  static char memory[9 * 9 * 9 * 9 * 16], expected[sizeof(memory)], packed[sizeof(memory)];
  uint64_t state = 77;
  fill_random(packed, sizeof(packed), 3);
  for (int round = 0; round < 1000; round++) {
    const view_case c = random_case(round, memory, sizeof(memory), &state);
    memset(memory, 0x5a, sizeof(memory));
    memset(expected, 0x5a, sizeof(expected));
    for (int64_t i = 0; i < c.count; i++) {
      memcpy(expected + (element_at(&c.t, i) - memory), packed + (size_t)i * c.element_nbytes,
             c.element_nbytes);
    }
    gpufi_strided_unpack(&c.layout, c.t.data, 0, c.count, packed);
    CHECK(memcmp(memory, expected, sizeof(memory)) == 0);
  }
}

static void splitting_elements_keeps_the_bytes(void) {
  static char memory[9 * 9 * 9 * 9 * 16], whole[sizeof(memory)], split[sizeof(memory)];
  uint64_t state = 5;
  fill_random(memory, sizeof(memory), 4);
  for (int round = 0; round < 500; round++) {
    const gpuf_tensor t = random_view(memory, sizeof(memory), GPUF_DTYPE_COMPLEX128, &state);
    const int64_t count = gpuf_tensor_count(&t);
    const uint32_t unit = 1u << random_below(&state, 5);
    gpufi_strided layout;
    gpufi_strided_init(&layout, &t);
    gpufi_strided_pack(&layout, t.data, 0, count, whole);
    gpufi_strided_split(&layout, unit);
    gpufi_strided_pack(&layout, t.data, 0, count * (16 / unit), split);
    CHECK(memcmp(whole, split, (size_t)count * 16) == 0);
  }
}

/* By whatever units, from wherever: the same bytes. */
static void refitting_units_keeps_the_bytes(void) {
  static _Alignas(16) char memory[9 * 9 * 9 * 9 * 16 + 16], whole[sizeof(memory)],
      refit[sizeof(memory)];
  uint64_t state = 15;
  int wider = 0, narrower = 0;
  fill_random(memory, sizeof(memory), 6);
  for (int round = 0; round < 2000; round++) {
    char *base = memory + random_below(&state, 2) * random_below(&state, 17);
    const gpuf_tensor t = random_view(base, sizeof(memory) - 16, dtypes[round % 5], &state);
    int64_t first = (int64_t)random_below(&state, (uint64_t)gpuf_tensor_count(&t));
    int64_t count = gpuf_tensor_count(&t) - first;
    gpufi_strided layout;
    gpufi_strided_init(&layout, &t);
    const uint32_t element_nbytes = layout.element_nbytes;
    gpufi_strided_pack(&layout, t.data, first, count, whole);
    const size_t nbytes = (size_t)count * element_nbytes;
    gpufi_strided_refit(&layout, t.data, &first, &count);
    CHECK((size_t)count * layout.element_nbytes == nbytes);
    CHECK((uintptr_t)t.data % layout.element_nbytes == 0);
    wider += layout.element_nbytes > element_nbytes;
    narrower += layout.element_nbytes < element_nbytes;
    gpufi_strided_pack(&layout, t.data, first, count, refit);
    CHECK(memcmp(whole, refit, nbytes) == 0);
  }
  CHECK(wider > 10 && narrower > 50);
}

/* Head, slices and tail make up the range, and the slices are neighbours in memory. */
static void tiles_cover_the_range_exactly(void) {
  const gpufi_strided layout = {.ndim = 4,
                                .element_nbytes = 4,
                                .shape = {3, 40, 5, 30},
                                .strides_nbytes = {1 << 20, -4, 160, 800}};
  uint64_t state = 19;
  int tiled = 0;
  for (int round = 0; round < 500; round++) {
    const int64_t first = (int64_t)random_below(&state, 3 * 40 * 150);
    const int64_t count = 1 + (int64_t)random_below(&state, (uint64_t)(3 * 40 * 150 - first));
    gpufi_tiles tiles;
    if (!gpufi_strided_tiles(&layout, first, count, &tiles)) {
      CHECK(count < 17 * 150);
      continue;
    }
    tiled++;
    CHECK(tiles.axis == 1 && tiles.slice_elements == 150);
    CHECK(tiles.head_count >= 0 && tiles.head_count < 150);
    CHECK(tiles.tail_count >= 0 && tiles.tail_count < 150);
    CHECK(tiles.first_slice * 150 == first + tiles.head_count);
    CHECK(tiles.head_count + tiles.slice_count * 150 + tiles.tail_count == count);
  }
  CHECK(tiled > 100);
}

static void mergeable_axes_become_one(void) {
  const int64_t shape[4] = {3, 1, 4, 5};
  char memory[4 * 60];
  gpuf_tensor t;
  gpufi_strided layout;
  CHECK_OK(gpuf_tensor_init(&t, memory, cpu_device, GPUF_DTYPE_INT32, 4, shape, &err));
  gpufi_strided_init(&layout, &t);
  CHECK(gpufi_strided_is_contiguous(&layout) && layout.shape[0] == 60);
  CHECK_OK(gpuf_tensor_slice(&t, 3, 0, 1, 4, &err));
  gpufi_strided_init(&layout, &t);
  CHECK(layout.ndim == 2 && layout.shape[0] == 12 && layout.shape[1] == 4);
  CHECK(!gpufi_strided_is_contiguous(&layout));
}

int main(void) {
  TEST(packing_a_random_view_agrees_with_its_definition);
  TEST(unpacking_writes_the_elements_and_nothing_else);
  TEST(splitting_elements_keeps_the_bytes);
  TEST(refitting_units_keeps_the_bytes);
  TEST(tiles_cover_the_range_exactly);
  TEST(mergeable_axes_become_one);
  return test_finish();
}
