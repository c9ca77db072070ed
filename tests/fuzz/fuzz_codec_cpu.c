/* One implementation of the codec (FUZZ_CPU) against the scalar one, on any bytes: the same
 * verdict, message and values when decoding, with and without the checksum and payload length made
 * right; and what decodes, or the input itself as values, encodes to the same bytes. */
#include "chunk_input.h"
#include "codec/cpu.h"
#include "codec/geometry.h"

#include <stdio.h>
#include <unistd.h>

static const gpufi_cpu *tested_cpu(void) {
  const gpufi_cpu *const cpu = gpufi_cpu_find(FUZZ_CPU);
  if (cpu == NULL) {
    fprintf(stderr, "this CPU has no " FUZZ_CPU ": nothing to test\n");
    _exit(0); /* libFuzzer takes exit() for a crash */
  }
  return cpu;
}

static void compare_encoders(const gpufi_chunk_shape *shape, const uint8_t *raw, size_t raw_nbytes,
                             bool big_endian) {
  size_t want_nbytes, nbytes;
  gpufi_cpu_use(&gpufi_cpu_scalar);
  uint8_t *want = encode(shape, raw, raw_nbytes, big_endian, &want_nbytes);
  gpufi_cpu_use(tested_cpu());
  uint8_t *encoded = encode(shape, raw, raw_nbytes, big_endian, &nbytes);
  if (nbytes != want_nbytes || memcmp(encoded, want, nbytes) != 0) {
    abort();
  }
  free(want);
  free(encoded);
}

static void compare_decoders(const uint8_t *chunk, size_t nbytes) {
  gpufi_chunk_shape shape;
  gpuf_error want_err, err;
  size_t raw_nbytes;
  if (gpufi_codec_inspect(chunk, nbytes, &shape, &raw_nbytes, NULL) != GPUF_OK ||
      raw_nbytes > RAW_NBYTES_MAX) {
    return;
  }
  uint8_t *want = malloc(raw_nbytes), *raw = malloc(raw_nbytes);
  gpufi_cpu_use(&gpufi_cpu_scalar);
  const gpuf_status verdict = gpufi_codec_decode(chunk, nbytes, want, raw_nbytes, &want_err);
  gpufi_cpu_use(tested_cpu());
  if (gpufi_codec_decode(chunk, nbytes, raw, raw_nbytes, &err) != verdict ||
      (verdict == GPUF_OK ? memcmp(raw, want, raw_nbytes)
                          : strcmp(err.message, want_err.message)) != 0) {
    abort();
  }
  if (verdict == GPUF_OK) {
    compare_encoders(&shape, want, raw_nbytes, false);
    compare_encoders(&shape, want, raw_nbytes, true);
  }
  free(want);
  free(raw);
}

/* The input as values, of a type and in lines of a length that its first bytes choose. */
static void compare_on_values(const uint8_t *data, size_t nbytes) {
  if (nbytes < 4) {
    return;
  }
  gpufi_chunk_shape shape = {(gpuf_dtype)(1 + data[0] % GPUF_DTYPE_MAX), 2, {0}};
  const size_t count = (nbytes - 3) / gpufi_chunk_element_nbytes(shape.dtype);
  const uint32_t length = 1 + data[1];
  if (count < length) {
    return;
  }
  shape.dims[0] = (uint32_t)(count / length);
  shape.dims[1] = length;
  const size_t raw_nbytes =
      (size_t)shape.dims[0] * length * gpufi_chunk_element_nbytes(shape.dtype);
  uint8_t *exact = exact_copy(data + 3, raw_nbytes);
  compare_encoders(&shape, exact, raw_nbytes, data[2] & 1);
  free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  for_each_chunk(data, nbytes, compare_decoders);
  compare_on_values(data, nbytes);
  return 0;
}
