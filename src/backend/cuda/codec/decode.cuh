/* What the decoder's kernels pass to each other. All of the scratch is zero at the start. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_DECODE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_DECODE_CUH

#include <cuda_runtime_api.h>

#include "backend/cuda/codec/planes.cuh"
#include "backend/cuda/codec/ranks.cuh"

extern "C" {
#include "codec/number.h"
}

namespace gpufi {

/* The state of a chunk. The opening kernel sets all but the last three members. */
struct decode_state {
  const uint8_t *chunk;
  uint64_t nbytes;
  uint64_t seed[2];
  uint64_t wanted[2]; /* the checksum that the header gives */
  uint64_t offset;    /* that each residual is less by */
  uint8_t mode, subset;
  uint8_t transform, swap; /* none where the values have a base: */
  bool is_based;
  bool has_planes;
  bool base_swap; /* the values are big-endian */
  gpufi_numbers numbers;
  uint32_t stream_count;           /* of blocks: 2 with corrections */
  uint8_t arrangement, log2;       /* of matches: how residuals lie in a block, and its size */
  uint32_t descriptors_nbytes;     /* with their padding */
  rank_codes ranks;                /* of a ranked chunk */
  uint32_t descriptors_at;         /* in the chunk */
  bool is_left;                    /* to the CPU: by a dictionary */
  bool may_have_ranges;            /* of widths: not in version 1 */
  bool has_strips;                 /* it is for decode_strips() */
  bool is_open;                    /* the header and the sizes of the blocks are right */
  uint32_t is_bad;                 /* a block is not right */
  unsigned long long plain, mixed; /* checksum so far */

  /* Whether these launches decode it. */
  __device__ bool is_of(bool planes) const {
    return is_open && has_planes == planes;
  }
  /* And of these, decode.cu. */
  __device__ bool is_general(bool planes) const {
    return is_of(planes) && mode <= GPUFI_MODE_W8 && !has_strips;
  }
};

/* How many chunks there are for each of the launches, and how many runs of those that take them in
 * their order have been begun. */
struct decode_counts {
  uint32_t all, general, based, ranked, matches, predicted;
  uint32_t general_taken, predicted_taken;
};

/* The least plane of a chunk with strips, in values: so few begin in a run. */
#define GPUFI_STRIP_PLANE_MIN 512

/* Whether decode_strips() undoes the prediction along the axes of `subset`, of a chunk whose shape
 * fits. Where planes are predicted, a run either begins with one, or has no two values of a column
 * of planes. */
__device__ inline bool strips_undo(const chunk_grid &grid, uint32_t subset) {
  const uint32_t plane = grid.strides[2];
  const bool is_deep = (subset & 4) != 0;
  return (subset <= 1 || (subset & 2)) &&
         (!is_deep || plane >= kRunValues || kRunValues % plane == 0);
}

/* How threads share the columns of a run of strips, and the order of the runs. */
struct strip_plan {
  /* A thread has a pack of each row of a segment. Rows of at least as many packs as there are
   * threads are one segment, and a thread has several columns. */
  uint32_t row_packs, segment_count, segment_rows;
  bool rows_end_in_block; /* with a block, if the run begins with a row */
  /* Runs begin with rows and have segments: what a run goes on from in its columns is found by a
   * decoupled look-back, for which `tellers` warps of the run tell what they know of its last
   * row. */
  bool looks_back;
  uint32_t tellers;
  /* Runs of `width` chunks take turns: the first run of each, the second, ... The chunks that are
   * left at the end are fewer. */
  uint32_t chunk_count, width;
  divisor turn_runs, turn_width, last_width;
};

struct decode_job {
  chunk_grid grid;
  bool has_planes;      /* the chunks with planes are decoded, else those without */
  bool may_have_strips; /* chunks of this shape */
  strip_plan strips;
  symbol_place place; /* in version 1; no bits: values of this kind are not ranked */
  uint32_t chunk_count;
  const uint8_t *encoded;
  uint64_t encoded_nbytes;
  const gpufi_chunk_place *places;
  uint8_t *raw; /* or what join_planes() takes */
  uint32_t *verdicts;
  decode_state *states;
  uint32_t *run_offsets; /* of each run in its chunk, and of the chunk's end, in 16-byte units */
  uint32_t *run_done;    /* not 0: the run's values are written; of strips, a bit for each warp */
  /* Of strips: of each run how many warps have told the sum of its columns and, from bit 16 on, its
   * last row; and these sums. */
  uint32_t *run_told;
  uint4 *run_sums;
  /* Of matches: of each chunk where its blocks begin, counted from the first one, and where the
   * last one ends; and its first block, arranged. */
  uint32_t *block_offsets;
  uint32_t block_offset_count; /* of a chunk, at most */
  uint8_t *first_blocks;
  decode_counts *counts; /* of these launches */
};

/* In open.cu: check headers and find the runs; at the end, compare the checksums. `planes` is the
 * grid of chunks with planes, or null where they do not fit the shape. */
cudaError_t open_chunks(const decode_job &job, const chunk_grid *planes, cudaStream_t stream);
cudaError_t judge_chunks(const decode_job &job, cudaStream_t stream);
/* In decode_strips.cu: decode those that it is for. Whether chunks of a shape may be; the shared
 * memory that a thread block takes for it. */
cudaError_t decode_strips(const decode_job &job, cudaStream_t stream);
bool strips_fit(const chunk_grid &grid);
strip_plan plan_strips(const chunk_grid &grid, uint32_t chunk_count);
size_t strips_shared_nbytes(const chunk_grid &grid);
size_t strip_sums_nbytes(const chunk_grid &grid, size_t chunk_count); /* what run_sums takes */
/* In decode_base.cu: make values of what was predicted, where they have a base. */
cudaError_t decode_bases(const decode_job &job, cudaStream_t stream);
/* In decode_ranked.cu: decode the ranked ones. The shared memory that a thread block takes for it.
 */
cudaError_t decode_ranked_chunks(const decode_job &job, cudaStream_t stream);
size_t ranked_shared_nbytes(const chunk_grid &grid);
/* In decode_matches.cu: make residuals of the blocks of matches, or, where nothing is predicted,
 * values. */
cudaError_t decode_match_blocks(const decode_job &job, cudaStream_t stream);
/* In predict_matches.cu: then make values of the residuals. */
cudaError_t predict_matches(const decode_job &job, cudaStream_t stream);
/* In planes.cu: the chunks with planes that are decoded, from `coded` to `raw`; how many there are
 * is at `chunk_count`. */
cudaError_t join_planes(const planes_layout &layout, const decode_state *states,
                        const uint32_t *chunk_count, const uint8_t *coded, uint8_t *raw,
                        cudaStream_t stream);

} // namespace gpufi

#endif
