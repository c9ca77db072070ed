/* An LZ4 block, encoded by a warp; codec/lz4.c is the reference, and its bytes are these.
 *
 * The lanes look at the next 32 positions at once, each with the candidate that the reference would
 * have there: the nearest lane below it with the same hash, else what the table says. Up to the
 * first match, that is what happened in the reference; the lanes after it are looked at again. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_LZ4_CUH
#define GPUFI_BACKEND_CUDA_CODEC_LZ4_CUH

#include "backend/cuda/warp.cuh"

extern "C" {
#include "codec/lz4.h"
}

namespace gpufi {

constexpr uint32_t kLz4Hashes = 1u << GPUFI_LZ4_HASH_BITS;

/* Where a warp last looked at each hash, in shared memory. */
struct lz4_table {
  uint32_t words[kLz4Hashes / 2];

  __device__ uint16_t *last() {
    return reinterpret_cast<uint16_t *>(words);
  }

  /* Both by all lanes. */
  __device__ void clear(uint32_t lane) {
    for (uint32_t i = lane; i < kLz4Hashes / 2; i += kWarp) {
      words[i] = 0;
    }
    __syncwarp();
  }
  __device__ void copy(const uint32_t *from, uint32_t lane) {
    for (uint32_t i = lane; i < kLz4Hashes / 2; i += kWarp) {
      words[i] = from[i];
    }
    __syncwarp();
  }
};

/* Shared memory of a warp; `raw` is written by the caller. */
template <uint32_t kRawNbytes> struct lz4_shared {
  uint32_t raw[kRawNbytes / 4 + 1]; /* the last word is read, and not used */
  lz4_table table;
};

/* The four bytes from `at` on. */
__device__ inline uint32_t lz4_load(const uint32_t *raw, uint32_t at) {
  return __funnelshift_r(raw[at / 4], raw[at / 4 + 1], at % 4 * 8);
}

/* How many bytes from `a` and from `b` on are the same; `b` comes later and ends at `end`. */
__device__ inline uint32_t lz4_match(const uint32_t *raw, uint32_t a, uint32_t b, uint32_t end,
                                     uint32_t lane) {
  for (uint32_t done = 0;; done += 4 * kWarp) {
    const uint32_t at = done + 4 * lane;
    const uint32_t left = b + at < end ? end - b - at : 0;
    uint32_t same = 0;
    if (left > 0) {
      const uint32_t differing = lz4_load(raw, a + at) ^ lz4_load(raw, b + at);
      same = differing ? static_cast<uint32_t>(__ffs(static_cast<int>(differing)) - 1) / 8 : 4;
      same = same < left ? same : left;
    }
    const uint32_t ends = __ballot_sync(kAllLanes, same < 4);
    if (ends) {
      const int last = __ffs(static_cast<int>(ends)) - 1;
      return done + 4 * static_cast<uint32_t>(last) + __shfl_sync(kAllLanes, same, last);
    }
  }
}

/* How many bytes the first `tries` places without a match are apart in all: GPUFI_LZ4_PATIENCE
 * steps of one byte, as many of two, and so on. */
__device__ inline uint32_t lz4_steps(uint32_t tries) {
  const uint32_t longest = tries / GPUFI_LZ4_PATIENCE, rest = tries % GPUFI_LZ4_PATIENCE;
  return GPUFI_LZ4_PATIENCE * (longest * (longest + 1) / 2) + rest * (longest + 1);
}

/* Write the rest of a length that does not fit into four bits. Returns the number of bytes. */
__device__ inline uint32_t lz4_put_length(uint8_t *out, uint32_t length, uint32_t lane) {
  const uint32_t full = length / 255;
  for (uint32_t i = lane; i <= full; i += kWarp) {
    out[i] = static_cast<uint8_t>(i < full ? 255 : length % 255);
  }
  return full + 1;
}

/* The bytes of a sequence. */
__device__ inline uint32_t lz4_sequence_nbytes(uint32_t literal_count, uint32_t match_nbytes) {
  uint32_t nbytes = 1 + literal_count + (literal_count < 15 ? 0 : (literal_count - 15) / 255 + 1);
  if (match_nbytes) {
    const uint32_t extra = match_nbytes - GPUFI_LZ4_MATCH_NBYTES_MIN;
    nbytes += 2 + (extra < 15 ? 0 : (extra - 15) / 255 + 1);
  }
  return nbytes;
}

/* Literals, and the match after them unless its length is 0. */
__device__ inline void lz4_put_sequence(uint8_t *out, const uint8_t *literals,
                                        uint32_t literal_count, uint32_t offset,
                                        uint32_t match_nbytes, uint32_t lane) {
  const uint32_t extra = match_nbytes ? match_nbytes - GPUFI_LZ4_MATCH_NBYTES_MIN : 0;
  const uint32_t high = literal_count < 15 ? literal_count : 15, low = extra < 15 ? extra : 15;
  uint32_t at = 1;
  if (high == 15) {
    at += lz4_put_length(out + at, literal_count - 15, lane);
  }
  for (uint32_t i = lane; i < literal_count; i += kWarp) {
    out[at + i] = literals[i];
  }
  at += literal_count;
  if (lane == 0) {
    out[0] = static_cast<uint8_t>(high << 4 | low);
    if (match_nbytes) {
      out[at] = static_cast<uint8_t>(offset);
      out[at + 1] = static_cast<uint8_t>(offset >> 8);
    }
  }
  if (match_nbytes) {
    if (low == 15) {
      lz4_put_length(out + at + 2, extra - 15, lane);
    }
  }
}

/* Encode raw[begin .. end - 1], of which matches may begin before it, by a whole warp that has
 * synchronized since these bytes were written; `table` is what encoding raw[0 .. begin - 1] left,
 * or zeros if `begin` is 0, and is updated. `raw` has one word more, which is read and not used.
 * Returns the bytes that this takes; if they are more than `capacity`, those of `out` are of no
 * use, and with a capacity of 0 none is written. The warp has synchronized then: `raw` may be
 * written. */
__device__ inline uint32_t lz4_encode_after(const uint32_t *raw, uint32_t begin, uint32_t end,
                                            lz4_table *table, uint8_t *out, uint32_t capacity,
                                            uint32_t lane) {
  const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(raw);
  uint16_t *const last = table->last();
  uint32_t anchor = begin; /* where the literals that are not written yet begin */
  uint32_t at = begin ? begin : 1, used = 0;
  uint32_t tries = 0; /* places without a match since the last one, before `at` */
  const auto put = [&](uint32_t literal_count, uint32_t offset, uint32_t match_nbytes) {
    const uint32_t nbytes = lz4_sequence_nbytes(literal_count, match_nbytes);
    if (used + nbytes <= capacity) {
      lz4_put_sequence(out + used, bytes + anchor, literal_count, offset, match_nbytes, lane);
    }
    used += nbytes;
  };
  while (at + GPUFI_LZ4_MATCH_START_MARGIN <= end) {
    const uint32_t here = at + lz4_steps(tries + lane) - lz4_steps(tries);
    const bool counts = here + GPUFI_LZ4_MATCH_START_MARGIN <= end;
    const uint32_t four_bytes = counts ? lz4_load(raw, here) : 0;
    const uint32_t hash = GPUFI_LZ4_HASH(four_bytes);
    const uint32_t alike = __match_any_sync(kAllLanes, counts ? hash : kLz4Hashes + lane);
    const uint32_t below = alike & ((1u << lane) - 1);
    const int nearest = below ? 31 - __clz(static_cast<int>(below)) : 0;
    const uint32_t nearest_at = __shfl_sync(kAllLanes, here, nearest);
    const uint32_t candidate = below ? nearest_at : last[hash];
    const bool found = counts && lz4_load(raw, candidate) == four_bytes;
    const uint32_t matches = __ballot_sync(kAllLanes, found);
    const int first = matches ? __ffs(static_cast<int>(matches)) - 1 : kWarp - 1;
    const uint32_t seen = kAllLanes >> (kWarp - 1 - first); /* lanes up to the first match */
    __syncwarp();                                           /* the table is read */
    if (counts && (seen >> lane & 1) && (alike & seen & ~((2u << lane) - 1)) == 0) {
      last[hash] = static_cast<uint16_t>(here);
    }
    __syncwarp();
    if (!matches) {
      at += lz4_steps(tries + kWarp) - lz4_steps(tries);
      tries += kWarp;
      continue;
    }
    const uint32_t from = __shfl_sync(kAllLanes, candidate, first);
    const uint32_t start = __shfl_sync(kAllLanes, here, first);
    const uint32_t length = lz4_match(raw, from, start, end - GPUFI_LZ4_LAST_LITERALS, lane);
    put(start - anchor, start - from, length);
    anchor = at = start + length;
    tries = 0;
  }
  put(end - anchor, 0, 0);
  __syncwarp(); /* the bytes and the table are read: votes and shuffles do not order memory */
  return used;
}

/* Encode the first `nbytes` of shared->raw, as above. Returns the bytes used of `out`, of
 * gpufi_lz4_bound(nbytes). */
template <uint32_t kRawNbytes>
__device__ uint32_t lz4_encode(lz4_shared<kRawNbytes> *shared, uint32_t nbytes, uint8_t *out,
                               uint32_t lane) {
  shared->table.clear(lane);
  return lz4_encode_after(shared->raw, 0, nbytes, &shared->table, out, UINT32_MAX, lane);
}

} // namespace gpufi

#endif
