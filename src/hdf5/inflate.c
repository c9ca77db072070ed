#include "hdf5/inflate.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What libdeflate.so.0 and libz.so.1 declare; both keep these as long as they keep their names. */
typedef void *(*alloc_function)(void);
typedef void (*free_function)(void *decompressor);
typedef int (*deflate_function)(void *decompressor, const void *in, size_t in_nbytes, void *out,
                                size_t out_capacity, size_t *out_nbytes);
typedef int (*zlib_function)(unsigned char *out, unsigned long *out_nbytes, const unsigned char *in,
                             unsigned long in_nbytes);

#define LIBDEFLATE_NO_SPACE 3
#define ZLIB_NO_MEMORY (-4)
#define ZLIB_NO_SPACE (-5) /* or the stream is cut short */

/* Filled once; constant from then on. */
static struct {
  const char *name;
  alloc_function alloc;
  free_function release;
  deflate_function decompress;
  zlib_function uncompress;
} library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_wanted(const char *name) {
  const char *const wanted = getenv("GPUFETCH_INFLATE");
  return !wanted || !*wanted || strcmp(wanted, "auto") == 0 || strcmp(wanted, name) == 0;
}

static void *find(void *handle, const char *symbol) {
  return handle ? dlsym(handle, symbol) : NULL;
}

/* The libraries stay loaded. */
static void look(void) {
  void *const deflate =
      is_wanted("libdeflate") ? dlopen("libdeflate.so.0", RTLD_NOW | RTLD_LOCAL) : NULL;
  *(void **)&library.alloc = find(deflate, "libdeflate_alloc_decompressor");
  *(void **)&library.release = find(deflate, "libdeflate_free_decompressor");
  *(void **)&library.decompress = find(deflate, "libdeflate_zlib_decompress");
  if (library.alloc && library.release && library.decompress) {
    library.name = "libdeflate";
    return;
  }
  void *const zlib = is_wanted("zlib") ? dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
  *(void **)&library.uncompress = find(zlib, "uncompress");
  library.name = library.uncompress ? "zlib" : NULL;
}

const char *gpufi_inflate_name(void) {
  pthread_once(&once, look);
  return library.name;
}

static gpuf_status fail(size_t encoded_nbytes, size_t capacity, bool is_long, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                    "its %zu bytes are no deflate stream%s of %zu bytes: they were altered, or cut "
                    "short",
                    encoded_nbytes, is_long ? ", or one of more than the chunk's, instead" : "",
                    capacity);
}

static gpuf_status by_libdeflate(const void *encoded, size_t encoded_nbytes, void *raw,
                                 size_t capacity, size_t *raw_nbytes, gpuf_error *err) {
  void *const decompressor = library.alloc();
  if (!decompressor) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for libdeflate's decompressor");
  }
  const int code =
      library.decompress(decompressor, encoded, encoded_nbytes, raw, capacity, raw_nbytes);
  library.release(decompressor);
  return code == 0 ? GPUF_OK : fail(encoded_nbytes, capacity, code == LIBDEFLATE_NO_SPACE, err);
}

static gpuf_status by_zlib(const void *encoded, size_t encoded_nbytes, void *raw, size_t capacity,
                           size_t *raw_nbytes, gpuf_error *err) {
  unsigned long nbytes = capacity;
  const int code = library.uncompress(raw, &nbytes, encoded, encoded_nbytes);
  *raw_nbytes = nbytes;
  if (code == ZLIB_NO_MEMORY) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for zlib's state");
  }
  return code == 0 ? GPUF_OK : fail(encoded_nbytes, capacity, code == ZLIB_NO_SPACE, err);
}

gpuf_status gpufi_inflate(const void *encoded, size_t encoded_nbytes, void *raw, size_t capacity,
                          size_t *raw_nbytes, gpuf_error *err) {
  if (!gpufi_inflate_name()) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "neither libdeflate.so.0 nor libz.so.1 was found: install one of them");
  }
  return library.decompress ? by_libdeflate(encoded, encoded_nbytes, raw, capacity, raw_nbytes, err)
                            : by_zlib(encoded, encoded_nbytes, raw, capacity, raw_nbytes, err);
}
