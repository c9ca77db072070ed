/* The public reductions: checking, and finishing what the backends accumulate. */
#include "core/reduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/elements.h"
#include "core/error.h"

static gpuf_status check_source(const gpuf_tensor *src, gpuf_error *err) {
  const gpuf_status status = gpuf_tensor_check(src, err);
  if (status == GPUF_OK &&
      (src->dtype == GPUF_DTYPE_COMPLEX64 || src->dtype == GPUF_DTYPE_COMPLEX128)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "%s has no order to reduce by; reduce its real and imaginary parts (x.real, "
                      "x.imag)",
                      gpuf_dtype_name(src->dtype));
  }
  return status;
}

static bool is_signed(gpuf_dtype dtype) {
  return dtype >= GPUF_DTYPE_INT8 && dtype <= GPUF_DTYPE_INT64;
}
static bool is_integral(gpuf_dtype dtype) {
  return dtype <= GPUF_DTYPE_UINT64;
}

/* --- Overview -------------------------------------------------------------- */

gpuf_dtype gpuf_overview_dtype(gpuf_dtype dtype, gpuf_overview_how how) {
  if (how != GPUF_OVERVIEW_MEAN && how != GPUF_OVERVIEW_RMS) {
    return dtype;
  }
  return gpuf_dtype_nbytes(dtype) == 8 ? GPUF_DTYPE_FLOAT64 : GPUF_DTYPE_FLOAT32;
}

typedef struct overview {
  gpuf_overview_how how;
  gpuf_dtype dtype; /* of the source */
  gpuf_dtype result_dtype;
  size_t cell_nbytes;   /* as the backend leaves it */
  size_t result_nbytes; /* of one cell */
  char *result;
  char *result_max;
  gpuf_counts counts;
} overview;

static void overview_head(void *context, const gpufi_reduce_head *head) {
  overview *o = context;
  o->counts.nan_count = head->nan_count;
  o->counts.neginf_count = head->low_count;
  o->counts.posinf_count = head->high_count;
}

/* Cells are finished so many at a time, so that each step is one plain loop. */
#define BATCH 512

static void finish_sums(overview *o, const gpufi_reduce_sum *cells, int64_t count, char *to) {
  double numbers[BATCH];
  for (int64_t i = 0; i < count; i++) {
    numbers[i] = cells[i].count > 0 ? cells[i].sum / (double)cells[i].count : NAN;
  }
  for (int64_t i = 0; i < count && o->how == GPUF_OVERVIEW_RMS; i++) {
    numbers[i] = sqrt(numbers[i]);
  }
  gpufi_elements_narrow(o->result_dtype, numbers, count, to);
}

static void finish_extreme(const overview *o, const gpufi_reduce_extremes *cells, int64_t count,
                           bool high, char *to) {
  double numbers[BATCH];
  if (gpufi_reduce_is_keyed(o->dtype)) {
    for (int64_t i = 0; i < count; i++) {
      const uint64_t key = high ? cells[i].high.key : cells[i].low.key;
      const uint64_t bits = key ^ gpufi_reduce_key_flip(o->dtype);
      memcpy(to + (size_t)i * sizeof(bits), &bits, sizeof(bits));
    }
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const double low = cells[i].low.number, top = cells[i].high.number;
    const double number = high ? top : low;
    numbers[i] = low > top ? NAN : number;
  }
  gpufi_elements_narrow(o->dtype, numbers, count, to);
}

static void finish_first(overview *o, const char *cells, int64_t count, char *to) {
  double numbers[BATCH];
  memcpy(to, cells, (size_t)count * o->result_nbytes);
  if (is_integral(o->dtype)) {
    return;
  }
  gpufi_elements_widen(o->dtype, cells, (int64_t)o->result_nbytes, count, numbers);
  for (int64_t i = 0; i < count; i++) {
    o->counts.nan_count += isnan(numbers[i]);
    o->counts.posinf_count += numbers[i] == INFINITY;
    o->counts.neginf_count += numbers[i] == -INFINITY;
  }
}

/* At most BATCH cells, to `offset` bytes into the result. */
static void finish_batch(overview *o, const void *cells, int64_t count, size_t offset) {
  switch (o->how) {
  case GPUF_OVERVIEW_MEAN:
  case GPUF_OVERVIEW_RMS:
    finish_sums(o, cells, count, o->result + offset);
    break;
  case GPUF_OVERVIEW_MINMAX:
    finish_extreme(o, cells, count, true, o->result_max + offset);
    finish_extreme(o, cells, count, false, o->result + offset);
    break;
  case GPUF_OVERVIEW_MIN:
  case GPUF_OVERVIEW_MAX:
    finish_extreme(o, cells, count, o->how == GPUF_OVERVIEW_MAX, o->result + offset);
    break;
  case GPUF_OVERVIEW_FIRST:
    finish_first(o, cells, count, o->result + offset);
    break;
  }
}

static void overview_cells(void *context, const void *cells, int64_t first, int64_t count) {
  overview *o = context;
  const char *from = cells;
  for (int64_t done = 0; done < count; done += BATCH) {
    const int64_t batch = count - done < BATCH ? count - done : BATCH;
    finish_batch(o, from + (size_t)done * o->cell_nbytes, batch,
                 (size_t)(first + done) * o->result_nbytes);
  }
}

static gpuf_status check_cells(const gpuf_tensor *src, const int64_t *shape, int64_t *cell_count,
                               gpuf_error *err) {
  *cell_count = 1;
  for (int32_t axis = 0; axis < src->ndim; axis++) {
    const int64_t length = src->shape[axis];
    if (shape[axis] > length || shape[axis] < (length > 0)) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the overview's shape[%" PRId32 "] is %" PRId64 "; it must be %d to the "
                        "tensor's length, %" PRId64,
                        axis, shape[axis], length > 0, length);
    }
  }
  for (int32_t axis = 0; axis < src->ndim; axis++) {
    if (shape[axis] == 0) {
      *cell_count = 0;
      return GPUF_OK;
    }
    if (*cell_count > GPUF_OVERVIEW_CELLS_MAX / shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the overview has more than %" PRId64
                        " cells; ask for a smaller shape, or fetch the elements",
                        GPUF_OVERVIEW_CELLS_MAX);
    }
    *cell_count *= shape[axis];
  }
  return GPUF_OK;
}

static gpuf_status check_overview(const gpuf_tensor *src, gpuf_overview_how how, const void *result,
                                  const void *result_max, gpuf_error *err) {
  const gpuf_status status = check_source(src, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (how < GPUF_OVERVIEW_MEAN || how > GPUF_OVERVIEW_FIRST) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%d is no value of gpuf_overview_how", (int)how);
  }
  if (!result || (how == GPUF_OVERVIEW_MINMAX && !result_max)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is NULL; give it room for the cells",
                      result ? "result_max" : "result");
  }
  return GPUF_OK;
}

static gpufi_reduce_kind overview_kind(gpuf_overview_how how) {
  switch (how) {
  case GPUF_OVERVIEW_MEAN:
    return GPUFI_REDUCE_SUM;
  case GPUF_OVERVIEW_RMS:
    return GPUFI_REDUCE_SQUARES;
  case GPUF_OVERVIEW_FIRST:
    return GPUFI_REDUCE_FIRST;
  default:
    return GPUFI_REDUCE_EXTREMES;
  }
}

gpuf_status gpuf_reduce_overview(const gpuf_tensor *src, gpuf_overview_how how,
                                 const int64_t *shape, void *result, void *result_max,
                                 gpuf_counts *counts, gpuf_error *err) {
  int64_t cell_count;
  gpuf_status status = check_overview(src, how, result, result_max, err);
  if (status == GPUF_OK) {
    status = check_cells(src, shape, &cell_count, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  overview o = {.how = how,
                .dtype = src->dtype,
                .result_dtype = gpuf_overview_dtype(src->dtype, how),
                .result = result,
                .result_max = result_max};
  o.result_nbytes = gpuf_dtype_nbytes(o.result_dtype);
  if (cell_count > 0) {
    const int64_t no_axes[1] = {1};
    const gpufi_reduce_sink sink = {overview_head, overview_cells, &o};
    const char *base;
    gpufi_reduce job = {.kind = overview_kind(how)};
    gpufi_reduce_plan(&job, src, src->ndim > 0 ? shape : no_axes, &base);
    o.cell_nbytes = gpufi_reduce_cell_nbytes(&job);
    status = gpufi_reduce_run(&job, src, base, NULL, &sink, err);
    o.counts.count = (uint64_t)(how == GPUF_OVERVIEW_FIRST ? cell_count : gpuf_tensor_count(src));
  }
  if (status == GPUF_OK && counts) {
    *counts = o.counts;
  }
  return status;
}

/* --- Statistics ------------------------------------------------------------ */

static void no_head(void *context, const gpufi_reduce_head *head) {}

static void keep_stats(void *context, const void *cells, int64_t first, int64_t count) {
  memcpy(context, cells, sizeof(gpufi_reduce_stats));
}

static gpuf_scalar scalar_of(gpuf_dtype dtype, gpufi_reduce_number value) {
  if (gpufi_reduce_is_keyed(dtype)) {
    return (gpuf_scalar){.u64 = value.key ^ gpufi_reduce_key_flip(dtype)};
  }
  if (!is_integral(dtype)) {
    return (gpuf_scalar){.f64 = value.number};
  }
  return is_signed(dtype) ? (gpuf_scalar){.i64 = (int64_t)value.number}
                          : (gpuf_scalar){.u64 = (uint64_t)value.number};
}

static gpuf_stats stats_of_none(gpuf_dtype dtype) {
  gpuf_stats stats = {.mean = NAN, .variance = NAN};
  if (!is_integral(dtype)) {
    stats.min.f64 = stats.max.f64 = stats.finite_min.f64 = stats.finite_max.f64 = NAN;
  }
  return stats;
}

static gpuf_stats stats_from(gpuf_dtype dtype, const gpufi_reduce_stats *raw) {
  gpuf_stats stats = stats_of_none(dtype);
  stats.finite_count = raw->finite_count;
  stats.zero_count = raw->zero_count;
  stats.counts.nan_count = raw->nan_count;
  stats.counts.neginf_count = raw->low_count;
  stats.counts.posinf_count = raw->high_count;
  stats.counts.count = raw->finite_count + raw->nan_count + raw->low_count + raw->high_count;
  if (raw->finite_count > 0) {
    stats.finite_min = stats.min = scalar_of(dtype, raw->extremes.low);
    stats.finite_max = stats.max = scalar_of(dtype, raw->extremes.high);
    stats.mean = raw->mean;
    stats.variance = raw->m2 / (double)raw->finite_count;
  }
  if (raw->high_count > 0) {
    stats.max.f64 = INFINITY;
    stats.min.f64 = raw->finite_count > 0 ? stats.min.f64 : INFINITY;
  }
  if (raw->low_count > 0) {
    stats.min.f64 = -INFINITY;
    stats.max.f64 = raw->finite_count + raw->high_count > 0 ? stats.max.f64 : -INFINITY;
  }
  return stats;
}

gpuf_status gpuf_reduce_stats(const gpuf_tensor *src, gpuf_stats *stats, gpuf_error *err) {
  gpuf_status status = check_source(src, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpuf_tensor_count(src) == 0) {
    *stats = stats_of_none(src->dtype);
    return GPUF_OK;
  }
  gpufi_reduce_stats raw;
  const gpufi_reduce_sink sink = {no_head, keep_stats, &raw};
  const char *base;
  gpufi_reduce job = {.kind = GPUFI_REDUCE_STATS};
  gpufi_reduce_plan(&job, src, NULL, &base);
  status = gpufi_reduce_run(&job, src, base, NULL, &sink, err);
  if (status == GPUF_OK) {
    *stats = stats_from(src->dtype, &raw);
  }
  return status;
}

/* --- Histogram ------------------------------------------------------------- */

typedef struct histogram {
  uint64_t *bins;
  gpuf_histogram_rest rest;
} histogram;

static void histogram_head(void *context, const gpufi_reduce_head *head) {
  histogram *h = context;
  h->rest = (gpuf_histogram_rest){head->nan_count, head->low_count, head->high_count};
}

static void histogram_cells(void *context, const void *cells, int64_t first, int64_t count) {
  histogram *h = context;
  memcpy(h->bins + first, cells, (size_t)count * sizeof(uint64_t));
}

static double scalar_number(gpuf_dtype dtype, gpuf_scalar value) {
  if (!is_integral(dtype)) {
    return value.f64;
  }
  return is_signed(dtype) ? (double)value.i64 : (double)value.u64;
}

static gpuf_status find_range(const gpuf_tensor *src, double range[2], gpuf_error *err) {
  gpuf_stats stats;
  const gpuf_status status = gpuf_reduce_stats(src, &stats, err);
  if (status == GPUF_OK) {
    const bool some = stats.finite_count > 0;
    range[0] = some ? scalar_number(src->dtype, stats.finite_min) : 0.0;
    range[1] = some ? scalar_number(src->dtype, stats.finite_max) : 1.0;
  }
  return status;
}

/* As numpy.linspace(lo, hi, bin_count + 1) computes them. */
static gpuf_status fill_edges(double *edges, int64_t bin_count, double lo, double hi,
                              gpuf_error *err) {
  const double step = (hi - lo) / (double)bin_count;
  for (int64_t i = 0; i <= bin_count; i++) {
    const volatile double offset = (double)i * step; /* rounded: never part of a fused operation */
    edges[i] = i < bin_count ? lo + offset : hi;
    if (i > 0 && !(edges[i] > edges[i - 1])) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "%" PRId64 " bins from %.17g to %.17g have edges that float64 cannot tell "
                        "apart; take fewer bins or a wider range",
                        bin_count, lo, hi);
    }
  }
  return GPUF_OK;
}

static gpuf_status check_range(double *lo, double *hi, gpuf_error *err) {
  if (!(*lo <= *hi) || !isfinite(*hi - *lo)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the range is %.17g to %.17g; both must be finite, the second not the "
                      "smaller, and their difference within float64",
                      *lo, *hi);
  }
  if (*lo == *hi) {
    *lo -= 0.5;
    *hi += 0.5;
  }
  return GPUF_OK;
}

static gpuf_status count_bins(const gpuf_tensor *src, int64_t bin_count, const double *edges,
                              histogram *h, gpuf_error *err) {
  const gpufi_reduce_sink sink = {histogram_head, histogram_cells, h};
  const char *base;
  gpufi_reduce job = {
      .kind = GPUFI_REDUCE_HISTOGRAM,
      .bin_count = bin_count,
      .bin_scale = (double)bin_count / (edges[bin_count] - edges[0]),
  };
  if (gpuf_tensor_count(src) == 0) {
    memset(h->bins, 0, (size_t)bin_count * sizeof(*h->bins));
    return GPUF_OK;
  }
  gpufi_reduce_plan(&job, src, NULL, &base);
  return gpufi_reduce_run(&job, src, base, edges, &sink, err);
}

gpuf_status gpuf_reduce_histogram(const gpuf_tensor *src, int64_t bin_count, const double range[2],
                                  uint64_t *bins, double *edges, gpuf_histogram_rest *rest,
                                  gpuf_error *err) {
  double limits[2];
  double *own_edges = NULL;
  histogram h = {.bins = bins};
  gpuf_status status = check_source(src, err);
  if (status == GPUF_OK && (bin_count < 1 || bin_count > GPUF_HISTOGRAM_BINS_MAX)) {
    status = gpufi_fail(err, GPUF_ERR_INVALID, 0, "%" PRId64 " bins; a histogram has 1 to %" PRId64,
                        bin_count, GPUF_HISTOGRAM_BINS_MAX);
  }
  if (status == GPUF_OK && !range) {
    status = find_range(src, limits, err);
  } else if (status == GPUF_OK) {
    memcpy(limits, range, sizeof(limits));
  }
  if (status == GPUF_OK) {
    status = check_range(&limits[0], &limits[1], err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  own_edges = malloc(((size_t)bin_count + 1) * sizeof(*own_edges));
  if (!own_edges) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for the edges of the bins");
  }
  status = fill_edges(own_edges, bin_count, limits[0], limits[1], err);
  if (status == GPUF_OK) {
    status = count_bins(src, bin_count, own_edges, &h, err);
  }
  if (status == GPUF_OK && edges) {
    memcpy(edges, own_edges, ((size_t)bin_count + 1) * sizeof(*edges));
  }
  if (status == GPUF_OK && rest) {
    *rest = h.rest;
  }
  free(own_edges);
  return status;
}
