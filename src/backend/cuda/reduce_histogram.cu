/* Counting into bins: in shared memory where they fit, then by integer additions to the result. */
#include "backend/cuda/reduce_walk.cuh"

namespace gpufi_cuda {
namespace {

struct histogram_sink {
  const double *edges;
  double low, high, scale;
  int bin_count;
  uint32_t *shared;         /* or NULL */
  unsigned long long *bins; /* of the result */
  odd_count odd;

  template <typename Reader, int kCount>
  __device__ void add(const Reader &reader, const typename Reader::value (&v)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      const double x = reader.number(v[i]);
      if (x >= low && x <= high) {
        const int bin = static_cast<int>(gpufi_reduce_bin(x, edges, bin_count, scale));
        if (shared) {
          atomicAdd(&shared[bin], 1u);
        } else {
          atomicAdd(&bins[bin], 1ull);
        }
      } else if (x != x) {
        odd.nan++;
      } else if (x < low) {
        odd.low++;
      } else {
        odd.high++;
      }
    }
  }
  __device__ void settle() {}
};

template <typename Reader, bool kVector>
__global__ void __launch_bounds__(kThreads, 4)
    histogram_kernel(const __grid_constant__ reduce_params p) {
  extern __shared__ double dynamic[]; /* the edges, if they fit; then the copies of the bins */
  __shared__ box b;
  __shared__ float table[kThreads];
  const int bin_count = static_cast<int>(p.job.bin_count);
  uint32_t *copies = reinterpret_cast<uint32_t *>(dynamic + (p.edges_shared ? bin_count + 1 : 0));
  for (int i = threadIdx.x; i <= bin_count && p.edges_shared; i += kThreads) {
    dynamic[i] = p.edges[i];
  }
  for (int i = threadIdx.x; i < bin_count * p.copies; i += kThreads) {
    copies[i] = 0;
  }
  if (threadIdx.x == 0) {
    find_box(p.job, 0, p.job.ndim, &b);
  }
  __syncthreads();
  const Reader reader(p, table);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  histogram_sink sink = {p.edges_shared ? dynamic : p.edges,
                         p.edges[0],
                         p.edges[bin_count],
                         p.bin_scale,
                         bin_count,
                         p.copies > 0 ? copies + warp % p.copies * bin_count : nullptr,
                         static_cast<unsigned long long *>(p.out),
                         {}};
  if (kVector) {
    walk_rows(p, b, blockIdx.x, reader, sink);
  } else {
    walk_elements(p, b, blockIdx.x, reader, sink);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < bin_count && p.copies > 0; bin += kThreads) {
    unsigned long long count = 0;
    for (int k = 0; k < p.copies; k++) {
      count += copies[k * bin_count + bin];
    }
    if (count > 0) {
      atomicAdd(&sink.bins[bin], count);
    }
  }
  sink.odd.add_to(p.head);
}

struct launch {
  const reduce_params &p;
  unsigned blocks;
  cudaStream_t stream;

  template <typename Reader> cudaError_t run() const {
    const size_t edges = p.edges_shared ? p.job.bin_count + 1 : 0;
    const size_t shared = edges * sizeof(double) + p.job.bin_count * p.copies * sizeof(uint32_t);
    if (p.vector) {
      histogram_kernel<Reader, true><<<blocks, kThreads, shared, stream>>>(p);
    } else {
      histogram_kernel<Reader, false><<<blocks, kThreads, shared, stream>>>(p);
    }
    return cudaGetLastError();
  }
};

} // namespace

cudaError_t launch_histogram(const reduce_params &p, unsigned blocks, cudaStream_t stream) {
  return with_reader(p.job.dtype, launch{p, blocks, stream});
}

} // namespace gpufi_cuda
