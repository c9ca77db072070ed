/* Counting into bins: in shared memory where they fit, then by integer additions to the result. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/reduce/results.cuh"
#include "backend/cuda/reduce/walk.cuh"

namespace gpufi {
namespace {

struct histogram_sink {
  const double *edges;
  double low, high, scale;
  int bin_count;
  uint32_t *shared;         /* or NULL */
  unsigned long long *bins; /* of the result */
  excluded_count excluded;
  float low_float, scale_float;
  float slack; /* how far off, in bins, a guess in float may be */

  __device__ histogram_sink(const reduce_params &p, const double *edges, uint32_t *shared)
      : edges(edges), low(p.edges[0]), high(p.edges[p.job.bin_count]), scale(p.bin_scale),
        bin_count(static_cast<int>(p.job.bin_count)), shared(shared),
        bins(static_cast<unsigned long long *>(p.out)), low_float(static_cast<float>(low)),
        scale_float(static_cast<float>(scale)) {
    const double off = scale * (fabs(low) + fabs(high)) + 2.0 * bin_count;
    slack = static_cast<float>(off * 0x1p-22); /* more than the roundings' sum */
  }

  __device__ void count(int bin) {
    if (shared) {
      atomicAdd(&shared[bin], 1u);
    } else {
      atomicAdd(&bins[bin], 1ull);
    }
  }

  /* False: too near an edge, or no bin at all. */
  __device__ bool guess(float v, int *bin) const {
    const float place = (v - low_float) * scale_float, whole = floorf(place);
    *bin = static_cast<int>(whole);
    return place - whole > slack && place - whole < 1.0f - slack && place > 0.0f &&
           place < static_cast<float>(bin_count);
  }
  template <typename Value> __device__ bool guess(Value, int *) const {
    return false;
  }

  __device__ void add_exactly(double x) {
    if (x >= low && x <= high) {
      count(static_cast<int>(gpufi_reduce_bin(x, edges, bin_count, scale)));
    } else if (x != x) {
      excluded.nan++;
    } else if (x < low) {
      excluded.low++;
    } else {
      excluded.high++;
    }
  }

  template <typename Reader, int kCount>
  __device__ void add(const Reader &reader, const typename Reader::value (&v)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      int bin;
      if (guess(v[i], &bin)) {
        count(bin);
      } else {
        add_exactly(reader.number(v[i]));
      }
    }
  }
  __device__ void settle() {}
};

template <typename Reader, bool kVector>
__global__ void __launch_bounds__(kThreads, 4)
    histogram_kernel(const __grid_constant__ reduce_params p) {
  /* The edges, if they fit; then the copies of the bins. */
  GPUFI_DYNAMIC_SHARED(double, dynamic);
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
    find_whole_box(p.job, &b);
  }
  __syncthreads();
  const Reader reader(p, table);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  histogram_sink sink(p, p.edges_shared ? dynamic : p.edges,
                      p.copies > 0 ? copies + warp % p.copies * bin_count : nullptr);
  if (kVector) {
    walk_rows(kThreads, p, b, blockIdx.x, reader, sink);
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
  sink.excluded.add_to(p.head);
}

struct launch {
  const reduce_params &p;
  unsigned thread_blocks;
  cudaStream_t stream;

  template <typename Reader> cudaError_t run() const {
    const size_t edges = p.edges_shared ? p.job.bin_count + 1 : 0;
    const size_t shared = edges * sizeof(double) + p.job.bin_count * p.copies * sizeof(uint32_t);
    const auto kernel = p.vector ? histogram_kernel<Reader, true> : histogram_kernel<Reader, false>;
    return launch_kernel(kernel, thread_blocks, kThreads, shared, stream, p);
  }
};

} // namespace

cudaError_t launch_histogram(const reduce_params &p, unsigned thread_blocks, cudaStream_t stream) {
  return with_reader(p.job.dtype, launch{p, thread_blocks, stream});
}

} // namespace gpufi
