/* Planning a reduction's launches, and the small kernels for first elements and for merging the
 * partial results. */
#include "backend/cuda/reduce/reduce.h"

#include "backend/cuda/bits.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/reduce/results.cuh"
#include "backend/elements.h"

namespace gpufi {
namespace {

constexpr int64_t kWantedThreadBlocks = 8192; /* a dozen waves: no long last one */
constexpr int64_t kWarpCells = 16384; /* from here on a cell has a warp, not a thread block */
constexpr int64_t kWantedHistogramThreadBlocks = 2048; /* each ends with an addition to every bin */
constexpr int64_t kWantedColumnThreadBlocks = 4096;
constexpr int64_t kRowsPerSplit = 16; /* at least */
constexpr int64_t kPartialsNbytesMax = int64_t{64} << 20;
constexpr size_t kSharedNbytesMax = 40 << 10;

/* Where the results of cells go. */
struct planes {
  char *low;  /* or the only one */
  char *high; /* of MINMAX */
  gpufi_reduce_kind kind;
  gpuf_dtype dtype;
  uint32_t nbytes; /* of an element */

  __device__ void store(int64_t cell, const gpufi_reduce_sum &merged) const {
    store(low, cell, gpufi_reduce_mean_bits(&merged, kind == GPUFI_REDUCE_RMS, dtype));
  }
  __device__ void store(int64_t cell, const gpufi_reduce_extremes &merged) const {
    store(low, cell, gpufi_reduce_extreme_bits(&merged, kind == GPUFI_REDUCE_MAX, dtype));
    if (kind == GPUFI_REDUCE_MINMAX) {
      store(high, cell, gpufi_reduce_extreme_bits(&merged, true, dtype));
    }
  }
  __device__ void store(char *plane, int64_t cell, uint64_t bits) const {
    gpufi::store_bits(plane + cell * nbytes, nbytes, true, bits);
  }
  __device__ void store(int64_t cell, const gpufi_reduce_stats &merged) const {
    reinterpret_cast<gpufi_reduce_stats *>(low)[cell] = merged;
  }
};

/* Merge the partial results of a cell's splits, in the order of the splits, to the cell's result: a
 * team of kTeam threads takes a cell. */
template <typename Partial, int kTeam>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const Partial *partials, planes to, int64_t cell_count, int64_t splits,
                  bool keyed) {
  const int64_t cell = static_cast<int64_t>(blockIdx.x) * (kThreads / kTeam) + threadIdx.x / kTeam;
  if (cell >= cell_count) {
    return;
  }
  Partial merged;
  set_empty(merged, keyed);
  for (int64_t s = threadIdx.x % kTeam; s < splits; s += kTeam) {
    merge(merged, partials[s * cell_count + cell], keyed);
  }
  warp_merge(merged, kTeam, keyed);
  if (threadIdx.x % kTeam == 0) {
    to.store(cell, merged);
  }
}

__global__ void __launch_bounds__(kThreads) first_kernel(const __grid_constant__ reduce_params p) {
  int64_t cell = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  excluded_count excluded;
  if (cell < p.job.cell_count) {
    int64_t offset = 0, out = 0;
#pragma unroll 1 /* two 64-bit divisions each */
    for (int axis = p.job.ndim - 1; axis >= 0; axis--) {
      const gpufi_reduce_axis &a = p.job.axes[axis];
      const int64_t outer = cell / a.cell_count;
      const int64_t i = cell - outer * a.cell_count;
      cell = outer;
      offset += gpufi_reduce_bound(&a, i) * a.stride_nbytes;
      out += i * a.cell_stride;
    }
    const uint32_t nbytes = p.job.element_nbytes;
    const uint64_t bits = gpufi::load_bits(p.base + offset, nbytes, p.aligned);
    const double number = gpufi_double_of(gpufi_number_decode(p.job.dtype, bits));
    gpufi::store_bits(static_cast<char *>(p.out) + out * nbytes, nbytes, true, bits);
    if (!is_finite(number)) {
      excluded.add(number);
    }
  }
  excluded.add_to(p.head);
}

/* How a job is done. */
struct plan {
  enum { kCells, kColumns, kFirst, kHistogram } kernel;
  reduce_params params; /* without the pointers but the base, and without the byte table */
  int64_t thread_blocks;
};

int64_t at_least_one(int64_t value) {
  return value > 1 ? value : 1;
}
int64_t lesser_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}
int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* Whether every element's address is a multiple of `nbytes`: the base, the strides of the outer
 * axes and `inner_nbytes` are. */
bool all_multiples(const gpufi_reduce *job, const void *base, int64_t inner_nbytes,
                   uint64_t nbytes) {
  uint64_t bits = reinterpret_cast<uintptr_t>(base) | static_cast<uint64_t>(inner_nbytes);
  for (int axis = 0; axis < job->ndim - 1; axis++) {
    bits |= static_cast<uint64_t>(job->axes[axis].stride_nbytes);
  }
  return bits % nbytes == 0;
}

const gpufi_reduce_axis &last_axis(const gpufi_reduce *job) {
  return job->axes[job->ndim - 1];
}

int64_t element_count(const gpufi_reduce *job) {
  int64_t count = 1;
  for (int axis = 0; axis < job->ndim; axis++) {
    count *= job->axes[axis].length;
  }
  return count;
}

void plan_cells(plan *plan, const gpufi_reduce *job, int64_t wanted_thread_blocks) {
  reduce_params &p = plan->params;
  const gpufi_reduce_axis &inner = last_axis(job);
  const int64_t size = job->element_nbytes;
  const int64_t length = inner.length / inner.cell_count;
  const int64_t per_cell = element_count(job) / job->cell_count;
  const int64_t segment = kSegmentNbytes / size;
  p.vector =
      p.aligned && inner.stride_nbytes == size && (length * size >= 1024 || per_cell == length);
  const int64_t rows = at_least_one(per_cell / length);
  const int64_t units =

      p.vector ? rows * ((length + segment - 1) / segment) : per_cell / (8 * kThreads);
  p.splits = lesser_of(at_least_one(wanted_thread_blocks / job->cell_count), at_least_one(units));
  p.warps = p.vector && job->cell_count >= kWarpCells;
  plan->thread_blocks =
      p.warps ? (job->cell_count + kWarps - 1) / kWarps : job->cell_count * p.splits;
}

/* Set how many cells a tile has, and *slack: by how many columns its first and last cell may miss
 * the bounds of the `columns` that a thread has. Where a few equal cells fill whole threads, tiles
 * are made of as many, and nothing is missed. */
void plan_tiles(reduce_params *p, const gpufi_reduce_axis &inner, int64_t columns, int64_t *slack) {
  const int64_t cell_length = divide_up(inner.length, inner.cell_count);
  int64_t step = 1; /* cells that fill whole threads */
  while (p->vector && step < columns && step * cell_length % columns != 0) {
    step *= 2;
  }
  const bool even =
      inner.length % inner.cell_count == 0 && step * cell_length <= kThreads * columns;
  step = even ? step : 1;
  *slack = p->vector && !even ? 2 * (columns - 1) : 0;
  const int64_t fitting = (kThreads * columns - *slack) / cell_length / step * step;
  p->cells_per_tile = 0;
  if (fitting > 0) {
    p->tiles = divide_up(inner.cell_count, fitting);
    p->cells_per_tile = divide_up(divide_up(inner.cell_count, p->tiles), step) * step;
    p->tiles = divide_up(inner.cell_count, p->cells_per_tile);
  }
}

/* False if a cell is too long for a tile. */
bool plan_columns(plan *plan, const gpufi_reduce *job) {
  reduce_params &p = plan->params;
  const gpufi_reduce_axis &inner = last_axis(job);
  const int64_t size = job->element_nbytes, columns = size == 8 ? 2 : 4;
  int64_t slack;
  p.vector = inner.stride_nbytes == size &&
             all_multiples(job, p.base, inner.length * size, columns * size);
  plan_tiles(&p, inner, columns, &slack);
  if (p.cells_per_tile == 0) {
    return false;
  }
  const int64_t cell_length = divide_up(inner.length, inner.cell_count);
  p.columns_log2 = 0;
  while ((columns << p.columns_log2) < p.cells_per_tile * cell_length + slack) {
    p.columns_log2++;
  }
  p.lanes = 1;
  while (p.lanes < 32 && 2 * p.lanes * p.cells_per_tile <= kThreads) {
    p.lanes *= 2;
  }
  const int64_t outer_cells = job->cell_count / inner.cell_count;
  const int64_t rows = element_count(job) / inner.length / outer_cells;
  const int64_t thread_blocks = outer_cells * p.tiles;
  const int64_t partial_nbytes = static_cast<int64_t>(gpufi_reduce_partial_nbytes(job->kind));
  p.splits = 1;
  if (thread_blocks < kWantedColumnThreadBlocks / 2) {
    p.splits = lesser_of(kWantedColumnThreadBlocks / thread_blocks, rows / kRowsPerSplit);
    p.splits = lesser_of(p.splits, kPartialsNbytesMax / (job->cell_count * partial_nbytes));
    p.splits = at_least_one(p.splits);
  }
  plan->thread_blocks = thread_blocks * p.splits;
  return true;
}

void plan_histogram(plan *plan, const gpufi_reduce *job) {
  reduce_params &p = plan->params;
  const size_t edges = static_cast<size_t>(job->bin_count + 1) * sizeof(double);
  const size_t bins = static_cast<size_t>(job->bin_count) * sizeof(uint32_t);
  plan_cells(plan, job, kWantedHistogramThreadBlocks);
  p.edges_shared = edges <= kSharedNbytesMax / 2;
  const size_t left = kSharedNbytesMax - (p.edges_shared ? edges : 0);
  p.copies = static_cast<int32_t>(lesser_of(static_cast<int64_t>(left / bins), kWarps));
}

void make_plan(plan *plan, const gpufi_reduce *job, const void *base) {
  reduce_params &p = plan->params;
  const gpufi_reduce_axis &inner = last_axis(job);
  p.job = *job;
  p.base = static_cast<const char *>(base);
  p.splits = 1;
  p.warps = false;
  p.copies = 0;
  p.edges_shared = false;
  p.aligned = all_multiples(job, base, inner.stride_nbytes, job->element_nbytes);
  if (job->kind == GPUFI_REDUCE_FIRST) {
    plan->kernel = plan::kFirst;
    plan->thread_blocks = (job->cell_count + kThreads - 1) / kThreads;
  } else if (job->kind == GPUFI_REDUCE_HISTOGRAM) {
    plan->kernel = plan::kHistogram;
    plan_histogram(plan, job);
  } else if (job->kind != GPUFI_REDUCE_STATS && plan_columns(plan, job)) {
    plan->kernel = plan::kColumns;
  } else {
    plan->kernel = plan::kCells;
    plan_cells(plan, job, kWantedThreadBlocks);
  }
}

size_t partials_nbytes(const plan &plan) {
  const gpufi_reduce &job = plan.params.job;
  const size_t partial_nbytes = gpufi_reduce_partial_nbytes(job.kind);
  return partial_nbytes > 0
             ? static_cast<size_t>(plan.params.splits * job.cell_count) * partial_nbytes
             : 0;
}

template <typename Partial>
cudaError_t finish(const plan &plan, const planes &to, cudaStream_t stream) {
  const reduce_params &p = plan.params;
  const Partial *partials = static_cast<const Partial *>(p.out);
  const int64_t count = p.job.cell_count;
  const bool keyed = gpufi_reduce_is_keyed(p.job.dtype);
  const auto kernel = p.splits == 1 ? finish_kernel<Partial, 1> : finish_kernel<Partial, 32>;
  const int64_t cells_each = p.splits == 1 ? kThreads : kWarps;
  return launch_kernel(kernel, static_cast<unsigned>(divide_up(count, cells_each)), kThreads, 0,
                       stream, partials, to, count, p.splits, keyed);
}

cudaError_t finish_by_kind(const plan &plan, char *cells, cudaStream_t stream) {
  const gpufi_reduce &job = plan.params.job;
  const planes to = {cells, cells + gpufi_reduce_plane_nbytes(&job), job.kind, job.result_dtype,
                     static_cast<uint32_t>(gpuf_dtype_nbytes(job.result_dtype))};
  if (job.kind == GPUFI_REDUCE_STATS) {
    return finish<gpufi_reduce_stats>(plan, to, stream);
  }
  return gpufi_reduce_is_extreme(job.kind) ? finish<gpufi_reduce_extremes>(plan, to, stream)
                                           : finish<gpufi_reduce_sum>(plan, to, stream);
}

cudaError_t launch_plan(const plan &plan, cudaStream_t stream) {
  const unsigned thread_blocks = static_cast<unsigned>(plan.thread_blocks);
  switch (plan.kernel) {
  case plan::kCells:
    return launch_cells(plan.params, thread_blocks, stream);
  case plan::kColumns:
    return launch_columns(plan.params, thread_blocks, stream);
  case plan::kHistogram:
    return launch_histogram(plan.params, thread_blocks, stream);
  case plan::kFirst:
    break;
  }
  return launch_kernel(first_kernel, thread_blocks, kThreads, 0, stream, plan.params);
}

} // namespace
} // namespace gpufi

using namespace gpufi;

size_t gpufi_cuda_reduce_scratch_nbytes(const gpufi_reduce *job, const void *d_base) {
  plan plan;
  make_plan(&plan, job, d_base);
  return partials_nbytes(plan);
}

cudaError_t gpufi_cuda_reduce(const gpufi_reduce *job, const void *d_base, void *d_result,
                              void *d_scratch, cudaStream_t stream) {
  plan plan;
  make_plan(&plan, job, d_base);
  reduce_params &p = plan.params;
  const size_t result_nbytes = gpufi_reduce_result_nbytes(job);
  char *cells = static_cast<char *>(d_result) + sizeof(gpufi_reduce_head);
  const bool histogram = job->kind == GPUFI_REDUCE_HISTOGRAM;
  const bool has_partials = gpufi_reduce_partial_nbytes(job->kind) > 0;
  p.head = static_cast<gpufi_reduce_head *>(d_result);
  p.out = has_partials ? d_scratch : cells;
  if (histogram) {
    p.edges = reinterpret_cast<const double *>(static_cast<char *>(d_result) + result_nbytes);
    p.bin_scale = job->bin_scale;
  }
  if (job->element_nbytes == 1) {
    gpufi_elements_byte_table(job->dtype, p.byte_table);
  }
  cudaError_t code =
      cudaMemsetAsync(d_result, 0, histogram ? result_nbytes : sizeof(*p.head), stream);
  if (code == cudaSuccess) {
    code = launch_plan(plan, stream);
  }
  if (code == cudaSuccess && has_partials) {
    code = finish_by_kind(plan, cells, stream);
  }
  return code;
}
