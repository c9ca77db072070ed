/* The bits of an overview's cells, and how they reach the caller's memory. */
#include <gpufetch/reduce.h>
#include <math.h>

#include "backend/elements.h"
#include "backend/host/faults.h"
#include "core/channel.h"
#include "core/reduce.h"
#include "reductions.h"

#define HEAD_NBYTES sizeof(gpufi_reduce_head)

static const gpuf_overview_method methods[] = {
    GPUF_OVERVIEW_MEAN, GPUF_OVERVIEW_RMS,    GPUF_OVERVIEW_MIN,
    GPUF_OVERVIEW_MAX,  GPUF_OVERVIEW_MINMAX, GPUF_OVERVIEW_FIRST,
};
enum { HOW_COUNT = sizeof(methods) / sizeof(methods[0]) };

/* The same elements on the test's device and on the CPU, along one axis. */
typedef struct row {
  gpuf_tensor device, cpu;
} row;

/* `elements` are kept, not copied. */
static row row_create(void *elements, gpuf_dtype dtype, int64_t count) {
  const int64_t shape[1] = {count};
  const size_t nbytes = (size_t)count * gpuf_dtype_nbytes(dtype);
  void *d_ptr = device_alloc(nbytes);
  row r;
  upload(d_ptr, elements, nbytes);
  CHECK_OK(gpuf_tensor_init(&r.device, d_ptr, test_device, dtype, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&r.cpu, elements, cpu_device, dtype, 1, shape, &err));
  return r;
}

static void row_destroy(row *r) {
  CHECK_OK(gpuf_free(test_device, r->device.data, &err));
}

static double number_of(gpuf_dtype dtype, const void *element) {
  double number;
  gpufi_elements_widen(dtype, element, 0, 1, &number);
  return number;
}

static bool has_nan(gpuf_dtype dtype) {
  return dtype > GPUF_DTYPE_UINT64;
}

/* --- Bits --------------------------------------------------------------------------------- */

/* Cells of one element each: nothing is rounded but a mean of many bits. */
static void check_bits(const row *r, int64_t count) {
  const gpuf_dtype dtype = r->cpu.dtype;
  const size_t nbytes = gpuf_dtype_nbytes(dtype);
  char *got[2], *expected[2];
  for (int i = 0; i < 2; i++) {
    got[i] = calloc((size_t)count, 8);
    expected[i] = calloc((size_t)count, 8);
  }
  for (int h = 0; h < HOW_COUNT; h++) {
    gpuf_counts got_counts = GPUF_COUNTS_INIT, expected_counts = GPUF_COUNTS_INIT;
    CHECK_OK(
        gpuf_reduce_overview(&r->device, methods[h], &count, got[0], got[1], &got_counts, &err));
    CHECK_OK(gpuf_reduce_overview(&r->cpu, methods[h], &count, expected[0], expected[1],
                                  &expected_counts, &err));
    CHECK(memcmp(&got_counts, &expected_counts, sizeof(got_counts)) == 0);
    CHECK(memcmp(got[0], expected[0], (size_t)count * 8) == 0);
    CHECK(memcmp(got[1], expected[1], (size_t)count * 8) == 0);
    const bool is_mean = methods[h] == GPUF_OVERVIEW_MEAN || methods[h] == GPUF_OVERVIEW_RMS;
    for (size_t i = 0; i < (size_t)count && !is_mean && dtype != GPUF_DTYPE_BOOL; i++) {
      const char *element = (const char *)r->cpu.data + i * nbytes;
      const bool nan = isnan(number_of(dtype, element)) && methods[h] != GPUF_OVERVIEW_FIRST;
      CHECK(nan ? isnan(number_of(dtype, got[0] + i * nbytes))
                : memcmp(got[0] + i * nbytes, element, nbytes) == 0);
    }
  }
  for (int i = 0; i < 2; i++) {
    free(got[i]);
    free(expected[i]);
  }
}

/* Every code of the types of one and two bytes, random bits of the others. */
static void a_cell_of_one_element_has_its_bits(void) {
  enum { COUNT = 65536 };
  uint64_t *elements = malloc(COUNT * sizeof(*elements));
  for (int k = 0; k < REAL_DTYPE_COUNT; k++) {
    const size_t nbytes = gpuf_dtype_nbytes(real_dtypes[k]);
    fill_random(elements, COUNT * sizeof(*elements), (uint64_t)k);
    for (int i = 0; i < COUNT && nbytes <= 2; i++) {
      memcpy((char *)elements + (size_t)i * nbytes, &i, nbytes); /* little-endian */
    }
    row r = row_create(elements, real_dtypes[k], COUNT);
    check_bits(&r, COUNT);
    row_destroy(&r);
  }
  free(elements);
}

/* Each type has codes of its own for NaN. */
static void a_cell_of_nothing_but_nan_is_nan_in_every_type(void) {
  enum { PER_CELL = 10, CELLS = 4, COUNT = PER_CELL * CELLS };
  const int64_t cells[1] = {CELLS};
  for (int k = 0; k < REAL_DTYPE_COUNT; k++) {
    const gpuf_dtype dtype = real_dtypes[k];
    const size_t nbytes = gpuf_dtype_nbytes(dtype);
    const int nan_byte = dtype == GPUF_DTYPE_FLOAT8_E4M3B11FNUZ ||
                                 dtype == GPUF_DTYPE_FLOAT8_E4M3FNUZ ||
                                 dtype == GPUF_DTYPE_FLOAT8_E5M2FNUZ
                             ? 0x80
                             : 0xff;
    char elements[COUNT * 8], low[CELLS * 8], high[CELLS * 8];
    gpuf_counts counts = GPUF_COUNTS_INIT;
    if (!has_nan(dtype)) {
      continue;
    }
    for (size_t i = 0; i < COUNT; i++) { /* 0x38.. is finite in every type */
      memset(elements + i * nbytes, i / PER_CELL % 2 == 0 ? nan_byte : 0x38, nbytes);
    }
    row r = row_create(elements, dtype, COUNT);
    for (int h = 0; h < HOW_COUNT; h++) {
      const bool two = methods[h] == GPUF_OVERVIEW_MINMAX;
      const gpuf_dtype result = gpuf_overview_dtype(dtype, methods[h]);
      const size_t step = gpuf_dtype_nbytes(result);
      CHECK_OK(gpuf_reduce_overview(&r.device, methods[h], cells, low, high, &counts, &err));
      CHECK(counts.nan_count == (methods[h] == GPUF_OVERVIEW_FIRST ? CELLS / 2 : COUNT / 2));
      CHECK(counts.posinf_count == 0 && counts.neginf_count == 0);
      for (size_t i = 0; i < CELLS; i++) {
        CHECK((isnan(number_of(result, low + i * step)) != 0) == (i % 2 == 0));
        CHECK(!two || memcmp(low + i * step, high + i * step, step) == 0);
      }
    }
    row_destroy(&r);
  }
}

/* --- The way to the caller ------------------------------------------------------------------ */

/* Memory for a plane: of the pinned pool, or of malloc at an odd address; with a guard behind. */
typedef struct plane {
  char *data;
  void *block;
  size_t nbytes;
  bool pooled;
} plane;

#define GUARD "behind the plane"

static plane plane_create(size_t nbytes, bool pooled) {
  plane p = {.nbytes = nbytes, .pooled = pooled};
  if (pooled) {
    CHECK_OK(gpuf_pool_acquire(test_device, nbytes + sizeof(GUARD), &p.block, &err));
  } else {
    p.block = malloc(1 + nbytes + sizeof(GUARD));
  }
  p.data = (char *)p.block + !pooled;
  memset(p.data, 0x5a, nbytes);
  memcpy(p.data + nbytes, GUARD, sizeof(GUARD));
  return p;
}

static void plane_check_and_destroy(plane *p, const void *expected) {
  CHECK(memcmp(p->data, expected, p->nbytes) == 0);
  CHECK(memcmp(p->data + p->nbytes, GUARD, sizeof(GUARD)) == 0);
  if (p->pooled) {
    gpuf_pool_release(p->block, NULL);
  } else {
    free(p->block);
  }
}

/* Integers of which each is a cell arrive as they were sent. */
static void check_arrival(gpuf_dtype dtype, int64_t count) {
  const size_t nbytes = (size_t)count * gpuf_dtype_nbytes(dtype);
  char *elements = malloc(nbytes);
  fill_random(elements, nbytes, (uint64_t)count);
  row r = row_create(elements, dtype, count);
  for (int pooled = 0; pooled < 2; pooled++) {
    plane low = plane_create(nbytes, pooled), high = plane_create(nbytes, pooled);
    plane first = plane_create(nbytes, pooled);
    CHECK_OK(gpuf_reduce_overview(&r.device, GPUF_OVERVIEW_MINMAX, &count, low.data, high.data,
                                  NULL, &err));
    CHECK_OK(
        gpuf_reduce_overview(&r.device, GPUF_OVERVIEW_FIRST, &count, first.data, NULL, NULL, &err));
    plane_check_and_destroy(&low, elements);
    plane_check_and_destroy(&high, elements);
    plane_check_and_destroy(&first, elements);
  }
  row_destroy(&r);
  free(elements);
}

/* One and two planes, of sizes just below and above what is staged as a whole and a staging buffer;
 * then planes that begin at unaligned addresses. */
static void a_result_of_any_size_arrives_whole(void) {
  const size_t limits[] = {GPUFI_REDUCE_STAGED_NBYTES_MAX, GPUFI_CHANNEL_BUFFER_NBYTES};
  for (int i = 0; i < 2; i++) {
    const int64_t limit_nbytes = (int64_t)(limits[i] - HEAD_NBYTES);
    check_arrival(GPUF_DTYPE_INT8, limit_nbytes / 2);
    check_arrival(GPUF_DTYPE_INT8, limit_nbytes / 2 + 1);
    check_arrival(GPUF_DTYPE_UINT8, limit_nbytes);
    check_arrival(GPUF_DTYPE_UINT8, limit_nbytes + 1);
    check_arrival(GPUF_DTYPE_UINT16, limit_nbytes / 4 + 1);
  }
  check_arrival(GPUF_DTYPE_INT16, 1600001);
  check_arrival(GPUF_DTYPE_INT32, 777777);
  check_arrival(GPUF_DTYPE_UINT64, 300001);
  check_arrival(GPUF_DTYPE_INT8, 1);
}

/* If the device fails on the way, the call fails with its error, and the next call works. */
static void a_result_that_fails_on_its_way_is_an_error(void) {
  enum { COUNT = 3 << 20 };
  const int64_t count = COUNT, limits[] = {0, 100, 1 << 20, 4 << 20};
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  uint8_t *elements = calloc(COUNT, 1), *low = malloc(COUNT), *high = malloc(COUNT);
  test_device = host_device;
  row r = row_create(elements, GPUF_DTYPE_UINT8, COUNT);
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
    faults.copy_fail_after_nbytes = limits[i];
    gpufi_host_faults_set(&faults);
    const gpuf_status status =
        gpuf_reduce_overview(&r.device, GPUF_OVERVIEW_MINMAX, &count, low, high, NULL, &err);
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    CHECK(status == GPUF_ERR_DEVICE && strstr(err.message, "injected"));
    CHECK_OK(gpuf_reduce_overview(&r.device, GPUF_OVERVIEW_MINMAX, &count, low, high, NULL, &err));
    CHECK(memcmp(low, elements, COUNT) == 0 && memcmp(high, elements, COUNT) == 0);
  }
  row_destroy(&r);
  free(elements);
  free(low);
  free(high);
}

int main(void) {
  TEST_ON_DEVICES(a_cell_of_one_element_has_its_bits);
  TEST_ON_DEVICES(a_cell_of_nothing_but_nan_is_nan_in_every_type);
  TEST_ON_DEVICES(a_result_of_any_size_arrives_whole);
  TEST(a_result_that_fails_on_its_way_is_an_error);
  return test_finish();
}
