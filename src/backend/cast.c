#include "backend/cast.h"

#include "backend/cast_impl.h"
#include "base/floating_point.h"

static bool is_real(gpuf_dtype dtype) {
  return dtype != GPUF_DTYPE_COMPLEX64 && dtype != GPUF_DTYPE_COMPLEX128;
}

bool gpufi_cast_offered(gpufi_cast cast) {
  return cast.from == cast.to ||
         (is_real(cast.from) && is_real(cast.to) && cast.to != GPUF_DTYPE_FLOAT8_E8M0FNU);
}

/* Elements are in the low bytes of a word, as on every machine that has a GPU: little-endian. */
static GPUFI_NOT_INLINED void cast_elements(gpufi_cast cast, const void *src, int64_t count,
                                            void *dst) {
  const size_t from_nbytes = gpuf_dtype_nbytes(cast.from), to_nbytes = gpuf_dtype_nbytes(cast.to);
  const char *in = src;
  char *out = dst;
  for (int64_t i = 0; i < count; i++) {
    uint64_t bits = 0;
    memcpy(&bits, in, from_nbytes);
    bits = gpufi_cast_bits(cast, bits);
    memcpy(out, &bits, to_nbytes);
    in += from_nbytes;
    out += to_nbytes;
  }
}

void gpufi_cast_elements(gpufi_cast cast, const void *src, int64_t count, void *dst) {
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  cast_elements(cast, src, count, dst);
  gpufi_floating_point_end(callers);
}
