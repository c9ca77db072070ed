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

/* Reductions compute what a plot needs of a tensor where the tensor lies. Each call reads the
 * tensor once, except gpuf_reduce_histogram with a NULL range, which reads it twice. It starts
 * after the work that is pending on src->stream and blocks until the result is complete in host
 * memory. The tensor's memory must stay valid and unchanged until the call returns.
 *
 * `src` may have any layout, also with strides that are negative or 0, and any element type but
 * complex64 and complex128: reduce their real and imaginary parts, which are strided views. A bool
 * counts as 0 or 1. If `src` is on the CPU, the calling thread does the work.
 *
 * Sums are kept in float64. One backend gives the same result at every run. Two backends add in
 * different orders, and agree within the bounds that are stated with each call. Counts, minima,
 * maxima and histograms are exact and equal everywhere, except that a zero may have either sign.
 *
 * A call takes device memory for its result, 16 bytes for each cell of an overview (unless the
 * method is GPUF_OVERVIEW_FIRST), and at most 64 MiB besides. Up to 96 MiB of that stay allocated
 * for the next call, times the calls that ran at once; gpuf_device_trim frees them. */

/* A number of a tensor's type: i64 for signed integers, u64 for unsigned integers and bool, f64 for
 * floating-point types, all of whose values float64 can hold. */
typedef union gpuf_scalar {
  double f64;
  int64_t i64;
  uint64_t u64;
} gpuf_scalar;

/* How many elements there are, and of which kind. Integers have no NaN and no infinity. */
typedef struct gpuf_counts {
  size_t struct_nbytes;
  uint64_t count; /* of all elements that were read */
  uint64_t nan_count;
  uint64_t posinf_count;
  uint64_t neginf_count;
} gpuf_counts;

#define GPUF_COUNTS_INIT {sizeof(gpuf_counts), 0, 0, 0, 0}

/* What the value of a cell is. */
typedef enum gpuf_overview_method {
  GPUF_OVERVIEW_MEAN = 1, /* the mean of the finite elements */
  GPUF_OVERVIEW_RMS = 2,  /* the root of the mean square of the finite elements */
  GPUF_OVERVIEW_MIN = 3,  /* the least of the elements that are not NaN, infinities included */
  GPUF_OVERVIEW_MAX = 4,
  GPUF_OVERVIEW_MINMAX = 5, /* both of these, in two arrays */
  GPUF_OVERVIEW_FIRST = 6,  /* the element at the cell's lowest indices, whatever its value is */
} gpuf_overview_method;

#define GPUF_OVERVIEW_CELLS_MAX ((int64_t)1 << 26)

/* The element type of an overview of elements of `dtype`. For the mean and the root mean square it
 * is float32 if that holds every value of `dtype`, and float64 for types of 8 bytes and integers of
 * 4. For the other methods it is `dtype`. */
GPUF_API gpuf_dtype gpuf_overview_dtype(gpuf_dtype dtype, gpuf_overview_method method);

/* Reduce `src` to an array with as many axes, of the lengths in `shape`. Each length is at least 1
 * and at most the source's, or 0 if the source's is 0; there are at most GPUF_OVERVIEW_CELLS_MAX
 * cells. `shape` may be NULL if src->ndim is 0. Along an axis of n elements and m cells, cell i
 * stands for the indices floor(i*n/m) to floor((i+1)*n/m) - 1, so that each element is in exactly
 * one cell.
 *
 * `result` takes the cells in C order, as elements of gpuf_overview_dtype. For GPUF_OVERVIEW_MINMAX
 * it takes the minima and `result_max` the maxima; for other methods `result_max` is ignored. A
 * cell without an element to take (without a finite one, or one that is not NaN) is NaN. `counts`,
 * which may be NULL, tells the kinds of the elements in the whole tensor, or for
 * GPUF_OVERVIEW_FIRST of the elements that were taken.
 *
 * The error of a mean of n finite elements, before it is rounded to its type, is at most n * 2^-53
 * times the mean of their magnitudes; the relative error of a root mean square is at most n *
 * 2^-53. Where a sum of elements or squares leaves float64's range on its way, the result may be
 * infinite or NaN; of magnitudes below 1.5e-154, whose squares are subnormal, a root mean square
 * has fewer digits, down to 0. After a failure the outputs may be partly written. */
GPUF_API gpuf_status gpuf_reduce_overview(const gpuf_tensor *src, gpuf_overview_method method,
                                          const int64_t *shape, void *result, void *result_max,
                                          gpuf_counts *counts, gpuf_error *err);

/* Statistics of a tensor. For floating-point types a member that has no element to be computed from
 * is NaN: min and max if there is no element but NaN, and the others if there is no finite element.
 * For integers, which lack elements only if the tensor is empty, mean and variance are NaN then and
 * the others 0. Where sums of finite elements leave float64's range, mean and variance may be
 * infinite or NaN, too. */
typedef struct gpuf_stats {
  size_t struct_nbytes;
  uint64_t count; /* of all elements that were read */
  uint64_t nan_count;
  uint64_t posinf_count;
  uint64_t neginf_count;
  uint64_t finite_count;
  uint64_t zero_count; /* of +0 and -0 */
  gpuf_scalar min;     /* of the elements that are not NaN, infinities included */
  gpuf_scalar max;
  gpuf_scalar finite_min; /* of the finite elements */
  gpuf_scalar finite_max;
  double mean;     /* of the finite elements; within 1e-12 of the mean of their magnitudes */
  double variance; /* of the finite elements, divided by their count, not by count - 1; its relative
                      error is at most 1e-11 * (1 + |mean| / standard deviation) */
} gpuf_stats;

#define GPUF_STATS_INIT {sizeof(gpuf_stats), 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, {0}, 0, 0}

/* Compute the statistics of `src`. */
GPUF_API gpuf_status gpuf_reduce_stats(const gpuf_tensor *src, gpuf_stats *stats, gpuf_error *err);

#define GPUF_HISTOGRAM_BINS_MAX ((int64_t)1 << 16)

/* The elements that are in no bin. */
typedef struct gpuf_histogram_rest {
  size_t struct_nbytes;
  uint64_t nan_count;
  uint64_t under_count; /* below the first edge, -inf included */
  uint64_t over_count;  /* above the last edge, +inf included */
} gpuf_histogram_rest;

#define GPUF_HISTOGRAM_REST_INIT {sizeof(gpuf_histogram_rest), 0, 0, 0}

/* Count the elements in `bin_count` bins of equal width, 1 to GPUF_HISTOGRAM_BINS_MAX, by the rules
 * of numpy.histogram in float64. `range` is {lo, hi}, both finite and lo <= hi. If they are equal,
 * 0.5 is subtracted from lo and added to hi. If `range` is NULL, lo and hi are the least and the
 * greatest of the finite elements, or 0 and 1 if there are none; this takes another read.
 *
 * Edge i is lo + i * ((hi - lo) / bin_count), and the last edge is hi. Bin i counts the elements x
 * with edge[i] <= x < edge[i + 1]; the last bin also counts x = hi. A 64-bit integer is compared as
 * the nearest float64. GPUF_ERR_INVALID if float64 cannot tell the edges apart.
 *
 * `bins` takes bin_count counts and `edges` bin_count + 1 values. `edges` and `rest` may be NULL.
 */
GPUF_API gpuf_status gpuf_reduce_histogram(const gpuf_tensor *src, int64_t bin_count,
                                           const double range[2], uint64_t *bins, double *edges,
                                           gpuf_histogram_rest *rest, gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_REDUCE_H */
