/* A reduction as the backends see it: its plan and the result that they leave, which
 * needs no further work. Thread-safety: plain values and pure functions. C and CUDA. */
#ifndef GPUFI_BACKEND_REDUCE_H
#define GPUFI_BACKEND_REDUCE_H

#include <gpufetch/reduce.h>

#include "base/arithmetic.h"

typedef enum gpufi_reduce_kind {
  GPUFI_REDUCE_STATS,
  GPUFI_REDUCE_MEAN,
  GPUFI_REDUCE_RMS,
  GPUFI_REDUCE_MIN,
  GPUFI_REDUCE_MAX,
  GPUFI_REDUCE_MINMAX,
  GPUFI_REDUCE_FIRST,
  GPUFI_REDUCE_HISTOGRAM,
} gpufi_reduce_kind;

/* `length` elements in `cell_count` cells; cell i of the axis moves the result's index by
 * i * cell_stride. */
typedef struct gpufi_reduce_axis {
  int64_t length;
  int64_t stride_nbytes;
  int64_t cell_count;
  int64_t cell_stride;
} gpufi_reduce_axis;

/* At least one axis, no empty one. The axes are in the order of memory, not of the tensor: the
 * last has the smallest stride. */
typedef struct gpufi_reduce {
  gpufi_reduce_kind kind;
  gpuf_dtype dtype;
  gpuf_dtype result_dtype; /* of an overview's cells and a histogram's bins */
  uint32_t element_nbytes; /* of dtype */
  int32_t ndim;
  int64_t cell_count; /* 1 for statistics and histograms */
  int64_t bin_count;  /* of a histogram */
  double bin_scale;   /* bin_count / (last edge - first edge), about: it only guesses a bin */
  gpufi_reduce_axis axes[GPUF_NDIM_MAX];
} gpufi_reduce;

/* A value that is compared: an element as float64, or, of 64-bit integers, a key that sorts as
 * they do (see gpufi_reduce_is_keyed). */
typedef union gpufi_reduce_number {
  double number;
  uint64_t key;
} gpufi_reduce_number;

/* The result is this head, then a plane of results (of MINMAX two: lows, then highs), one
 * behind the other without padding:
 *   STATS       one gpufi_reduce_stats;
 *   HISTOGRAM   a uint64_t for each bin, and behind these its edges (bin_count + 1 float64, an
 *               input);
 *   else        an element of result_dtype for each cell. */
typedef struct gpufi_reduce_head {
  uint64_t nan_count;  /* STATS leaves these 0 */
  uint64_t low_count;  /* -inf; HISTOGRAM: below the first edge */
  uint64_t high_count; /* +inf; HISTOGRAM: above the last edge */
  uint64_t unused[5];
} gpufi_reduce_head;

/* low > high if they are of no element. */
typedef struct gpufi_reduce_extremes {
  gpufi_reduce_number low;
  gpufi_reduce_number high;
} gpufi_reduce_extremes;

typedef struct gpufi_reduce_stats {
  double mean; /* of the finite elements */
  double m2;   /* sum of their squared distances from the mean */
  uint64_t finite_count;
  uint64_t zero_count;
  uint64_t nan_count;
  uint64_t low_count;             /* -inf */
  uint64_t high_count;            /* +inf */
  gpufi_reduce_extremes extremes; /* of the finite elements */
} gpufi_reduce_stats;

/* The reduction on the calling thread: what the kernels of every backend agree with, and what CPU
 * tensors use. Fills the result at `result`. `base` may have any alignment; `scratch`, of
 * gpufi_reduce_cpu_scratch_nbytes(), is as aligned as malloc's memory. */
size_t gpufi_reduce_cpu_scratch_nbytes(const gpufi_reduce *job);
void gpufi_reduce_on_cpu(const gpufi_reduce *job, const void *base, void *result, void *scratch);

static inline int gpufi_reduce_plane_count(const gpufi_reduce *job) {
  return job->kind == GPUFI_REDUCE_MINMAX ? 2 : 1;
}

static inline size_t gpufi_reduce_plane_nbytes(const gpufi_reduce *job) {
  if (job->kind == GPUFI_REDUCE_STATS) {
    return sizeof(gpufi_reduce_stats);
  }
  const int64_t count = job->kind == GPUFI_REDUCE_HISTOGRAM ? job->bin_count : job->cell_count;
  return (size_t)count * gpuf_dtype_nbytes(job->result_dtype);
}

/* Bytes of the result: the head and the planes. */
static inline size_t gpufi_reduce_result_nbytes(const gpufi_reduce *job) {
  return sizeof(gpufi_reduce_head) +
         (size_t)gpufi_reduce_plane_count(job) * gpufi_reduce_plane_nbytes(job);
}

/* Where a 64-bit integer's bits are turned so that unsigned comparison orders them. */
static GPUFI_ON_BOTH inline bool gpufi_reduce_is_keyed(gpuf_dtype dtype) {
  return dtype == GPUF_DTYPE_INT64 || dtype == GPUF_DTYPE_UINT64;
}
static GPUFI_ON_BOTH inline uint64_t gpufi_reduce_key_flip(gpuf_dtype dtype) {
  return dtype == GPUF_DTYPE_INT64 ? (uint64_t)1 << 63 : 0;
}

/* First index of cell i along an axis: floor(i * length / cell_count), without overflow. */
static GPUFI_ON_BOTH inline int64_t gpufi_reduce_bound(const gpufi_reduce_axis *axis, int64_t i) {
  const int64_t quotient = axis->length / axis->cell_count;
  const int64_t remainder = axis->length - quotient * axis->cell_count;
  return i * quotient + i * remainder / axis->cell_count;
}

/* The bin of `x`, edges[0] <= x <= edges[count]. `scale` is about count / (range); the edges
 * decide. */
static GPUFI_ON_BOTH inline int64_t gpufi_reduce_bin(double x, const double *edges, int64_t count,
                                                     double scale) {
  const double guess = (x - edges[0]) * scale;
  int64_t bin = 0;
  if (guess >= (double)count) {
    bin = count - 1;
  } else if (guess > 0.0) {
    bin = (int64_t)guess;
  }
  while (bin > 0 && x < edges[bin]) {
    bin--;
  }
  while (bin < count - 1 && x >= edges[bin + 1]) {
    bin++;
  }
  return bin;
}

#endif
