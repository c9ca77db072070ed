/* The public reductions: they check, plan and run, and complete the results. */
#include "core/reduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/floating_point.h"
#include "base/struct.h"

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
/* Whether float32 holds every element. */
static bool fits_float32(gpuf_dtype dtype) {
  return gpuf_dtype_nbytes(dtype) < (is_integral(dtype) ? 4 : 8);
}

/* --- Overview -------------------------------------------------------------- */

gpuf_dtype gpuf_overview_dtype(gpuf_dtype dtype, gpuf_overview_method method) {
  if (method != GPUF_OVERVIEW_MEAN && method != GPUF_OVERVIEW_RMS) {
    return dtype;
  }
  return fits_float32(dtype) ? GPUF_DTYPE_FLOAT32 : GPUF_DTYPE_FLOAT64;
}

static gpuf_status check_cells(const gpuf_tensor *src, const int64_t *shape, int64_t *cell_count,
                               gpuf_error *err) {
  *cell_count = 1;
  if (src->ndim > 0) {
    GPUFI_REQUIRE(shape, err);
  }
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

static gpuf_status check_overview(const gpuf_tensor *src, gpuf_overview_method method,
                                  const void *result, const void *result_max, gpuf_error *err) {
  const gpuf_status status = check_source(src, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (method < GPUF_OVERVIEW_MEAN || method > GPUF_OVERVIEW_FIRST) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%d is no value of gpuf_overview_method",
                      (int)method);
  }
  if (!result || (method == GPUF_OVERVIEW_MINMAX && !result_max)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is NULL; pass memory for the cells",
                      result ? "result_max" : "result");
  }
  return GPUF_OK;
}

static const gpufi_reduce_kind overview_kinds[] = {
    [GPUF_OVERVIEW_MEAN] = GPUFI_REDUCE_MEAN,     [GPUF_OVERVIEW_RMS] = GPUFI_REDUCE_RMS,
    [GPUF_OVERVIEW_MIN] = GPUFI_REDUCE_MIN,       [GPUF_OVERVIEW_MAX] = GPUFI_REDUCE_MAX,
    [GPUF_OVERVIEW_MINMAX] = GPUFI_REDUCE_MINMAX, [GPUF_OVERVIEW_FIRST] = GPUFI_REDUCE_FIRST,
};

static GPUFI_NOT_INLINED gpuf_status take_overview(const gpuf_tensor *src,
                                                   gpuf_overview_method method,
                                                   const int64_t *shape, void *result,
                                                   void *result_max, gpuf_counts *counts,
                                                   gpuf_error *err) {
  int64_t cell_count;
  gpuf_status status =
      counts ? gpufi_struct_check(counts, sizeof(*counts), "GPUF_COUNTS_INIT", err) : GPUF_OK;
  if (status == GPUF_OK) {
    status = check_overview(src, method, result, result_max, err);
  }
  if (status == GPUF_OK) {
    status = check_cells(src, shape, &cell_count, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_reduce_head head = {0};
  if (cell_count > 0) {
    const int64_t no_axes[1] = {1};
    void *const planes[2] = {result, result_max};
    const char *base;
    gpufi_reduce job = {.kind = overview_kinds[method],
                        .result_dtype = gpuf_overview_dtype(src->dtype, method)};
    gpufi_reduce_plan(&job, src, src->ndim > 0 ? shape : no_axes, &base);
    status = gpufi_reduce_run(&job, src, base, NULL, &head, planes, err);
  }
  if (status == GPUF_OK && counts) {
    const int64_t taken = method == GPUF_OVERVIEW_FIRST ? cell_count : gpuf_tensor_count(src);
    const gpuf_counts own = {.count = (uint64_t)taken,
                             .nan_count = head.nan_count,
                             .posinf_count = head.high_count,
                             .neginf_count = head.low_count};
    gpufi_struct_write(counts, &own, sizeof(own));
  }
  return status;
}

gpuf_status gpuf_reduce_overview(const gpuf_tensor *src, gpuf_overview_method method,
                                 const int64_t *shape, void *result, void *result_max,
                                 gpuf_counts *counts, gpuf_error *err) {
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  const gpuf_status status = take_overview(src, method, shape, result, result_max, counts, err);
  gpufi_floating_point_end(callers);
  return status;
}

/* --- Statistics ------------------------------------------------------------ */

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
  gpuf_stats stats = {.struct_nbytes = sizeof(stats), .mean = NAN, .variance = NAN};
  if (!is_integral(dtype)) {
    stats.min.f64 = stats.max.f64 = stats.finite_min.f64 = stats.finite_max.f64 = NAN;
  }
  return stats;
}

static gpuf_stats stats_from(gpuf_dtype dtype, const gpufi_reduce_stats *raw) {
  gpuf_stats stats = stats_of_none(dtype);
  stats.finite_count = raw->finite_count;
  stats.zero_count = raw->zero_count;
  stats.nan_count = raw->nan_count;
  stats.neginf_count = raw->low_count;
  stats.posinf_count = raw->high_count;
  stats.count = raw->finite_count + raw->nan_count + raw->low_count + raw->high_count;
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

static GPUFI_NOT_INLINED gpuf_status take_stats(const gpuf_tensor *src, gpuf_stats *stats,
                                                gpuf_error *err) {
  gpuf_status status = check_source(src, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpuf_tensor_count(src) == 0) {
    *stats = stats_of_none(src->dtype);
    return GPUF_OK;
  }
  gpufi_reduce_head head;
  gpufi_reduce_stats raw;
  void *const planes[2] = {&raw};
  const char *base;
  gpufi_reduce job = {.kind = GPUFI_REDUCE_STATS};
  gpufi_reduce_plan(&job, src, NULL, &base);
  status = gpufi_reduce_run(&job, src, base, NULL, &head, planes, err);
  if (status == GPUF_OK) {
    *stats = stats_from(src->dtype, &raw);
  }
  return status;
}

gpuf_status gpuf_reduce_stats(const gpuf_tensor *src, gpuf_stats *stats, gpuf_error *err) {
  gpuf_stats own;
  gpuf_status status = gpufi_struct_check(stats, sizeof(own), "GPUF_STATS_INIT", err);
  if (status == GPUF_OK) {
    const gpufi_floating_point callers = gpufi_floating_point_begin();
    status = take_stats(src, &own, err);
    gpufi_floating_point_end(callers);
  }
  if (status == GPUF_OK) {
    gpufi_struct_write(stats, &own, sizeof(own));
  }
  return status;
}

/* --- Histogram ------------------------------------------------------------- */

static double scalar_number(gpuf_dtype dtype, gpuf_scalar value) {
  if (!is_integral(dtype)) {
    return value.f64;
  }
  return is_signed(dtype) ? (double)value.i64 : (double)value.u64;
}

static gpuf_status find_range(const gpuf_tensor *src, double range[2], gpuf_error *err) {
  gpuf_stats stats;
  const gpuf_status status = take_stats(src, &stats, err);
  if (status == GPUF_OK) {
    const bool some = stats.finite_count > 0;
    range[0] = some ? scalar_number(src->dtype, stats.finite_min) : 0.0;
    range[1] = some ? scalar_number(src->dtype, stats.finite_max) : 1.0;
  }
  return status;
}

/* Compute the edges as numpy.linspace(lo, hi, bin_count + 1) does. */
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
                              uint64_t *bins, gpuf_histogram_rest *rest, gpuf_error *err) {
  void *const planes[2] = {bins};
  const char *base;
  gpufi_reduce_head head = {0};
  gpufi_reduce job = {
      .kind = GPUFI_REDUCE_HISTOGRAM,
      .result_dtype = GPUF_DTYPE_UINT64,
      .bin_count = bin_count,
      .bin_scale = (double)bin_count / (edges[bin_count] - edges[0]),
  };
  gpuf_status status = GPUF_OK;
  if (gpuf_tensor_count(src) == 0) {
    memset(bins, 0, (size_t)bin_count * sizeof(*bins));
  } else {
    gpufi_reduce_plan(&job, src, NULL, &base);
    status = gpufi_reduce_run(&job, src, base, edges, &head, planes, err);
  }
  *rest = (gpuf_histogram_rest){
      .nan_count = head.nan_count, .under_count = head.low_count, .over_count = head.high_count};
  return status;
}

static GPUFI_NOT_INLINED gpuf_status take_histogram(const gpuf_tensor *src, int64_t bin_count,
                                                    const double range[2], uint64_t *bins,
                                                    double *edges, gpuf_histogram_rest *rest,
                                                    gpuf_error *err) {
  GPUFI_REQUIRE(src, err);
  GPUFI_REQUIRE(bins, err);
  double limits[2];
  double *own_edges = NULL;
  gpuf_histogram_rest outside;
  gpuf_status status =
      rest ? gpufi_struct_check(rest, sizeof(*rest), "GPUF_HISTOGRAM_REST_INIT", err) : GPUF_OK;
  if (status == GPUF_OK) {
    status = check_source(src, err);
  }
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
    status = count_bins(src, bin_count, own_edges, bins, &outside, err);
  }
  if (status == GPUF_OK && edges) {
    memcpy(edges, own_edges, ((size_t)bin_count + 1) * sizeof(*edges));
  }
  if (status == GPUF_OK && rest) {
    gpufi_struct_write(rest, &outside, sizeof(outside));
  }
  free(own_edges);
  return status;
}

gpuf_status gpuf_reduce_histogram(const gpuf_tensor *src, int64_t bin_count, const double range[2],
                                  uint64_t *bins, double *edges, gpuf_histogram_rest *rest,
                                  gpuf_error *err) {
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  const gpuf_status status = take_histogram(src, bin_count, range, bins, edges, rest, err);
  gpufi_floating_point_end(callers);
  return status;
}
