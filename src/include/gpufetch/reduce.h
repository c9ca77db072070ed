/* gpufetch: reductions on the device: overview, statistics, histogram.
 *
 * The conventions are those of gpufetch.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef GPUFETCH_REDUCE_H
#define GPUFETCH_REDUCE_H

#include <gpufetch/gpufetch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a plot needs of a tensor, computed where the tensor lies: each call reads the tensor once
 * (gpuf_reduce_histogram with a NULL range twice) and blocks until the result, in host memory, is
 * complete. Work that is pending on src->stream comes first; the memory must stay valid and
 * unchanged until the call returns.
 *
 * `src` has any layout (any stride, also negative and 0) and any element type but complex64 and
 * complex128, which are refused: reduce the real and the imaginary part, each a strided view. A
 * bool counts as 0 or 1. On a CPU tensor the calling thread does the work.
 *
 * Sums are kept in float64. Results are the same at every run on one backend; two backends, which
 * add in another order, agree within the bounds stated with each call. Counts, minima, maxima and
 * histograms are exact and the same everywhere (of zeros, the sign is left open).
 *
 * Device scratch: the result, 16 bytes for each cell of an overview (none where `method` is first),
 * and beyond that at most 64 MiB; up to 96 MiB of it stay allocated for the next call. */

/* A number of a tensor's type: i64 for signed integers, u64 for unsigned ones and bool, f64 for
 * floating-point types (each of their values is one of float64 too). */
typedef union gpuf_scalar {
  double f64;
  int64_t i64;
  uint64_t u64;
} gpuf_scalar;

/* Elements by kind. Integers have no NaN and no infinity. */
typedef struct gpuf_counts {
  size_t struct_nbytes;
  uint64_t count; /* all that were read */
  uint64_t nan_count;
  uint64_t posinf_count;
  uint64_t neginf_count;
} gpuf_counts;

#define GPUF_COUNTS_INIT {sizeof(gpuf_counts), 0, 0, 0, 0}

typedef enum gpuf_overview_method {
  GPUF_OVERVIEW_MEAN = 1, /* of the finite elements */
  GPUF_OVERVIEW_RMS = 2,  /* root of the mean square, of the finite elements */
  GPUF_OVERVIEW_MIN = 3,  /* of the elements that are not NaN, infinities included */
  GPUF_OVERVIEW_MAX = 4,
  GPUF_OVERVIEW_MINMAX = 5, /* both of these, in two arrays */
  GPUF_OVERVIEW_FIRST = 6,  /* the element at the cell's lowest indices, whatever it is */
} gpuf_overview_method;

#define GPUF_OVERVIEW_CELLS_MAX ((int64_t)1 << 26)

/* Element type of an overview's result. Mean and RMS: float64 for a type of 8 bytes (float64,
 * int64, uint64), else float32. The others: `dtype` itself. */
GPUF_API gpuf_dtype gpuf_overview_dtype(gpuf_dtype dtype, gpuf_overview_method method);

/* Reduce `src` to src->ndim axes of lengths `shape` (each 1 to the source's length, or 0 where
 * that is 0; NULL when ndim is 0; at most GPUF_OVERVIEW_CELLS_MAX cells). Along an axis of n
 * elements and m cells, cell i covers the indices floor(i*n/m) to floor((i+1)*n/m) - 1: each
 * element is in exactly one cell.
 *
 * `result` takes the cells in C order, of gpuf_overview_dtype. `result_max` takes the maxima of
 * GPUF_OVERVIEW_MINMAX (`result` the minima) and is ignored otherwise. A cell that has nothing to
 * be taken of (no finite element, or none but NaN) is NaN. `counts` (may be NULL) says what was
 * left out: of the whole tensor, except for GPUF_OVERVIEW_FIRST, which reads the elements that it
 * takes and counts those.
 *
 * Error of a mean over n finite elements, before it is rounded to its type: at most n * 2^-53
 * times the mean of their magnitudes; of an RMS: relative n * 2^-53. A sum beyond float64's range
 * gives infinity. On failure the outputs are partly written. */
GPUF_API gpuf_status gpuf_reduce_overview(const gpuf_tensor *src, gpuf_overview_method method,
                                          const int64_t *shape, void *result, void *result_max,
                                          gpuf_counts *counts, gpuf_error *err);

/* Of no element (of none but NaN; of no finite one) the floating-point min and max (mean,
 * variance, finite_min, finite_max) are NaN, those of integers 0. */
typedef struct gpuf_stats {
  size_t struct_nbytes;
  uint64_t count; /* all that were read */
  uint64_t nan_count;
  uint64_t posinf_count;
  uint64_t neginf_count;
  uint64_t finite_count;
  uint64_t zero_count; /* +0 and -0 */
  gpuf_scalar min;     /* of the elements that are not NaN, infinities included */
  gpuf_scalar max;
  gpuf_scalar finite_min; /* of the finite elements */
  gpuf_scalar finite_max;
  double mean;     /* of the finite elements; within 1e-12 of the mean of their magnitudes */
  double variance; /* of the finite elements, divided by their count (not count - 1); its relative
                      error is at most 1e-11 * (1 + |mean| / standard deviation) */
} gpuf_stats;

#define GPUF_STATS_INIT {sizeof(gpuf_stats), 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, {0}, 0, 0}

GPUF_API gpuf_status gpuf_reduce_stats(const gpuf_tensor *src, gpuf_stats *stats, gpuf_error *err);

#define GPUF_HISTOGRAM_BINS_MAX ((int64_t)1 << 16)

/* What fell outside the bins. */
typedef struct gpuf_histogram_rest {
  size_t struct_nbytes;
  uint64_t nan_count;
  uint64_t under_count; /* below the first edge, -inf included */
  uint64_t over_count;  /* above the last edge, +inf included */
} gpuf_histogram_rest;

#define GPUF_HISTOGRAM_REST_INIT {sizeof(gpuf_histogram_rest), 0, 0, 0}

/* Count elements in `bin_count` (1 to GPUF_HISTOGRAM_BINS_MAX) bins of equal width, by
 * numpy.histogram's rules in float64: edge i is lo + i * ((hi - lo) / bin_count), the last is hi;
 * bin i holds edge i <= x < edge i + 1, the last bin also x = hi. `range` is {lo, hi}, finite; if
 * they are equal, 0.5 is taken from lo and added to hi. A NULL range is that of the finite
 * elements ({0, 1} where there is none), found by a read of its own. A 64-bit integer is
 * compared as the float64 nearest to it.
 *
 * `bins` takes bin_count counts; `edges`, bin_count + 1 (may be NULL); `rest` may be NULL.
 * GPUF_ERR_INVALID if lo > hi, or if float64 cannot tell the edges apart. */
GPUF_API gpuf_status gpuf_reduce_histogram(const gpuf_tensor *src, int64_t bin_count,
                                           const double range[2], uint64_t *bins, double *edges,
                                           gpuf_histogram_rest *rest, gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_REDUCE_H */
