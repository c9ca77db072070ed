#include "codec/lz4.h"
#include "codec/bytes.h"
#include "codec/corrupt.h"

#include <string.h>

#define NIBBLE_MAX 15
/* The decoder copies lengths of up to COPY_NBYTES as exactly that many, and short matches in steps
 * of it, up to SHORT_NBYTES: copies of a fixed size are loads and stores without a call. They are
 * made only where they stay inside the buffers, and what they write too far is overwritten later.
 */
#define COPY_NBYTES 16
#define SHORT_NBYTES 64

/* --- encoding --- */

/* A sequence is a token, literals and a match, which is some bytes of earlier output:
 *
 *   | token | length bytes | literals | offset, 2 bytes | length bytes |
 *
 * The token's upper nibble is the number of literals, its lower one the match's length less 4. A
 * nibble of 15 has length bytes, which are added to it, up to the first that is not 255. The last
 * sequence has no match. */

/* The length bytes for a length of which the nibble's 15 have been taken off. */
static uint8_t *put_length(uint8_t *out, size_t length) {
  for (; length >= 255; length -= 255) {
    *out++ = 255;
  }
  *out++ = (uint8_t)length;
  return out;
}

/* Literals, and the match after them unless its length is 0. A few literals are copied as 8 or 16
 * bytes: at least 12 bytes of the block begin with the match, so that as many can be read; and the
 * sequences so far take at most gpufi_lz4_bound() of their bytes less 16, and these 12 and the
 * literals are still to come, so that as many can be written. */
static uint8_t *put_sequence(uint8_t *out, const uint8_t *literals, size_t literal_count,
                             size_t offset, size_t match_nbytes) {
  const size_t extra = match_nbytes ? match_nbytes - GPUFI_LZ4_MATCH_NBYTES_MIN : 0;
  const size_t high = literal_count < NIBBLE_MAX ? literal_count : NIBBLE_MAX;
  const size_t low = extra < NIBBLE_MAX ? extra : NIBBLE_MAX;
  *out++ = (uint8_t)(high << 4 | low);
  if (high == NIBBLE_MAX) {
    out = put_length(out, literal_count - NIBBLE_MAX);
  }
  if (match_nbytes && literal_count <= 8) {
    memcpy(out, literals, 8);
  } else if (match_nbytes && literal_count <= 16) {
    memcpy(out, literals, 16);
  } else {
    memcpy(out, literals, literal_count);
  }
  out += literal_count;
  if (match_nbytes) {
    *out++ = (uint8_t)offset;
    *out++ = (uint8_t)(offset >> 8);
    if (low == NIBBLE_MAX) {
      out = put_length(out, extra - NIBBLE_MAX);
    }
  }
  return out;
}

/* How many bytes from `a` and from `b` on are the same; `b` comes later and ends at `end`. */
static size_t match_length(const uint8_t *a, const uint8_t *b, const uint8_t *end) {
  const uint8_t *const begin = b;
  while (end - b >= 8) {
    const uint64_t differing = gpufi_load_u64(a) ^ gpufi_load_u64(b);
    if (differing != 0) {
      return (size_t)(b - begin) + (size_t)__builtin_ctzll(differing) / 8;
    }
    a += 8;
    b += 8;
  }
  while (b < end && *a == *b) {
    a++;
    b++;
  }
  return (size_t)(b - begin);
}

size_t gpufi_lz4_encode_after(gpufi_lz4_table *table, const uint8_t *raw, size_t begin, size_t end,
                              uint8_t *encoded) {
  uint8_t *out = encoded;
  size_t anchor = begin; /* where the literals that are not written yet begin */
  size_t at = begin ? begin : 1;
  size_t tries = 0; /* places without a match since the last one */
  while (at + GPUFI_LZ4_MATCH_START_MARGIN <= end) {
    const uint32_t four_bytes = gpufi_load_u32(raw + at);
    uint16_t *const bucket = &table->last[GPUFI_LZ4_HASH(four_bytes)];
    const size_t candidate = *bucket;
    *bucket = (uint16_t)at;
    if (gpufi_load_u32(raw + candidate) != four_bytes) {
      at += 1 + tries++ / GPUFI_LZ4_PATIENCE;
      continue;
    }
    const size_t nbytes =
        match_length(raw + candidate, raw + at, raw + end - GPUFI_LZ4_LAST_LITERALS);
    out = put_sequence(out, raw + anchor, at - anchor, at - candidate, nbytes);
    at += nbytes;
    anchor = at;
    tries = 0;
  }
  out = put_sequence(out, raw + anchor, end - anchor, 0, 0);
  return (size_t)(out - encoded);
}

size_t gpufi_lz4_encode(const uint8_t *raw, size_t raw_nbytes, uint8_t *encoded) {
  gpufi_lz4_table table = {{0}};
  return gpufi_lz4_encode_after(&table, raw, 0, raw_nbytes, encoded);
}

/* --- decoding --- */

typedef struct cursor {
  const uint8_t *in;
  const uint8_t *in_end;
  uint8_t *out;
  uint8_t *out_end;
} cursor;

/* Add its length bytes to a length whose nibble is 15. False at the input's end, and for lengths
 * that no block has, before they could wrap. */
static bool get_length(cursor *c, size_t *length) {
  uint8_t byte;
  do {
    if (c->in == c->in_end || *length > UINT32_MAX) {
      return false;
    }
    byte = *c->in++;
    *length += byte;
  } while (byte == 255);
  return true;
}

/* Both return what is wrong with the input, or null. */
static const char *get_literals(cursor *c, size_t count) {
  if (count == NIBBLE_MAX && !get_length(c, &count)) {
    return "a length runs past the end of the block";
  }
  if (count > (size_t)(c->in_end - c->in)) {
    return "literals run past the end of the block";
  }
  if (count > (size_t)(c->out_end - c->out)) {
    return "literals run past the end of the decoded block";
  }
  if (count <= COPY_NBYTES && c->in_end - c->in >= COPY_NBYTES &&
      c->out_end - c->out >= COPY_NBYTES) {
    memcpy(c->out, c->in, COPY_NBYTES);
  } else {
    memcpy(c->out, c->in, count);
  }
  c->in += count;
  c->out += count;
  return NULL;
}

/* Copy `nbytes` from `offset` back on. Where the offset is less than nbytes these are bytes that
 * this copy writes itself: the `offset` bytes before `out`, over and over. */
static void repeat(uint8_t *out, size_t offset, size_t nbytes) {
  const uint8_t *const from = out - offset;
  size_t done = offset < nbytes ? offset : nbytes;
  if (offset == 1) {
    memset(out, *from, nbytes);
    return;
  }
  memcpy(out, from, done);
  while (done < nbytes) { /* twice as many each time, for all from `from` on repeats */
    const size_t left = nbytes - done;
    const size_t step = done + offset < left ? done + offset : left;
    memcpy(out + done, from, step);
    done += step;
  }
}

/* No match begins before `first`. */
static const char *get_match(cursor *c, size_t nbytes, const uint8_t *first) {
  if (c->in_end - c->in < 2) {
    return "an offset runs past the end of the block";
  }
  const size_t offset = (size_t)c->in[0] | (size_t)c->in[1] << 8;
  c->in += 2;
  if (nbytes == NIBBLE_MAX && !get_length(c, &nbytes)) {
    return "a length runs past the end of the block";
  }
  nbytes += GPUFI_LZ4_MATCH_NBYTES_MIN;
  if (offset == 0 || offset > (size_t)(c->out - first)) {
    return "an offset points before the block";
  }
  if (nbytes > (size_t)(c->out_end - c->out)) {
    return "a match runs past the end of the decoded block";
  }
  if (offset >= COPY_NBYTES && nbytes <= SHORT_NBYTES && c->out_end - c->out >= SHORT_NBYTES) {
    for (size_t done = 0; done < nbytes; done += COPY_NBYTES) {
      memcpy(c->out + done, c->out + done - offset, COPY_NBYTES);
    }
  } else {
    repeat(c->out, offset, nbytes);
  }
  c->out += nbytes;
  return NULL;
}

gpuf_status gpufi_lz4_decode(const uint8_t *encoded, size_t encoded_nbytes, size_t at,
                             size_t before_nbytes, uint8_t *raw, size_t raw_nbytes,
                             gpuf_error *err) {
  cursor c = {encoded, encoded + encoded_nbytes, raw, raw + raw_nbytes};
  const char *wrong = encoded_nbytes ? NULL : "the block is empty";
  while (!wrong && c.in < c.in_end) {
    const uint8_t token = *c.in++;
    wrong = get_literals(&c, token >> 4);
    if (!wrong && c.in < c.in_end) {
      wrong = get_match(&c, token & NIBBLE_MAX, raw - before_nbytes);
      if (!wrong && c.in == c.in_end) {
        wrong = "the block ends with a match";
      }
    }
  }
  if (!wrong && c.out != c.out_end) {
    wrong = "the block ends too early";
  }
  if (wrong) {
    return gpufi_corrupt(err, at + (size_t)(c.in - encoded), wrong);
  }
  return GPUF_OK;
}
