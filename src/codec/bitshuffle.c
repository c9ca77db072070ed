#include "codec/bitshuffle.h"
#include "base/error.h"
#include "codec/bitplanes.h"
#include "codec/lz4.h"

#include <string.h>

#define BLOCK_ELEMENTS_MIN 128
#define GROUP GPUFI_BITPLANES_GROUP

_Static_assert(BLOCK_ELEMENTS_MIN *GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX <= GPUFI_LZ4_RAW_NBYTES_MAX,
               "the LZ4 encoder takes every block");

/* --- sizes --- */

static void store_be(uint8_t *at, uint64_t value, size_t nbytes) {
  for (size_t i = 0; i < nbytes; i++) {
    at[i] = (uint8_t)(value >> (8 * (nbytes - 1 - i)));
  }
}

static uint64_t load_be(const uint8_t *at, size_t nbytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < nbytes; i++) {
    value = value << 8 | at[i];
  }
  return value;
}

size_t gpufi_bitshuffle_block_elements(size_t element_nbytes) {
  const size_t fit = GPUFI_BITSHUFFLE_BLOCK_NBYTES / element_nbytes / GROUP * GROUP;
  return fit > BLOCK_ELEMENTS_MIN ? fit : BLOCK_ELEMENTS_MIN;
}

/* Bytes of the elements that are transposed: whole groups. */
static size_t grouped_nbytes(size_t element_nbytes, size_t raw_nbytes) {
  return raw_nbytes / element_nbytes / GROUP * GROUP * element_nbytes;
}

size_t gpufi_bitshuffle_bound(size_t element_nbytes, size_t raw_nbytes) {
  const size_t block_nbytes = gpufi_bitshuffle_block_elements(element_nbytes) * element_nbytes;
  const size_t block_count = raw_nbytes / block_nbytes + 1;
  return GPUFI_BITSHUFFLE_HEADER_NBYTES +
         block_count * (GPUFI_BITSHUFFLE_SIZE_NBYTES + gpufi_lz4_bound(0)) + raw_nbytes +
         raw_nbytes / 255;
}

size_t gpufi_bitshuffle_scratch_nbytes(size_t raw_nbytes) {
  return raw_nbytes;
}

/* --- chunks --- */

size_t gpufi_bitshuffle_encode(size_t element_nbytes, const void *raw, size_t raw_nbytes,
                               void *encoded, void *scratch) {
  const uint8_t *const bytes = raw;
  const size_t block_nbytes = gpufi_bitshuffle_block_elements(element_nbytes) * element_nbytes;
  const size_t grouped = grouped_nbytes(element_nbytes, raw_nbytes);
  uint8_t *out = encoded;
  store_be(out, raw_nbytes, 8);
  store_be(out + 8, block_nbytes, 4);
  out += GPUFI_BITSHUFFLE_HEADER_NBYTES;
  for (size_t at = 0; at < grouped;) {
    const size_t nbytes = grouped - at < block_nbytes ? grouped - at : block_nbytes;
    gpufi_bitplanes_split(element_nbytes, bytes + at, nbytes / element_nbytes, scratch,
                          nbytes / element_nbytes / GROUP);
    const size_t encoded_nbytes =
        gpufi_lz4_encode(scratch, nbytes, out + GPUFI_BITSHUFFLE_SIZE_NBYTES);
    store_be(out, encoded_nbytes, GPUFI_BITSHUFFLE_SIZE_NBYTES);
    out += GPUFI_BITSHUFFLE_SIZE_NBYTES + encoded_nbytes;
    at += nbytes;
  }
  memcpy(out, bytes + grouped, raw_nbytes - grouped);
  return (size_t)(out - (uint8_t *)encoded) + raw_nbytes - grouped;
}

/* Check the header, and set *block_nbytes from it, at most what there is to transpose. */
static gpuf_status read_header(size_t element_nbytes, const uint8_t *in, size_t encoded_nbytes,
                               size_t raw_nbytes, size_t *block_nbytes, gpuf_error *err) {
  const size_t grouped = grouped_nbytes(element_nbytes, raw_nbytes);
  if (encoded_nbytes < GPUFI_BITSHUFFLE_HEADER_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk: %zu bytes are too few for the header of %d", encoded_nbytes,
                      GPUFI_BITSHUFFLE_HEADER_NBYTES);
  }
  if (load_be(in, 8) != raw_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "byte 0: the chunk decodes to %llu bytes, but %zu are expected",
                      (unsigned long long)load_be(in, 8), raw_nbytes);
  }
  *block_nbytes = (size_t)load_be(in + 8, 4);
  if (*block_nbytes == 0 || *block_nbytes % (GROUP * element_nbytes) != 0) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk at byte 8: a block of %zu bytes is not a multiple of %d "
                      "elements of %zu bytes",
                      *block_nbytes, GROUP, element_nbytes);
  }
  if (*block_nbytes > grouped) {
    *block_nbytes = grouped;
  }
  return GPUF_OK;
}

gpuf_status gpufi_bitshuffle_decode(size_t element_nbytes, const void *encoded,
                                    size_t encoded_nbytes, void *raw, size_t raw_nbytes,
                                    void *scratch, gpuf_error *err) {
  const uint8_t *const in = encoded;
  uint8_t *const out = raw;
  const size_t grouped = grouped_nbytes(element_nbytes, raw_nbytes);
  size_t at = GPUFI_BITSHUFFLE_HEADER_NBYTES;
  size_t block_nbytes = 0;
  gpuf_status status =
      read_header(element_nbytes, in, encoded_nbytes, raw_nbytes, &block_nbytes, err);
  for (size_t done = 0; status == GPUF_OK && done < grouped;) {
    const size_t nbytes = grouped - done < block_nbytes ? grouped - done : block_nbytes;
    if (encoded_nbytes - at < GPUFI_BITSHUFFLE_SIZE_NBYTES ||
        load_be(in + at, GPUFI_BITSHUFFLE_SIZE_NBYTES) >
            encoded_nbytes - at - GPUFI_BITSHUFFLE_SIZE_NBYTES) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "corrupt chunk at byte %zu: the block runs past the end of the chunk", at);
    }
    const size_t size = (size_t)load_be(in + at, GPUFI_BITSHUFFLE_SIZE_NBYTES);
    at += GPUFI_BITSHUFFLE_SIZE_NBYTES;
    status = gpufi_lz4_decode(in + at, size, at, 0, scratch, nbytes, err);
    if (status == GPUF_OK) {
      gpufi_bitplanes_join(element_nbytes, scratch, nbytes / element_nbytes / GROUP,
                           nbytes / element_nbytes, out + done);
    }
    at += size;
    done += nbytes;
  }
  if (status == GPUF_OK && encoded_nbytes - at != raw_nbytes - grouped) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk at byte %zu: %zu bytes are left for the last %zu", at,
                      encoded_nbytes - at, raw_nbytes - grouped);
  }
  if (status == GPUF_OK) {
    memcpy(out + grouped, in + at, raw_nbytes - grouped);
  }
  return status;
}
