/* The chunk decoder for pages: a WebAssembly module without imports, from the sources of which the
 * library's decoder is made. viewer.js calls it, and tools/build_decoder.py compiles it to
 * decoder.wasm, which is committed, so that a build needs no compiler for WebAssembly.
 *
 * The page copies a chunk into memory that it has reserved, and what it is decoded to out of it.
 * Bytes are untrusted: a chunk can do no more than fail, and the page's own memory is out of
 * reach of whatever is done here.
 *
 * Thread-safety: none; a page calls it from one thread. */
#include "base/error.h"
#include "codec/bytes.h"
#include "codec/codec.h"
#include "codec/cpu.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED(name) __attribute__((export_name(name)))

/* What the sizes of a chunk are computed from: far enough below 4 GiB that no sum or product of
 * them leaves 32 bits, and far above a tile. */
#define NBYTES_MAX (1u << 28)

/* --- What the decoder needs of the library -----------------------------------------------------
 */

const gpufi_cpu *gpufi_cpu_get(void) {
  return &gpufi_cpu_scalar;
}

gpuf_status gpufi_cpu_check(gpuf_error *err) {
  (void)err;
  return GPUF_OK;
}

typedef struct text {
  char *at;
  size_t left; /* without the NUL at the end */
} text;

static void put(text *t, const char *from, size_t nbytes) {
  const size_t kept = nbytes < t->left ? nbytes : t->left;
  memcpy(t->at, from, kept);
  t->at += kept;
  t->left -= kept;
}

static void put_number(text *t, bool is_negative, uint64_t magnitude) {
  char digits[20];
  size_t at = sizeof(digits);
  do {
    digits[--at] = (char)('0' + magnitude % 10);
    magnitude /= 10;
  } while (magnitude != 0);
  put(t, "-", is_negative ? 1 : 0);
  put(t, digits + at, sizeof(digits) - at);
}

/* The conversions that messages of the decoder have. printf would be half as large as all else. */
static const char *put_conversion(text *t, const char *format, va_list *args) {
  if (strncmp(format, "%s", 2) == 0) {
    const char *const string = va_arg(*args, const char *);
    put(t, string, strlen(string));
    return format + 2;
  }
  if (strncmp(format, "%d", 2) == 0) {
    const int value = va_arg(*args, int);
    put_number(t, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    return format + 2;
  }
  if (strncmp(format, "%zu", 3) == 0) {
    put_number(t, false, va_arg(*args, size_t));
    return format + 3;
  }
  if (strncmp(format, "%llu", 4) == 0) {
    put_number(t, false, va_arg(*args, unsigned long long));
    return format + 4;
  }
  put(t, format, 1);
  return format + 1;
}

gpuf_status gpufi_fail(gpuf_error *err, gpuf_status status, int64_t native_code, const char *format,
                       ...) {
  if (err) {
    va_list args;
    text t = {err->message, sizeof(err->message) - 1};
    err->status = status;
    err->native_code = native_code;
    va_start(args, format);
    while (*format) {
      const size_t plain = strcspn(format, "%");
      put(&t, format, plain);
      format += plain;
      if (*format) {
        format = put_conversion(&t, format, &args);
      }
    }
    va_end(args);
    *t.at = '\0';
  }
  return status;
}

/* --- What the page calls -----------------------------------------------------------------------
 */

/* Memory for a chunk and what it is decoded to, aligned to 16 bytes; null if there is none. */
EXPORTED("reserve") void *reserve(size_t nbytes);
void *reserve(size_t nbytes) {
  return malloc(nbytes);
}

EXPORTED("release") void release(void *memory);
void release(void *memory) {
  free(memory);
}

/* Decode a chunk into exactly `raw_nbytes` bytes. Null, or a message that says what is wrong with
 * the chunk, until the next call; then what is in `raw` is indeterminate. */
EXPORTED("decode")
const char *decode(const void *encoded, size_t encoded_nbytes, void *raw, size_t raw_nbytes);
const char *decode(const void *encoded, size_t encoded_nbytes, void *raw, size_t raw_nbytes) {
  static gpuf_error err;
  uint64_t claimed = 0;
  if (encoded_nbytes >= GPUFI_HEADER_NBYTES) {
    claimed = gpufi_load_u64((const uint8_t *)encoded + GPUFI_AT_RAW_NBYTES);
  }
  if (encoded_nbytes > NBYTES_MAX || claimed > NBYTES_MAX) {
    gpufi_fail(&err, GPUF_ERR_UNSUPPORTED, 0,
               "the chunk has %zu bytes and says that it decodes to %llu; pages decode up to %d",
               encoded_nbytes, (unsigned long long)claimed, (int)NBYTES_MAX);
    return err.message;
  }
  return gpufi_codec_decode(encoded, encoded_nbytes, raw, raw_nbytes, &err) == GPUF_OK
             ? NULL
             : err.message;
}
