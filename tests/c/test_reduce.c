#include <gpufetch/reduce.h>
#include <math.h>

#include "backend/elements.h"
#include "backend/host/faults.h"
#include "core/runtime.h"
#include "reductions.h"

/* --- Data and the tensors that hold it ----------------------------------------- */

static bool is_integral(gpuf_dtype dtype) {
  return dtype <= GPUF_DTYPE_UINT64;
}
static bool is_wide_integer(gpuf_dtype dtype) {
  return dtype == GPUF_DTYPE_INT64 || dtype == GPUF_DTYPE_UINT64;
}

/* Random bits for the small types and the integers. For the others, values about 3 in a bell-shaped
 * distribution, with zeros, NaN and infinities among them. */
static void fill_elements(void *dst, gpuf_dtype dtype, int64_t count, uint64_t seed) {
  const size_t element_nbytes = gpuf_dtype_nbytes(dtype);
  uint32_t *random = malloc((size_t)count * sizeof(*random));
  fill_random(random, (size_t)count * sizeof(*random), seed);
  fill_random(dst, (size_t)count * element_nbytes, seed + 1);
  for (int64_t i = 0; i < count; i++) {
    const double odd[4] = {0.0, NAN, INFINITY, -INFINITY};
    double value =
        (random[i] % 1000 + random[i] / 1000 % 1000 + random[i] / 1000000 % 1000) / 500.0;
    if (random[i] % 97 < 4) {
      value = odd[random[i] % 97];
    }
    if (dtype == GPUF_DTYPE_FLOAT32) {
      ((float *)dst)[i] = (float)value;
    } else if (dtype == GPUF_DTYPE_FLOAT64) {
      ((double *)dst)[i] = value;
    } else if (dtype == GPUF_DTYPE_BOOL) {
      ((uint8_t *)dst)[i] &= 1;
    }
  }
  free(random);
}

typedef enum layout {
  LAYOUT_PACKED,
  LAYOUT_BACKWARDS, /* every axis at a negative stride */
  LAYOUT_STEPPED,   /* every second element along the last axis */
  LAYOUT_SWAPPED,   /* the axes' order in memory reversed */
  LAYOUT_PADDED,    /* rows longer by 5 elements than what is seen of them */
  LAYOUT_UNALIGNED, /* at an odd address */
  LAYOUT_REPEATED,  /* stride 0 along the first axis */
  LAYOUT_COUNT,
} layout;

/* The same view of the elements that lie at `data`; *extent_count elements are enough for it. */
static gpuf_tensor view_of(char *data, gpuf_device device, gpuf_dtype dtype, int32_t ndim,
                           const int64_t *shape, layout how, int64_t *extent_count) {
  const int64_t element_nbytes = (int64_t)gpuf_dtype_nbytes(dtype);
  gpuf_tensor t = {.data = data, .device = device, .dtype = dtype, .ndim = ndim};
  int64_t stride = how == LAYOUT_STEPPED ? 2 : 1;
  memcpy(t.shape, shape, (size_t)ndim * sizeof(*shape));
  for (int32_t i = ndim - 1; i >= 0; i--) {
    const int32_t axis = how == LAYOUT_SWAPPED ? ndim - 1 - i : i;
    t.strides_nbytes[axis] = stride * element_nbytes;
    stride *= shape[axis];
    stride += i == ndim - 1 && how == LAYOUT_PADDED ? 5 : 0;
  }
  *extent_count = stride + 1;
  for (int32_t axis = 0; axis < ndim && how == LAYOUT_BACKWARDS; axis++) {
    t.data = (char *)t.data + (shape[axis] - 1) * t.strides_nbytes[axis];
    t.strides_nbytes[axis] *= -1;
  }
  if (how == LAYOUT_UNALIGNED) {
    t.data = (char *)t.data + 1;
  }
  if (how == LAYOUT_REPEATED && ndim > 1) {
    t.strides_nbytes[0] = 0;
  }
  return t;
}

/* Elements on the CPU and the same on the test's device. */
typedef struct pair {
  char *bytes;
  void *d_bytes;
  gpuf_tensor cpu;
  gpuf_tensor device;
} pair;

static pair pair_create(gpuf_dtype dtype, int32_t ndim, const int64_t *shape, layout how,
                        uint64_t seed) {
  pair p;
  int64_t count;
  view_of(NULL, cpu_device, dtype, ndim, shape, how, &count);
  const size_t nbytes = (size_t)count * gpuf_dtype_nbytes(dtype);
  p.bytes = malloc(nbytes);
  fill_elements(p.bytes, dtype, count, seed);
  if (how == LAYOUT_UNALIGNED) {
    memmove(p.bytes + 1, p.bytes, nbytes - 1);
  }
  p.d_bytes = device_alloc(nbytes);
  upload(p.d_bytes, p.bytes, nbytes);
  p.cpu = view_of(p.bytes, cpu_device, dtype, ndim, shape, how, &count);
  p.device = view_of(p.d_bytes, test_device, dtype, ndim, shape, how, &count);
  return p;
}

static void pair_destroy(pair *p) {
  CHECK_OK(gpuf_free(test_device, p->d_bytes, &err));
  free(p->bytes);
}

/* --- A plain reference ------------------------------------------------------------ */

typedef struct reference_cell {
  long double sum, magnitudes, squares;
  int64_t finite_count, usable_count;
  long double min, max; /* long double holds every 64-bit integer */
  const char *first;
} reference_cell;

static long double exact_value(gpuf_dtype dtype, const char *element) {
  double number;
  int64_t i64;
  uint64_t u64;
  if (dtype == GPUF_DTYPE_INT64) {
    memcpy(&i64, element, sizeof(i64));
    return (long double)i64;
  }
  if (dtype == GPUF_DTYPE_UINT64) {
    memcpy(&u64, element, sizeof(u64));
    return (long double)u64;
  }
  gpufi_elements_widen(dtype, element, 0, 1, &number);
  return (long double)number;
}

static void reference_add(reference_cell *cell, gpuf_dtype dtype, const char *element,
                          gpuf_counts *counts) {
  const long double x = exact_value(dtype, element);
  cell->first = cell->first ? cell->first : element;
  counts->count++;
  counts->nan_count += isnan(x) != 0;
  counts->posinf_count += x == INFINITY;
  counts->neginf_count += x == -INFINITY;
  if (isfinite(x)) {
    cell->sum += x;
    cell->magnitudes += fabsl(x);
    cell->squares += x * x;
    cell->finite_count++;
  }
  if (!isnan(x)) {
    cell->min = cell->usable_count == 0 || x < cell->min ? x : cell->min;
    cell->max = cell->usable_count == 0 || x > cell->max ? x : cell->max;
    cell->usable_count++;
  }
}

/* Element by element, in C order. `shape` holds the cells. */
static void reference(const gpuf_tensor *t, const int64_t *shape, reference_cell *cells,
                      gpuf_counts *counts) {
  const int64_t count = gpuf_tensor_count(t);
  *counts = (gpuf_counts)GPUF_COUNTS_INIT;
  for (int64_t i = 0; i < count; i++) {
    const char *element = t->data;
    int64_t rest = i, cell = 0, cell_step = 1;
    for (int32_t axis = t->ndim - 1; axis >= 0; axis--) {
      const int64_t index = rest % t->shape[axis];
      rest /= t->shape[axis];
      element += index * t->strides_nbytes[axis];
      cell += ((index + 1) * shape[axis] - 1) / t->shape[axis] * cell_step;
      cell_step *= shape[axis];
    }
    reference_add(&cells[cell], t->dtype, element, counts);
  }
}

/* --- Comparison -------------------------------------------------------------------- */

static bool same(long double expected, long double actual) {
  return (isnan(expected) && isnan(actual)) || expected == actual;
}

static bool close_to(long double expected, long double actual, long double bound) {
  return (isnan(expected) && isnan(actual)) || fabsl(expected - actual) <= bound;
}

static void check_sums(const reference_cell *cells, int64_t cell_count, gpuf_dtype result_dtype,
                       const char *result, bool rms) {
  const long double rounding = result_dtype == GPUF_DTYPE_FLOAT32 ? 0x1p-24L : 0x1p-53L;
  for (int64_t i = 0; i < cell_count; i++) {
    const long double n = (long double)cells[i].finite_count;
    const long double expected = n == 0 ? NAN
                                 : rms  ? sqrtl(cells[i].squares / n)
                                        : cells[i].sum / n;
    const long double scale = rms ? expected : cells[i].magnitudes / n;
    const long double actual =
        exact_value(result_dtype, result + i * (int64_t)gpuf_dtype_nbytes(result_dtype));
    CHECK(close_to(expected, actual, scale * (n + 2) * 0x1p-53L + fabsl(expected) * rounding));
  }
}

static gpuf_counts counts_of_firsts(const reference_cell *cells, int64_t cell_count,
                                    gpuf_dtype dtype) {
  gpuf_counts counts = {.struct_nbytes = sizeof(counts), .count = (uint64_t)cell_count};
  for (int64_t i = 0; i < cell_count; i++) {
    const long double x = exact_value(dtype, cells[i].first);
    counts.nan_count += isnan(x) != 0;
    counts.posinf_count += x == INFINITY;
    counts.neginf_count += x == -INFINITY;
  }
  return counts;
}

static void check_overviews(const gpuf_tensor *device, const int64_t *shape,
                            const reference_cell *cells, int64_t cell_count,
                            const gpuf_counts *counts) {
  const gpuf_dtype dtype = device->dtype;
  const size_t nbytes = gpuf_dtype_nbytes(dtype);
  char *low = malloc((size_t)cell_count * 8), *high = malloc((size_t)cell_count * 8);
  char *one = malloc((size_t)cell_count * 8);
  const gpuf_counts of_firsts = counts_of_firsts(cells, cell_count, dtype);
  gpuf_counts got = GPUF_COUNTS_INIT;
  CHECK_OK(gpuf_reduce_overview(device, GPUF_OVERVIEW_MEAN, shape, low, NULL, &got, &err));
  CHECK(memcmp(&got, counts, sizeof(got)) == 0);
  check_sums(cells, cell_count, gpuf_overview_dtype(dtype, GPUF_OVERVIEW_MEAN), low, false);
  CHECK_OK(gpuf_reduce_overview(device, GPUF_OVERVIEW_RMS, shape, low, NULL, NULL, &err));
  check_sums(cells, cell_count, gpuf_overview_dtype(dtype, GPUF_OVERVIEW_RMS), low, true);
  CHECK_OK(gpuf_reduce_overview(device, GPUF_OVERVIEW_MINMAX, shape, low, high, &got, &err));
  CHECK(memcmp(&got, counts, sizeof(got)) == 0);
  for (size_t i = 0; i < (size_t)cell_count; i++) {
    const bool none = cells[i].usable_count == 0;
    CHECK(same(none ? NAN : cells[i].min, exact_value(dtype, low + i * nbytes)));
    CHECK(same(none ? NAN : cells[i].max, exact_value(dtype, high + i * nbytes)));
  }
  CHECK_OK(gpuf_reduce_overview(device, GPUF_OVERVIEW_MIN, shape, one, NULL, NULL, &err));
  CHECK(memcmp(one, low, (size_t)cell_count * nbytes) == 0);
  CHECK_OK(gpuf_reduce_overview(device, GPUF_OVERVIEW_MAX, shape, one, NULL, NULL, &err));
  CHECK(memcmp(one, high, (size_t)cell_count * nbytes) == 0);
  CHECK_OK(gpuf_reduce_overview(device, GPUF_OVERVIEW_FIRST, shape, low, NULL, &got, &err));
  CHECK(memcmp(&got, &of_firsts, sizeof(got)) == 0);
  for (size_t i = 0; i < (size_t)cell_count; i++) {
    CHECK(memcmp(low + i * nbytes, cells[i].first, nbytes) == 0);
  }
  free(low);
  free(high);
  free(one);
}

static void run_overviews(gpuf_dtype dtype, int32_t ndim, const int64_t *shape,
                          const int64_t *cells_shape, layout how, uint64_t seed) {
  int64_t cell_count = 1;
  gpuf_counts counts = GPUF_COUNTS_INIT;
  for (int32_t axis = 0; axis < ndim; axis++) {
    cell_count *= cells_shape[axis];
  }
  pair p = pair_create(dtype, ndim, shape, how, seed);
  reference_cell *cells = calloc((size_t)cell_count, sizeof(*cells));
  reference(&p.cpu, cells_shape, cells, &counts);
  check_overviews(&p.device, cells_shape, cells, cell_count, &counts);
  if (test_device.kind == GPUF_DEVICE_HOST) {
    check_overviews(&p.cpu, cells_shape, cells, cell_count, &counts);
  }
  free(cells);
  pair_destroy(&p);
}

/* --- Overviews ----------------------------------------------------------------------- */

/* Narrow and wide cells, uneven ones, one axis and several, of every type. */
static void an_overview_agrees_with_a_plain_loop(void) {
  const struct {
    int32_t ndim;
    int64_t shape[3], cells[3];
  } cases[] = {
      {1, {70001}, {7}},
      {1, {20000}, {2000}},
      {1, {1 << 15}, {1 << 15}},
      {2, {64, 96}, {8, 8}},
      {2, {101, 203}, {10, 13}},
      {2, {3, 20000}, {2, 3}},
      {2, {9000, 3}, {11, 2}},
      {2, {40, 5000}, {1, 1}},
      {3, {16, 32, 48}, {1, 32, 48}},
      {3, {20, 24, 40}, {7, 5, 9}},
      {3, {5, 7, 3001}, {5, 2, 1}},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    for (int k = (int)i % test_every(); k < REAL_DTYPE_COUNT; k += test_every()) {
      run_overviews(real_dtypes[k], cases[i].ndim, cases[i].shape, cases[i].cells, LAYOUT_PACKED,
                    100 * i + (size_t)k);
    }
  }
}

static void an_overview_of_any_layout_is_the_same(void) {
  const int64_t shape[3] = {18, 25, 64}, cells[3] = {4, 3, 10};
  const int64_t long_shape[2] = {3, 9001}, long_cells[2] = {3, 2};
  const gpuf_dtype dtypes[] = {GPUF_DTYPE_INT8, GPUF_DTYPE_BFLOAT16, GPUF_DTYPE_FLOAT32,
                               GPUF_DTYPE_FLOAT64, GPUF_DTYPE_INT64};
  for (int how = 0; how < LAYOUT_COUNT; how++) {
    for (size_t i = (size_t)(how % TEST_OR_LESS(1, 5)); i < sizeof(dtypes) / sizeof(dtypes[0]);
         i += TEST_OR_LESS(1, 5)) {
      run_overviews(dtypes[i], 3, shape, cells, (layout)how, 31 + i);
      run_overviews(dtypes[i], 2, long_shape, long_cells, (layout)how, 47 + i);
    }
  }
}

/* Few cells of many rows, or of one very long row: a GPU uses several thread blocks for each. */
static void a_large_cell_is_counted_once(void) {
  const int64_t tall[2] = {TEST_OR_LESS(100000, 20000), 20}, tall_cells[2] = {3, 4};
  const int64_t wide[2] = {2, TEST_OR_LESS(2000003, 100003)}, wide_cells[2] = {1, 3};
  run_overviews(GPUF_DTYPE_FLOAT32, 2, tall, tall_cells, LAYOUT_PACKED, 5);
  run_overviews(GPUF_DTYPE_UINT8, 2, tall, tall_cells, LAYOUT_PADDED, 6);
  run_overviews(GPUF_DTYPE_FLOAT32, 2, wide, wide_cells, LAYOUT_PACKED, 7);
  run_overviews(GPUF_DTYPE_FLOAT16, 2, wide, wide_cells, LAYOUT_STEPPED, 8);
}

/* More cells than one piece on its way to the host holds. */
static void a_large_overview_arrives_whole(void) {
  const int64_t shape[2] = {TEST_OR_LESS(1200, 600), TEST_OR_LESS(1900, 950)};
  const int64_t cells[2] = {600, 950};
  run_overviews(GPUF_DTYPE_FLOAT32, 2, shape, cells, LAYOUT_PACKED, 9);
}

static void an_overview_of_random_shapes_agrees(void) {
  uint64_t state = 77;
  for (int i = 0; i < 120; i += test_every()) {
    int64_t shape[5], cells[5];
    const int32_t ndim = (int32_t)random_below(&state, 6);
    for (int32_t axis = 0; axis < ndim; axis++) {
      shape[axis] = 1 + (int64_t)random_below(&state, ndim == 1 ? 5000 : ndim == 2 ? 200 : 13);
      cells[axis] = 1 + (int64_t)random_below(&state, (uint64_t)shape[axis]);
    }
    run_overviews(real_dtypes[random_below(&state, REAL_DTYPE_COUNT)], ndim, shape, cells,
                  (layout)random_below(&state, LAYOUT_COUNT), state);
  }
}

static void a_cell_of_nothing_but_nan_is_nan(void) {
  const float values[6] = {NAN, NAN, INFINITY, -INFINITY, 2.0f, NAN};
  const int64_t shape[1] = {6}, cells[1] = {3};
  float low[3], high[3];
  gpuf_counts counts = GPUF_COUNTS_INIT;
  gpuf_tensor t;
  void *d_ptr = device_alloc(sizeof(values));
  upload(d_ptr, values, sizeof(values));
  CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MEAN, cells, low, NULL, &counts, &err));
  CHECK(isnan(low[0]) && isnan(low[1]) && low[2] == 2.0f);
  CHECK(counts.count == 6 && counts.nan_count == 3 && counts.posinf_count == 1 &&
        counts.neginf_count == 1);
  CHECK_OK(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MINMAX, cells, low, high, NULL, &err));
  CHECK(isnan(low[0]) && isnan(high[0]));
  CHECK(low[1] == -INFINITY && high[1] == INFINITY && low[2] == 2.0f && high[2] == 2.0f);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

/* float32 would not tell these from their neighbours. */
static void averages_of_large_integers_keep_their_differences(void) {
  const uint32_t values[4] = {4000000001, 4000000002, UINT32_MAX, UINT32_MAX};
  const double means[2][2] = {{4000000001.5, UINT32_MAX}, {-294967294.5, -1}};
  const int64_t shape[1] = {4}, cells[1] = {2};
  void *d_ptr = device_alloc(sizeof(values));
  upload(d_ptr, values, sizeof(values));
  for (int k = 0; k < 2; k++) {
    double found[2];
    gpuf_tensor t;
    CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, k ? GPUF_DTYPE_INT32 : GPUF_DTYPE_UINT32, 1,
                              shape, &err));
    CHECK(gpuf_overview_dtype(t.dtype, GPUF_OVERVIEW_MEAN) == GPUF_DTYPE_FLOAT64);
    CHECK_OK(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MEAN, cells, found, NULL, NULL, &err));
    CHECK(found[0] == means[k][0] && found[1] == means[k][1]);
  }
  CHECK(gpuf_overview_dtype(GPUF_DTYPE_UINT16, GPUF_OVERVIEW_RMS) == GPUF_DTYPE_FLOAT32);
  CHECK(gpuf_overview_dtype(GPUF_DTYPE_FLOAT32, GPUF_OVERVIEW_RMS) == GPUF_DTYPE_FLOAT32);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void an_empty_tensor_has_an_empty_overview(void) {
  const int64_t shape[2] = {0, 5}, cells[2] = {0, 2};
  gpuf_tensor t;
  gpuf_counts counts = GPUF_COUNTS_INIT;
  gpuf_stats stats = GPUF_STATS_INIT;
  uint64_t bins[2];
  double edges[3];
  char none;
  CHECK_OK(gpuf_tensor_init(&t, NULL, test_device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  CHECK_OK(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MIN, cells, &none, NULL, &counts, &err));
  CHECK(counts.count == 0);
  CHECK_OK(gpuf_reduce_stats(&t, &stats, &err));
  CHECK(stats.count == 0 && isnan(stats.min.f64) && isnan(stats.mean));
  CHECK_OK(gpuf_reduce_histogram(&t, 2, NULL, bins, edges, NULL, &err));
  CHECK(bins[0] == 0 && bins[1] == 0 && edges[0] == 0.0 && edges[1] == 0.5 && edges[2] == 1.0);
}

/* --- Statistics ------------------------------------------------------------------------ */

static long double scalar_value(gpuf_dtype dtype, gpuf_scalar s) {
  if (!is_integral(dtype)) {
    return (long double)s.f64;
  }
  return dtype <= GPUF_DTYPE_INT64 && dtype != GPUF_DTYPE_BOOL ? (long double)s.i64
                                                               : (long double)s.u64;
}

/* Two passes, in long double. */
static void reference_variance(const gpuf_tensor *t, long double mean, long double *m2,
                               uint64_t *zeros) {
  gpuf_tensor packed;
  char *elements = malloc(gpuf_tensor_nbytes(t) + 1);
  CHECK_OK(gpuf_tensor_init(&packed, elements, cpu_device, t->dtype, t->ndim, t->shape, &err));
  CHECK_OK(gpuf_copy(&packed, t, NULL, &err));
  *m2 = 0;
  *zeros = 0;
  for (int64_t i = 0; i < gpuf_tensor_count(t); i++) {
    const long double x =
        exact_value(t->dtype, elements + i * (int64_t)gpuf_dtype_nbytes(t->dtype));
    *m2 += isfinite(x) ? (x - mean) * (x - mean) : 0;
    *zeros += x == 0;
  }
  free(elements);
}

static void check_stats(const gpuf_tensor *t, const gpuf_tensor *on_cpu) {
  const int64_t one_cell[5] = {1, 1, 1, 1, 1};
  reference_cell cell = {0};
  gpuf_counts counts = GPUF_COUNTS_INIT;
  gpuf_stats stats = GPUF_STATS_INIT;
  long double m2;
  uint64_t zeros;
  reference(on_cpu, one_cell, &cell, &counts);
  CHECK_OK(gpuf_reduce_stats(t, &stats, &err));
  const long double n = (long double)cell.finite_count, mean = cell.sum / n;
  reference_variance(on_cpu, mean, &m2, &zeros);
  const long double variance = m2 / n;
  CHECK(counts.count == stats.count && counts.nan_count == stats.nan_count);
  CHECK(counts.posinf_count == stats.posinf_count && counts.neginf_count == stats.neginf_count);
  CHECK(stats.finite_count == (uint64_t)cell.finite_count && stats.zero_count == zeros);
  if (cell.usable_count > 0) {
    CHECK(same(cell.min, scalar_value(t->dtype, stats.min)));
    CHECK(same(cell.max, scalar_value(t->dtype, stats.max)));
  }
  /* A 64-bit integer is rounded before it is added. */
  const long double rounding = is_wide_integer(t->dtype) ? 0x1p-52L : 0;
  CHECK(close_to(mean, stats.mean, (1e-12L + rounding) * cell.magnitudes / n));
  CHECK(close_to(variance, stats.variance,
                 1e-11L * (variance + fabsl(mean) * sqrtl(variance)) + rounding * variance));
}

static void statistics_agree_with_a_plain_loop(void) {
  const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {1, 1, 100003}, {40, 30, 500}, {4000, 30, 1}};
  for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
    for (int k = (int)i % test_every(); k < REAL_DTYPE_COUNT; k += test_every()) {
      pair p = pair_create(real_dtypes[k], 3, shapes[i], (layout)((i + (size_t)k) % LAYOUT_COUNT),
                           200 * i + (size_t)k);
      check_stats(&p.device, &p.cpu);
      check_stats(&p.cpu, &p.cpu);
      pair_destroy(&p);
    }
  }
}

/* A sum of squares would lose every digit of this variance. */
static void a_small_variance_round_a_large_mean_survives(void) {
  enum { COUNT = 300000 };
  double *values = malloc(COUNT * sizeof(*values));
  const int64_t shape[1] = {COUNT};
  gpuf_tensor t;
  gpuf_stats stats = GPUF_STATS_INIT;
  void *d_ptr = device_alloc(COUNT * sizeof(*values));
  for (int i = 0; i < COUNT; i++) {
    values[i] = 1e9 + (i % 2 == 0 ? 0.25 : -0.25);
  }
  upload(d_ptr, values, COUNT * sizeof(*values));
  CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_FLOAT64, 1, shape, &err));
  CHECK_OK(gpuf_reduce_stats(&t, &stats, &err));
  CHECK(fabs(stats.mean - 1e9) <= 1e-3 && fabs(stats.variance - 0.0625) <= 0.0625 * 0.04);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  free(values);
}

/* The square of these values is infinite. */
static void the_variance_of_huge_equal_values_is_zero(void) {
  enum { COUNT = 5000 };
  double values[COUNT];
  const int64_t shape[1] = {COUNT};
  gpuf_tensor t;
  gpuf_stats stats = GPUF_STATS_INIT;
  void *d_ptr = device_alloc(sizeof(values));
  for (int i = 0; i < COUNT; i++) {
    values[i] = 0x1p700;
  }
  upload(d_ptr, values, sizeof(values));
  CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_FLOAT64, 1, shape, &err));
  CHECK_OK(gpuf_reduce_stats(&t, &stats, &err));
  CHECK(stats.mean == 0x1p700 && stats.variance == 0.0);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void statistics_are_the_same_at_every_run(void) {
  const int64_t shape[2] = {TEST_OR_LESS(3000, 300), 401};
  pair p = pair_create(GPUF_DTYPE_FLOAT32, 2, shape, LAYOUT_PACKED, 3);
  gpuf_stats first = GPUF_STATS_INIT, again = GPUF_STATS_INIT;
  CHECK_OK(gpuf_reduce_stats(&p.device, &first, &err));
  for (int i = 0; i < 5; i++) {
    CHECK_OK(gpuf_reduce_stats(&p.device, &again, &err));
    CHECK(first.mean == again.mean && first.variance == again.variance);
    CHECK(first.finite_count == again.finite_count && first.zero_count == again.zero_count);
  }
  pair_destroy(&p);
}

/* --- Histograms -------------------------------------------------------------------------- */

static void check_histogram(const gpuf_tensor *t, const gpuf_tensor *on_cpu, int64_t bin_count,
                            const double *range) {
  uint64_t *bins = malloc((size_t)bin_count * 8), *expected = calloc((size_t)bin_count, 8);
  double *edges = malloc(((size_t)bin_count + 1) * 8);
  gpuf_histogram_rest rest = GPUF_HISTOGRAM_REST_INIT, expected_rest = GPUF_HISTOGRAM_REST_INIT;
  CHECK_OK(gpuf_reduce_histogram(t, bin_count, range, bins, edges, &rest, &err));
  for (int64_t i = 0; i < gpuf_tensor_count(on_cpu); i++) {
    const char *element = on_cpu->data;
    int64_t rest_index = i, bin = 0;
    double x;
    for (int32_t axis = on_cpu->ndim - 1; axis >= 0; axis--) {
      element += rest_index % on_cpu->shape[axis] * on_cpu->strides_nbytes[axis];
      rest_index /= on_cpu->shape[axis];
    }
    gpufi_elements_widen(t->dtype, element, 0, 1, &x);
    while (bin < bin_count - 1 && x >= edges[bin + 1]) {
      bin++;
    }
    expected_rest.nan_count += isnan(x) != 0;
    expected_rest.under_count += x < edges[0];
    expected_rest.over_count += x > edges[bin_count];
    expected[bin] += x >= edges[0] && x <= edges[bin_count];
  }
  CHECK(memcmp(&rest, &expected_rest, sizeof(rest)) == 0);
  CHECK(memcmp(bins, expected, (size_t)bin_count * 8) == 0);
  free(bins);
  free(expected);
  free(edges);
}

/* Bins few and many: a GPU keeps them in several ways. */
static void a_histogram_agrees_with_a_plain_loop(void) {
  const int64_t shape[2] = {70, 83}, bin_counts[] = {1, 10, 300, 3000, 20000};
  const double range[2] = {0.5, 4.25};
  for (int i = 0; i < 5; i++) {
    for (int k = (int)i % test_every(); k < REAL_DTYPE_COUNT; k += test_every()) {
      pair p = pair_create(real_dtypes[k], 2, shape, (layout)((i + k) % LAYOUT_COUNT),
                           300 * (uint64_t)i + (uint64_t)k);
      check_histogram(&p.device, &p.cpu, bin_counts[i], range);
      if (bin_counts[i] <= 300 && real_dtypes[k] != GPUF_DTYPE_BFLOAT16) {
        check_histogram(&p.device, &p.cpu, bin_counts[i], NULL);
      }
      pair_destroy(&p);
    }
  }
}

static void a_large_histogram_counts_every_element(void) {
  const int64_t shape[1] = {TEST_OR_LESS(3000017, 300017)};
  pair p = pair_create(GPUF_DTYPE_FLOAT32, 1, shape, LAYOUT_PACKED, 8);
  check_histogram(&p.device, &p.cpu, 64, NULL);
  pair_destroy(&p);
}

/* A GPU guesses a float's bin in float arithmetic: values on the edges, next to them, and of so
 * narrow a range that the guess is off by many bins. */
static void a_value_next_to_an_edge_falls_on_its_side(void) {
  const double ranges[][2] = {{0.0, 1.0}, {1e6, 1e6 + 8.0}, {-3.0, 1e-3}, {-1e30, 1e30}};
  enum { BINS = 100, PER_EDGE = 5, COUNT = PER_EDGE * (BINS + 1) };
  for (int r = 0; r < 4; r++) {
    const int64_t shape[1] = {COUNT};
    float values[COUNT];
    gpuf_tensor t, on_cpu;
    for (int i = 0; i < COUNT; i++) {
      const double step = (ranges[r][1] - ranges[r][0]) / BINS;
      float value = (float)(ranges[r][0] + i / PER_EDGE * step);
      for (int k = i % PER_EDGE; k != 2; k += k < 2 ? 1 : -1) {
        value = nextafterf(value, k < 2 ? -INFINITY : INFINITY);
      }
      values[i] = value;
    }
    void *d_ptr = device_alloc(sizeof(values));
    upload(d_ptr, values, sizeof(values));
    CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
    CHECK_OK(gpuf_tensor_init(&on_cpu, values, (gpuf_device){GPUF_DEVICE_CPU, 0},
                              GPUF_DTYPE_FLOAT32, 1, shape, &err));
    check_histogram(&t, &on_cpu, BINS, ranges[r]);
    CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  }
}

static void a_range_of_one_value_is_widened(void) {
  const float values[3] = {4.0f, 4.0f, 4.0f};
  const int64_t shape[1] = {3};
  uint64_t bins[2];
  double edges[3];
  gpuf_tensor t;
  void *d_ptr = device_alloc(sizeof(values));
  upload(d_ptr, values, sizeof(values));
  CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_reduce_histogram(&t, 2, NULL, bins, edges, NULL, &err));
  CHECK(edges[0] == 3.5 && edges[2] == 4.5 && bins[0] == 0 && bins[1] == 3);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

/* --- Order and bad input ------------------------------------------------------------------- */

/* The copy to the device is still in flight on the tensor's stream when the reduction is called. */
static void a_reduction_waits_for_the_producer(void) {
  enum { COUNT = 16 << 20 };
  const int64_t shape[1] = {COUNT}, cells[1] = {1};
  gpufi_host_faults slow = GPUFI_HOST_FAULTS_NONE;
  const gpufi_backend *backend;
  gpuf_tensor t;
  gpuf_stream stream;
  int32_t high;
  void *pinned, *d_ptr = device_alloc(COUNT * sizeof(int32_t));
  CHECK_OK(gpufi_backend_for(test_device, &backend, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, COUNT * sizeof(int32_t), &pinned, &err));
  for (int i = 0; i < COUNT; i++) {
    ((int32_t *)pinned)[i] = i;
  }
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_INT32, 1, shape, &err));
  t.stream = stream;
  slow.latency_ns = 20000000;
  gpufi_host_faults_set(&slow);
  CHECK_OK(backend->copy(test_device.index, d_ptr, pinned, COUNT * sizeof(int32_t), GPUFI_TO_DEVICE,
                         stream, &err));
  const gpuf_status status =
      gpuf_reduce_overview(&t, GPUF_OVERVIEW_MAX, cells, &high, NULL, NULL, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK_OK(status);
  CHECK(high == COUNT - 1);
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  gpuf_pool_release(pinned, NULL);
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void arguments_that_do_not_fit_are_refused(void) {
  const int64_t shape[2] = {4, 6}, too_long[2] = {4, 7}, none[2] = {0, 6}, good[2] = {2, 2};
  const double backwards[2] = {2.0, 1.0}, endless[2] = {0.0, INFINITY};
  const double narrow[2] = {1.0, nextafter(1.0, 2.0)};
  float values[24] = {0}, result[24];
  uint64_t bins[8];
  gpuf_stats stats = GPUF_STATS_INIT;
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, values, cpu_device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  CHECK_FAILS(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MEAN, too_long, result, NULL, NULL, &err),
              GPUF_ERR_INVALID, "shape[1] is 7");
  CHECK_FAILS(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MEAN, none, result, NULL, NULL, &err),
              GPUF_ERR_INVALID, "shape[0] is 0");
  CHECK_FAILS(gpuf_reduce_overview(&t, (gpuf_overview_method)9, good, result, NULL, NULL, &err),
              GPUF_ERR_INVALID, "9");
  CHECK_FAILS(gpuf_reduce_overview(&t, GPUF_OVERVIEW_MINMAX, good, result, NULL, NULL, &err),
              GPUF_ERR_INVALID, "result_max");
  CHECK_FAILS(gpuf_reduce_histogram(&t, 0, NULL, bins, NULL, NULL, &err), GPUF_ERR_INVALID,
              "0 bins");
  CHECK_FAILS(gpuf_reduce_histogram(&t, 8, backwards, bins, NULL, NULL, &err), GPUF_ERR_INVALID,
              "range");
  CHECK_FAILS(gpuf_reduce_histogram(&t, 8, endless, bins, NULL, NULL, &err), GPUF_ERR_INVALID,
              "range");
  CHECK_FAILS(gpuf_reduce_histogram(&t, 8, narrow, bins, NULL, NULL, &err), GPUF_ERR_INVALID,
              "apart");
  t.dtype = GPUF_DTYPE_COMPLEX64;
  t.shape[1] = 3;
  CHECK_FAILS(gpuf_reduce_stats(&t, &stats, &err), GPUF_ERR_UNSUPPORTED, "x.real");
}

static void freed_memory_is_an_error_on_the_host_backend(void) {
  const int64_t shape[1] = {1000};
  gpuf_tensor t;
  gpuf_stats stats = GPUF_STATS_INIT;
  void *d_ptr;
  test_device = host_device;
  d_ptr = device_alloc(4000);
  CHECK_OK(gpuf_tensor_init(&t, d_ptr, test_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
  CHECK_FAILS(gpuf_reduce_stats(&t, &stats, &err), GPUF_ERR_DEVICE, "live allocation");
}

int main(void) {
  TEST_ON_DEVICES(an_overview_agrees_with_a_plain_loop);
  TEST_ON_DEVICES(an_overview_of_any_layout_is_the_same);
  TEST_ON_DEVICES(a_large_cell_is_counted_once);
  TEST_ON_DEVICES(a_large_overview_arrives_whole);
  TEST_ON_DEVICES(an_overview_of_random_shapes_agrees);
  TEST_ON_DEVICES(a_cell_of_nothing_but_nan_is_nan);
  TEST_ON_DEVICES(averages_of_large_integers_keep_their_differences);
  TEST_ON_DEVICES(an_empty_tensor_has_an_empty_overview);
  TEST_ON_DEVICES(statistics_agree_with_a_plain_loop);
  TEST_ON_DEVICES(a_small_variance_round_a_large_mean_survives);
  TEST_ON_DEVICES(the_variance_of_huge_equal_values_is_zero);
  TEST_ON_DEVICES(statistics_are_the_same_at_every_run);
  TEST_ON_DEVICES(a_histogram_agrees_with_a_plain_loop);
  TEST_ON_DEVICES(a_large_histogram_counts_every_element);
  TEST_ON_DEVICES(a_value_next_to_an_edge_falls_on_its_side);
  TEST_ON_DEVICES(a_range_of_one_value_is_widened);
  TEST_ON_DEVICES(a_reduction_waits_for_the_producer);
  TEST(arguments_that_do_not_fit_are_refused);
  TEST(freed_memory_is_an_error_on_the_host_backend);
  return test_finish();
}
