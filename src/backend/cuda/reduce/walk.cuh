/* A team of threads, a thread block or a warp, reads its split of a cell. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_WALK_CUH
#define GPUFI_BACKEND_CUDA_REDUCE_WALK_CUH

#include "backend/cuda/reduce/box.cuh"
#include "backend/cuda/reduce/readers.cuh"

namespace gpufi {

constexpr int kPerSettle = 16; /* steps of four elements between two calls of settle() */

/* A sink has add(reader, values), for as many values as the array has, and settle(), which a thread
 * calls after every few dozen elements. */

template <typename Reader, typename Sink>
__device__ void add_one(const Reader &reader, const char *from, bool aligned, Sink &sink) {
  const typename Reader::value v[1] = {reader.of(load_one<typename Reader::raw>(from, aligned))};
  sink.add(reader, v);
}

/* `count` contiguous elements, at an address that is a multiple of their size. */
template <typename Reader, typename Sink>
__device__ void walk_contiguous(int team, const Reader &reader, const char *from, int count,
                                Sink &sink) {
  using raw = typename Reader::raw;
  constexpr int kSize = sizeof(raw), kPer = 16 / kSize, kUnroll = 4;
  const int tid = static_cast<int>(threadIdx.x) & (team - 1);
  int head = static_cast<int>((16 - reinterpret_cast<uintptr_t>(from) % 16) % 16) / kSize;
  head = head < count ? head : count;
  const int packs = (count - head) / kPer;
  const char *body = from + head * kSize;
  if (tid < head) {
    add_one(reader, from + tid * kSize, true, sink);
  }
  int i = tid;
  for (; i + (kUnroll - 1) * team < packs; i += kUnroll * team) {
    word_pack<4> pack[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; k++) {
      pack[k].load(body + (i + k * team) * 16);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; k++) {
      typename Reader::value v[kPer];
#pragma unroll
      for (int j = 0; j < kPer; j++) {
        v[j] = reader.of(pack[k].template element<raw>(j));
      }
      sink.add(reader, v);
    }
  }
  for (; i < packs; i += team) {
    word_pack<4> pack;
    pack.load(body + i * 16);
    typename Reader::value v[kPer];
#pragma unroll
    for (int j = 0; j < kPer; j++) {
      v[j] = reader.of(pack.template element<raw>(j));
    }
    sink.add(reader, v);
  }
  const int tail = head + packs * kPer + tid;
  if (tail < count) {
    add_one(reader, from + tail * kSize, true, sink);
  }
}

/* Rows of contiguous elements, by segments, which the splits of a cell take in turn. The team
 * has `team` threads, a power of two. */
template <typename Reader, typename Sink>
__device__ void walk_rows(int team, const reduce_params &p, const box &b, int64_t split,
                          const Reader &reader, Sink &sink) {
  constexpr int kSize = sizeof(typename Reader::raw), kSegment = kSegmentNbytes / kSize;
  const int64_t per_row = (b.length + kSegment - 1) / kSegment;
  const int64_t total = b.rows * per_row;
  for (int64_t t = split; t < total; t += p.splits) {
    const int64_t row = b.rows == 1 ? 0 : t / per_row;
    const int64_t start = (t - row * per_row) * kSegment;
    const int64_t left = b.length - start;
    const int64_t offset = b.rows == 1 ? 0 : box_offset(p.job, b, row, b.rows, p.job.ndim - 1);
    walk_contiguous(team, reader, p.base + b.offset + offset + start * kSize,
                    static_cast<int>(left < kSegment ? left : kSegment), sink);
    sink.settle();
  }
}

/* Elements anywhere: each split of a cell takes equally many consecutive ones, in C order. */
template <typename Reader, typename Sink>
__device__ void walk_elements(const reduce_params &p, const box &b, int64_t split,
                              const Reader &reader, Sink &sink) {
  const int64_t total = b.rows * b.length;
  const int64_t each = (total + p.splits - 1) / p.splits;
  const int64_t end = (split + 1) * each < total ? (split + 1) * each : total;
  const char *first = p.base + b.offset;
  int steps = 0;
  for (int64_t i = split * each + threadIdx.x; i < end; i += 4 * kThreads) {
    if (i + 3 * kThreads < end) {
      int64_t offsets[4];
      typename Reader::raw raw[4];
      typename Reader::value v[4];
      box_offsets(p.job, b, i, kThreads, total, p.job.ndim, offsets);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        raw[k] = load_one<typename Reader::raw>(first + offsets[k], p.aligned);
      }
#pragma unroll
      for (int k = 0; k < 4; k++) {
        v[k] = reader.of(raw[k]);
      }
      sink.add(reader, v);
    } else {
#pragma unroll 1
      for (int64_t k = i; k < end; k += kThreads) {
        add_one(reader, first + box_offset(p.job, b, k, total, p.job.ndim), p.aligned, sink);
      }
    }
    if (++steps == kPerSettle) {
      sink.settle();
      steps = 0;
    }
  }
  sink.settle();
}

} // namespace gpufi

#endif
