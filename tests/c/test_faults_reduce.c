/* Reductions with the n-th call of a kind failing, for every n: a result that is reported is right,
 * whatever fails says why, and the next attempt works. */
#include <gpufetch/reduce.h>

#include "fault_tensors.h"

static gpuf_status statistics_of(const gpuf_tensor *src, bool *right) {
  gpuf_stats stats = GPUF_STATS_INIT;
  const gpuf_status status = gpuf_reduce_stats(src, &stats, &err);
  float greatest = values[0];
  for (size_t i = 1; i < COUNT; i++) {
    greatest = values[i] > greatest ? values[i] : greatest;
  }
  *right = stats.count == COUNT && stats.finite_count == COUNT &&
           stats.max.f64 == (double)greatest && stats.variance > 0;
  return status;
}

static gpuf_status statistics(bool *right) {
  return statistics_of(&d_source, right);
}

static gpuf_status statistics_on_cpu(bool *right) {
  const gpuf_tensor src = tensor_of(values, cpu_device, ROWS, COLUMNS);
  return statistics_of(&src, right);
}

static gpuf_status statistics_behind_a_stream(bool *right) {
  gpuf_tensor src = d_source;
  src.stream = GPUF_STREAM_PER_THREAD;
  return statistics_of(&src, right);
}

static gpuf_status overview_of(const gpuf_tensor *src, int64_t columns, bool *right) {
  const int64_t shape[] = {ROWS, columns};
  gpuf_counts counts = GPUF_COUNTS_INIT;
  memset(result, 0xa5, sizeof(result));
  const gpuf_status status =
      gpuf_reduce_overview(src, GPUF_OVERVIEW_FIRST, shape, result, NULL, &counts, &err);
  *right = counts.count == (uint64_t)(ROWS * columns);
  for (size_t i = 0; i < (size_t)(ROWS * columns); i++) {
    *right = *right && result[i] == values[i * (size_t)(COLUMNS / columns)];
  }
  return status;
}

static gpuf_status overview(bool *right) {
  return overview_of(&d_source, 10, right);
}

/* Of so many cells that each plane is copied on its own. */
static gpuf_status overview_of_every_element(bool *right) {
  return overview_of(&d_source, COLUMNS, right);
}

static gpuf_status overview_on_cpu(bool *right) {
  const gpuf_tensor src = tensor_of(values, cpu_device, ROWS, COLUMNS);
  return overview_of(&src, 10, right);
}

static gpuf_status overview_of_extremes(bool *right) {
  const int64_t shape[] = {ROWS / 2, COLUMNS};
  static float greatest[COUNT / 2];
  memset(result, 0xa5, sizeof(result));
  memset(greatest, 0xa5, sizeof(greatest));
  const gpuf_status status =
      gpuf_reduce_overview(&d_source, GPUF_OVERVIEW_MINMAX, shape, result, greatest, NULL, &err);
  *right = true;
  for (size_t i = 0; i < COUNT / 2; i++) {
    const size_t at = i / COLUMNS * 2 * COLUMNS + i % COLUMNS;
    *right = *right && result[i] == fminf(values[at], values[at + COLUMNS]) &&
             greatest[i] == fmaxf(values[at], values[at + COLUMNS]);
  }
  return status;
}

static gpuf_status histogram_in(const gpuf_tensor *src, const double *range, bool *right) {
  uint64_t bins[64], total = 0;
  double edges[65];
  gpuf_histogram_rest rest = GPUF_HISTOGRAM_REST_INIT;
  memset(bins, 0xa5, sizeof(bins));
  const gpuf_status status = gpuf_reduce_histogram(src, 64, range, bins, edges, &rest, &err);
  for (int i = 0; i < 64; i++) {
    total += bins[i];
  }
  *right = total + rest.under_count + rest.over_count == COUNT &&
           (status != GPUF_OK || edges[64] > edges[0]);
  return status;
}

static gpuf_status histogram(bool *right) {
  const double range[2] = {0, 50};
  return histogram_in(&d_source, range, right);
}

static gpuf_status histogram_of_all(bool *right) {
  return histogram_in(&d_source, NULL, right);
}

static gpuf_status histogram_on_cpu(bool *right) {
  const gpuf_tensor src = tensor_of(values, cpu_device, ROWS, COLUMNS);
  return histogram_in(&src, NULL, right);
}

static const operation operations[] = {
    {"statistics", statistics, false},
    {"statistics on the CPU", statistics_on_cpu, true},
    {"statistics behind the thread's own stream", statistics_behind_a_stream, true},
    {"overview", overview, false},
    {"overview of every element", overview_of_every_element, false},
    {"overview on the CPU", overview_on_cpu, true},
    {"overview of extremes", overview_of_extremes, false},
    {"histogram", histogram, false},
    {"histogram of all elements", histogram_of_all, false},
    {"histogram on the CPU", histogram_on_cpu, true},
};

int main(void) {
  fill_values();
  return run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare_tensors);
}
