/* Reductions on the CPU: the reference of the CUDA kernels. */
#include "backend/reduce.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/elements.h"
#include "backend/reduce_impl.h"

#define SEGMENT_COUNT 512

/* Consecutive elements of a row, as they are compared and added. */
typedef struct segment {
  double numbers[SEGMENT_COUNT];
  uint64_t keys[SEGMENT_COUNT]; /* of 64-bit integers only */
} segment;

typedef struct reduction {
  const gpufi_reduce *job;
  gpufi_reduce_head *head;
  char *planes;
  void *partials; /* one for each cell: see reduce_impl.h */
  const double *edges;
  bool keyed;
  segment segment;
} reduction;

/* Position of a row: an index along each axis but the last, and the cell that it is in. */
typedef struct row_cursor {
  int64_t index[GPUF_NDIM_MAX];
  int64_t cell[GPUF_NDIM_MAX];
  int64_t cell_end[GPUF_NDIM_MAX];
  int64_t offset_nbytes;
  int64_t result_index;
} row_cursor;

static void cursor_reset(row_cursor *at, const gpufi_reduce *job, int32_t axis) {
  at->offset_nbytes -= at->index[axis] * job->axes[axis].stride_nbytes;
  at->result_index -= at->cell[axis] * job->axes[axis].cell_stride;
  at->index[axis] = 0;
  at->cell[axis] = 0;
  at->cell_end[axis] = gpufi_reduce_bound(&job->axes[axis], 1);
}

static void cursor_init(row_cursor *at, const gpufi_reduce *job) {
  memset(at, 0, sizeof(*at));
  for (int32_t axis = 0; axis < job->ndim; axis++) {
    cursor_reset(at, job, axis);
  }
}

/* Go to the next row in C order; false if there is none. */
static bool cursor_advance(row_cursor *at, const gpufi_reduce *job) {
  for (int32_t axis = job->ndim - 2; axis >= 0; axis--) {
    const gpufi_reduce_axis *a = &job->axes[axis];
    at->index[axis]++;
    at->offset_nbytes += a->stride_nbytes;
    if (at->index[axis] < a->length) {
      if (at->index[axis] == at->cell_end[axis]) {
        at->cell[axis]++;
        at->cell_end[axis] = gpufi_reduce_bound(a, at->cell[axis] + 1);
        at->result_index += a->cell_stride;
      }
      return true;
    }
    cursor_reset(at, job, axis);
  }
  return false;
}

static void segment_load(reduction *r, const char *src, int64_t stride_nbytes, int64_t count) {
  gpufi_elements_widen(r->job->dtype, src, stride_nbytes, count, r->segment.numbers);
  const uint64_t flip = gpufi_reduce_key_flip(r->job->dtype);
  for (int64_t i = 0; i < count && r->keyed; i++) {
    uint64_t bits;
    memcpy(&bits, src + i * stride_nbytes, sizeof(bits));
    r->segment.keys[i] = bits ^ flip;
  }
}

/* Count an element that is not finite. */
static void count_excluded(double number, uint64_t *nan_count, uint64_t *low_count,
                           uint64_t *high_count) {
  if (isnan(number)) {
    ++*nan_count;
  } else {
    ++*(number < 0.0 ? low_count : high_count);
  }
}

static void extremes_init(gpufi_reduce_extremes *e, bool keyed) {
  if (keyed) {
    e->low.key = UINT64_MAX;
    e->high.key = 0;
  } else {
    e->low.number = INFINITY;
    e->high.number = -INFINITY;
  }
}

static void extremes_add(gpufi_reduce_extremes *e, const reduction *r, int64_t i) {
  if (r->keyed) {
    const uint64_t key = r->segment.keys[i];
    e->low.key = key < e->low.key ? key : e->low.key;
    e->high.key = key > e->high.key ? key : e->high.key;
  } else { /* NaN compares false */
    const double number = r->segment.numbers[i];
    e->low.number = number < e->low.number ? number : e->low.number;
    e->high.number = number > e->high.number ? number : e->high.number;
  }
}

static void add_extremes(reduction *r, gpufi_reduce_extremes *cell, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; i++) {
    extremes_add(cell, r, i);
    if (!isfinite(r->segment.numbers[i])) {
      count_excluded(r->segment.numbers[i], &r->head->nan_count, &r->head->low_count,
                     &r->head->high_count);
    }
  }
}

static void add_sum(reduction *r, gpufi_reduce_sum *cell, int64_t first, int64_t end) {
  const bool squares = r->job->kind == GPUFI_REDUCE_RMS;
  for (int64_t i = first; i < end; i++) {
    const double x = r->segment.numbers[i];
    if (isfinite(x)) {
      cell->sum += squares ? x * x : x;
      cell->count++;
    } else {
      count_excluded(x, &r->head->nan_count, &r->head->low_count, &r->head->high_count);
    }
  }
}

/* Mean and squared distances of two sets together. */
static void moments_merge(gpufi_reduce_stats *to, uint64_t count, double mean, double m2) {
  const double total = (double)(to->finite_count + count);
  const double distance = mean - to->mean;
  if (count > 0) {
    to->m2 += m2 + distance * (distance * ((double)to->finite_count * ((double)count / total)));
    to->mean += distance * ((double)count / total);
    to->finite_count += count;
  }
}

static void add_stats(reduction *r, gpufi_reduce_stats *cell, int64_t first, int64_t end) {
  const double *x = r->segment.numbers;
  uint64_t count = 0;
  double pivot = 0.0, sum = 0.0, squares = 0.0;
  for (int64_t i = first; i < end; i++) {
    if (!isfinite(x[i])) {
      count_excluded(x[i], &cell->nan_count, &cell->low_count, &cell->high_count);
      continue;
    }
    pivot = count == 0 ? x[i] : pivot;
    sum += x[i] - pivot;
    count++;
    cell->zero_count += x[i] == 0.0;
    extremes_add(&cell->extremes, r, i);
  }
  if (count > 0) {
    const double mean = pivot + sum / (double)count;
    for (int64_t i = first; i < end; i++) {
      squares += isfinite(x[i]) ? (x[i] - mean) * (x[i] - mean) : 0.0;
    }
    moments_merge(cell, count, mean, squares);
  }
}

static void add_bins(reduction *r, uint64_t *bins, int64_t first, int64_t end) {
  const int64_t count = r->job->bin_count;
  for (int64_t i = first; i < end; i++) {
    const double x = r->segment.numbers[i];
    if (x >= r->edges[0] && x <= r->edges[count]) {
      bins[gpufi_reduce_bin(x, r->edges, count, r->job->bin_scale)]++;
    } else if (isnan(x)) {
      r->head->nan_count++;
    } else {
      ++*(x < r->edges[0] ? &r->head->low_count : &r->head->high_count);
    }
  }
}

/* Elements first .. end-1 of the segment belong to the result's cell `index`. */
static void add(reduction *r, int64_t index, int64_t first, int64_t end) {
  switch (r->job->kind) {
  case GPUFI_REDUCE_STATS:
    add_stats(r, (gpufi_reduce_stats *)r->partials + index, first, end);
    break;
  case GPUFI_REDUCE_MEAN:
  case GPUFI_REDUCE_RMS:
    add_sum(r, (gpufi_reduce_sum *)r->partials + index, first, end);
    break;
  case GPUFI_REDUCE_MIN:
  case GPUFI_REDUCE_MAX:
  case GPUFI_REDUCE_MINMAX:
    add_extremes(r, (gpufi_reduce_extremes *)r->partials + index, first, end);
    break;
  case GPUFI_REDUCE_HISTOGRAM:
    add_bins(r, (uint64_t *)r->planes, first, end);
    break;
  case GPUFI_REDUCE_FIRST:
    break;
  }
}

static void add_row(reduction *r, const char *row, int64_t result_index) {
  const gpufi_reduce_axis *inner = &r->job->axes[r->job->ndim - 1];
  int64_t cell = 0, cell_end = gpufi_reduce_bound(inner, 1);
  for (int64_t start = 0; start < inner->length; start += SEGMENT_COUNT) {
    const int64_t left = inner->length - start;
    const int64_t count = left < SEGMENT_COUNT ? left : SEGMENT_COUNT;
    segment_load(r, row + start * inner->stride_nbytes, inner->stride_nbytes, count);
    for (int64_t i = 0; i < count;) {
      if (start + i == cell_end) {
        cell++;
        cell_end = gpufi_reduce_bound(inner, cell + 1);
      }
      const int64_t end = cell_end - start < count ? cell_end - start : count;
      add(r, result_index + cell * inner->cell_stride, i, end);
      i = end;
    }
  }
}

static void take_first(const reduction *r, const char *base) {
  const gpufi_reduce *job = r->job;
  for (int64_t i = 0; i < job->cell_count; i++) {
    int64_t rest = i, offset = 0, index = 0;
    uint64_t bits = 0;
    for (int32_t axis = job->ndim - 1; axis >= 0; axis--) {
      const gpufi_reduce_axis *a = &job->axes[axis];
      const int64_t cell = rest % a->cell_count;
      rest /= a->cell_count;
      offset += gpufi_reduce_bound(a, cell) * a->stride_nbytes;
      index += cell * a->cell_stride;
    }
    memcpy(&bits, base + offset, job->element_nbytes);
    memcpy(r->planes + index * job->element_nbytes, &bits, job->element_nbytes);
    const double number = gpufi_double_of(gpufi_number_decode(job->dtype, bits));
    if (!isfinite(number)) {
      count_excluded(number, &r->head->nan_count, &r->head->low_count, &r->head->high_count);
    }
  }
}

static void partials_init(const reduction *r) {
  memset(r->partials, 0, gpufi_reduce_cpu_scratch_nbytes(r->job));
  for (int64_t i = 0; i < r->job->cell_count; i++) {
    if (gpufi_reduce_is_extreme(r->job->kind)) {
      extremes_init((gpufi_reduce_extremes *)r->partials + i, r->keyed);
    } else if (r->job->kind == GPUFI_REDUCE_STATS) {
      extremes_init(&((gpufi_reduce_stats *)r->partials)[i].extremes, r->keyed);
    }
  }
}

/* Fill a plane from the partial results; plane 1 holds the highs of MINMAX. */
static void finish_plane(const reduction *r, int plane) {
  const gpufi_reduce *job = r->job;
  const bool high = plane == 1 || job->kind == GPUFI_REDUCE_MAX;
  const size_t nbytes = gpuf_dtype_nbytes(job->result_dtype);
  char *to = r->planes + (size_t)plane * gpufi_reduce_plane_nbytes(job);
  for (int64_t i = 0; i < job->cell_count; i++) {
    const uint64_t bits =
        gpufi_reduce_is_extreme(job->kind)
            ? gpufi_reduce_extreme_bits((const gpufi_reduce_extremes *)r->partials + i, high,
                                        job->result_dtype)
            : gpufi_reduce_mean_bits((const gpufi_reduce_sum *)r->partials + i,
                                     job->kind == GPUFI_REDUCE_RMS, job->result_dtype);
    memcpy(to + (size_t)i * nbytes, &bits, nbytes); /* little-endian: the low bytes come first */
  }
}

static void finish(const reduction *r) {
  if (r->job->kind == GPUFI_REDUCE_STATS) {
    memcpy(r->planes, r->partials, sizeof(gpufi_reduce_stats));
    return;
  }
  for (int plane = 0; plane < gpufi_reduce_plane_count(r->job); plane++) {
    finish_plane(r, plane);
  }
}

size_t gpufi_reduce_cpu_scratch_nbytes(const gpufi_reduce *job) {
  return (size_t)job->cell_count * gpufi_reduce_partial_nbytes(job->kind);
}

void gpufi_reduce_on_cpu(const gpufi_reduce *job, const void *base, void *result, void *scratch) {
  const size_t result_nbytes = gpufi_reduce_result_nbytes(job);
  const bool has_partials = gpufi_reduce_partial_nbytes(job->kind) > 0;
  assert(scratch || !has_partials);
  reduction r = {
      .job = job,
      .head = result,
      .planes = (char *)result + sizeof(gpufi_reduce_head),
      .partials = scratch,
      .keyed = gpufi_reduce_is_keyed(job->dtype),
  };
  memset(result, 0, has_partials ? sizeof(gpufi_reduce_head) : result_nbytes);
  if (job->kind == GPUFI_REDUCE_FIRST) {
    take_first(&r, base);
    return;
  }
  if (job->kind == GPUFI_REDUCE_HISTOGRAM) {
    r.edges = (const double *)((char *)result + result_nbytes);
  }
  if (has_partials) {
    partials_init(&r);
  }
  row_cursor at;
  cursor_init(&at, job);
  do {
    add_row(&r, (const char *)base + at.offset_nbytes, at.result_index);
  } while (cursor_advance(&at, job));
  if (has_partials) {
    finish(&r);
  }
}
