/* What the encoder's kernels pass to each other. All of the scratch is zero at the start. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_ENCODE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_ENCODE_CUH

#include <cuda_runtime_api.h>

#include <cstddef>

#include "backend/cuda/codec/ranks.cuh"

extern "C" {
#include "codec/number.h"
}

namespace gpufi {

constexpr uint32_t kStreams = 2; /* that may be encoded as matches: values and residuals */
constexpr uint32_t kMatchTrials =
    4;                         /* ways of encoding them: each stream as bytes, in bit planes */
constexpr int kTransforms = 2; /* that compete: rotate and order, or none alone */

/* How the runs of a chunk are encoded: those of each kind by a launch of its own, and behind those
 * of the kinds before. */
enum run_kind {
  kPlainRuns,
  kRankedRuns,
  kMatches,       /* which have no runs, and lie between those that have */
  kCorrectedRuns, /* of W8 with corrections */
  kRawCopies,     /* nor have chunks that are raw by their sample, behind all others */
  kRunKinds,
};

/* The cost of some sampled residuals. */
struct residual_cost {
  unsigned long long residual_or;
  uint32_t width_sum;      /* of the widest zigzagged residual of each group */
  uint32_t group_count;    /* groups that are not all 0 */
  uint32_t used_width_sum; /* as width_sum, times the group's residuals that are not 0 */
  uint32_t used_count;     /* residuals that are not 0 */

  __device__ void add_to(residual_cost *sum) const {
    atomicOr(&sum->residual_or, residual_or);
    atomicAdd(&sum->width_sum, width_sum);
    atomicAdd(&sum->group_count, group_count);
    atomicAdd(&sum->used_width_sum, used_width_sum);
    atomicAdd(&sum->used_count, used_count);
  }
};

/* What the sample shows of a stream. */
struct stream_signs {
  bool is_there, repeats;
  uint32_t busy; /* bits that a group has neither all 0 nor all 1 */
};

/* The state of a chunk while it is encoded. */
struct alignas(32) encode_state {
  /* What every run asks for, and so in one sector of memory. */
  uint8_t transform, subset; /* chosen */
  bool is_ranked;            /* then transform, subset and offset are those that W8 would have */
  bool is_match;             /* with transform, subset and offset, and */
  uint8_t arrangement;       /* of its blocks */
  /* W8 by way of a base: what is predicted is then in job.based, with transform none, along
   * `base_subset`, less `base_offset`. */
  bool is_based;
  uint8_t base_subset;
  bool seems_raw;   /* by the sample, it is noise */
  uint32_t is_left; /* to the CPU, unless it is constant: it may be one for a form that the kernels
                       do not write */
  uint32_t has_corrections;
  unsigned long long offset;  /* that each residual is less by */
  uint32_t parameters_nbytes; /* in the payload, with the fill */
  uint32_t is_lost;           /* to the CPU as well: there was no place for a run */
  /* Of a ranked chunk; and its symbol table. */
  rank_codes ranks;
  uint16_t symbols[GPUFI_TREE_LEAVES_MAX];
  gpufi_numbers numbers; /* of the base */
  unsigned long long base_offset;
  bool may_have_base;           /* choose_bases() is to look */
  stream_signs signs[kStreams]; /* of the values, and of W8's residuals if they differ */
  uint32_t tried_count;         /* trials that are done, with W8's */
  /* What W8 takes of the pieces that are tried, and what each trial takes of the first block and of
   * the pieces; in bits. */
  unsigned long long pieces_bits, first_bits[kMatchTrials], tried_bits[kMatchTrials];
  uint32_t varies;                 /* there are several values: only of matches */
  bool is_raw;                     /* it has been encoded, and took no less than the raw bytes */
  uint32_t done_count;             /* runs, or ranges of a raw chunk, that are written and summed */
  uint32_t slot;                   /* where it seems raw: which of those it is, in any order */
  unsigned long long w8_bits;      /* what W8 takes of values as they are, by the sample */
  unsigned long long bits;         /* what the form chosen so far takes by the sample */
  unsigned long long start;        /* of the chunk in the batch, plus one; 0 = not known yet */
  unsigned long long end;          /* set by the last run */
  unsigned long long plain, mixed; /* checksum, without the header */

  __device__ run_kind kind() const {
    return is_match                      ? kMatches
           : is_ranked                   ? kRankedRuns
           : has_corrections && !is_left ? kCorrectedRuns
           : seems_raw                   ? kRawCopies
                                         : kPlainRuns;
  }
};
static_assert(offsetof(encode_state, ranks) == 32, "what every run asks for");

/* The first block of a chunk of matches, arranged, and the table that encoding it left. */
struct first_block {
  uint4 units[1024];
  uint32_t table[2048];
};

/* What a launch knows of the runs of the batch: see lookback.cuh. */
struct run_sizes {
  uint32_t *sizes;            /* of each run, plus one; 0 = not known yet */
  unsigned long long *sums;   /* of each window of runs */
  unsigned long long *starts; /* of each window in the batch, plus one; 0 = not known yet */
};

struct encode_job {
  chunk_grid grid;
  bool swap;
  bool has_planes;  /* `raw` is what planes.cuh made of the chunks */
  bool can_correct; /* the device has the shared memory that corrections take */
  gpufi_cuts cuts;  /* where the symbols of ranked values may be */
  uint32_t chunk_count;
  const uint8_t *raw;
  const uint8_t *original; /* the chunks' own bytes */
  bool may_have_base;      /* chunks of these values */
  uint8_t *work; /* as many bytes as `raw`: what is predicted where there is a base; blocks of
                    matches until they are copied */
  uint8_t *encoded;
  uint64_t encoded_nbytes;
  gpufi_chunk_place *places;
  encode_state *states;
  /* Of each kind of run: their sizes, where they end in the batch, how many chunks there are at
   * most, and how many runs have been begun. */
  run_sizes runs_of[kRunKinds];
  unsigned long long *ends;
  uint32_t *counts[kRunKinds], *taken[kRunKinds];
  uint32_t *unshrunk_count; /* chunks that have been encoded and took no less than the raw bytes */
  uint32_t *based_count;    /* chunks with a base, at most */
  divisor runs;             /* of a chunk */
  /* Of matches: of each chunk the sizes of its blocks, where they begin, and, if there are several,
   * the first one. */
  uint32_t *match_sizes, *match_offsets;
  first_block *first_blocks;
};

/* Where the chunks of a kind begin in the batch, when those of the kinds before are encoded: a
 * launch without chunks of its kind does nothing. */
template <run_kind kKind> __device__ inline unsigned long long front_of(const encode_job &job) {
  unsigned long long front = 0;
#pragma unroll
  for (int k = 0; k < kKind; k++) {
    front = *job.counts[k] != 0 ? job.ends[k] : front;
  }
  return front;
}

/* Bytes of a chunk's descriptors, with their padding. */
template <run_kind kKind> __device__ inline uint32_t descriptors_nbytes(const chunk_grid &grid) {
  constexpr uint32_t kStreams = kKind == kCorrectedRuns ? 2 : 1;
  return static_cast<uint32_t>(
      gpufi_round_up_16(4 * kStreams * static_cast<size_t>(grid.block_count)));
}

/* In choose.cu: set transform, subset, offset, is_left and signs of every chunk, and whether it may
 * have a base. */
cudaError_t choose_predictions(const encode_job &job, cudaStream_t stream);
/* In choose_base.cu: then find the base of those that may have one; and, when all is chosen, fill
 * in `work`, and has_corrections. */
cudaError_t choose_bases(const encode_job &job, cudaStream_t stream);
cudaError_t convert_bases(const encode_job &job, cudaStream_t stream);
/* In choose_matches.cu: after choose_bases(), decide between matches and what is chosen so far. */
cudaError_t choose_matches(const encode_job &job, cudaStream_t stream);
/* In encode_matches.cu: encode the chunks of matches. */
cudaError_t encode_matches(const encode_job &job, cudaStream_t stream);
/* In encode_ranked.cu and encode_corrected.cu: encode the runs of these kinds. */
cudaError_t encode_ranked_runs(const encode_job &job, cudaStream_t stream);
cudaError_t encode_corrected_runs(const encode_job &job, cudaStream_t stream);
/* Shared memory that a thread block takes for them. */
size_t ranked_runs_shared_nbytes(const chunk_grid &grid);
size_t corrected_runs_shared_nbytes(const chunk_grid &grid);

} // namespace gpufi

#endif
