#include "base/struct.h"

#include <string.h>

#include "base/arithmetic.h"
#include "base/error.h"

/* A larger struct_nbytes is no size, but memory that nobody has initialized. */
#define STRUCT_NBYTES_MAX ((size_t)1 << 12)

/* The struct's first member. */
static size_t struct_nbytes_of(const void *given) {
  size_t nbytes;
  memcpy(&nbytes, given, sizeof(nbytes));
  return nbytes;
}

gpuf_status gpufi_struct_check(const void *given, size_t known_nbytes, const char *macro,
                               gpuf_error *err) {
  if (!given) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the pointer to a struct that %s initializes is NULL; pass its address",
                      macro);
  }
  const size_t given_nbytes = struct_nbytes_of(given);
  /* A struct is as aligned as its first member, and its size a multiple of that. */
  if (given_nbytes < sizeof(size_t) || given_nbytes > STRUCT_NBYTES_MAX ||
      given_nbytes % sizeof(size_t) != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "struct_nbytes is %zu, which is no size of this struct; initialize it with "
                      "%s",
                      given_nbytes, macro);
  }
  for (size_t i = known_nbytes; i < given_nbytes; i++) {
    if (((const unsigned char *)given)[i] != 0) {
      return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "byte %zu of the struct that %s initializes is set, but libgpufetch %d.%d "
                        "knows its first %zu bytes; leave the newer member at its default, or "
                        "install a newer libgpufetch",
                        i, macro, GPUF_VERSION_MAJOR, GPUF_VERSION_MINOR, known_nbytes);
    }
  }
  return GPUF_OK;
}

gpuf_status gpufi_struct_read(void *own, size_t own_nbytes, const void *given, const char *macro,
                              gpuf_error *err) {
  const gpuf_status status = given ? gpufi_struct_check(given, own_nbytes, macro, err) : GPUF_OK;
  if (status == GPUF_OK) {
    memset(own, 0, own_nbytes);
    if (given) {
      memcpy(own, given, gpufi_min_nbytes(struct_nbytes_of(given), own_nbytes));
    }
    memcpy(own, &own_nbytes, sizeof(own_nbytes));
  }
  return status;
}

void gpufi_struct_write(void *given, const void *own, size_t own_nbytes) {
  const size_t nbytes = gpufi_min_nbytes(struct_nbytes_of(given), own_nbytes);
  memcpy((char *)given + sizeof(size_t), (const char *)own + sizeof(size_t),
         nbytes - sizeof(size_t));
}
