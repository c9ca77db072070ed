/* What a launch of a reduction kernel is given. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_PARAMS_CUH
#define GPUFI_BACKEND_CUDA_REDUCE_PARAMS_CUH

#include <cuda_runtime.h>

#include "backend/cuda/warp.cuh"
#include "backend/reduce_impl.h"

namespace gpufi {

constexpr int kThreads = 256; /* of a thread block */
constexpr int kWarps = kThreads / kWarp;
constexpr int kSegmentNbytes = 65536; /* of a row, that a team of threads takes at a time */

/* blockIdx.x counts the cells (or the tiles of them) and, for each of these, the `splits` that its
 * elements are divided into. The partial result of split s of cell c goes to
 * out[s * cell_count + c]. */
struct reduce_params {
  gpufi_reduce job;
  const char *base;
  gpufi_reduce_head *head;
  void *out; /* partial results; of kinds that have none, the plane of results */
  int64_t splits;
  bool vector;  /* 16-byte (columns: wide enough) loads along the last axis */
  bool warps;   /* a warp for each cell, not a thread block; only with `vector` and one split */
  bool aligned; /* every address is a multiple of the element's size */
  /* Columns: */
  int64_t tiles;          /* along the last axis */
  int64_t cells_per_tile; /* along the last axis */
  int32_t columns_log2;   /* threads along the last axis; the others go down the rows */
  int32_t lanes;          /* that share a cell at the end; a power of two up to 32 */
  /* Histogram: */
  const double *edges;
  double bin_scale;
  int32_t copies; /* of the bins in shared memory; 0: counted in device memory */
  bool edges_shared;
  /* The values of a one-byte type by their bits. */
  float byte_table[256];
};

/* The launchers: cells.cu, columns.cu, histogram.cu. */
cudaError_t launch_cells(const reduce_params &p, unsigned thread_blocks, cudaStream_t stream);
cudaError_t launch_columns(const reduce_params &p, unsigned thread_blocks, cudaStream_t stream);
cudaError_t launch_histogram(const reduce_params &p, unsigned thread_blocks, cudaStream_t stream);

} // namespace gpufi

#endif
