/* Whether a call that takes a struct with struct_nbytes takes those of other versions, too. */
#ifndef GPUFI_TEST_STRUCTS_H
#define GPUFI_TEST_STRUCTS_H

#include "devices.h"

static gpuf_error err;

/* One struct: its size, the name of its initializer macro, and a call that is given such a struct,
 * all zeros but for struct_nbytes, and succeeds. */
typedef struct versioned {
  size_t nbytes;
  const char *macro;
  gpuf_status (*call)(void *given); /* fills `err` on failure */
} versioned;

enum { VERSIONED_EXTRA_NBYTES = 64 };

/* The call with a struct of `nbytes`, whose byte `set_at` (0: none) is 1. What lies behind it is
 * set: the call must neither read that nor write it. */
static inline gpuf_status versioned_call(const versioned *v, size_t nbytes, size_t set_at) {
  const size_t all_nbytes = v->nbytes + VERSIONED_EXTRA_NBYTES;
  unsigned char *given = malloc(all_nbytes);
  CHECK(given);
  memset(given, 0xAB, all_nbytes);
  memset(given, 0, nbytes);
  memcpy(given, &nbytes, sizeof(nbytes));
  given[set_at] |= set_at != 0;
  const gpuf_status status = v->call(given);
  for (size_t i = nbytes; i < all_nbytes; i++) {
    CHECK(given[i] == 0xAB);
  }
  CHECK(memcmp(given, &nbytes, sizeof(nbytes)) == 0);
  free(given);
  return status;
}

static inline void check_versions(const versioned *v) {
  const size_t larger_nbytes = v->nbytes + VERSIONED_EXTRA_NBYTES;
  for (size_t nbytes = sizeof(size_t); nbytes <= v->nbytes; nbytes += sizeof(size_t)) {
    CHECK_OK(versioned_call(v, nbytes, 0));
  }
  CHECK_OK(versioned_call(v, larger_nbytes, 0));
  CHECK_FAILS(versioned_call(v, larger_nbytes, v->nbytes), GPUF_ERR_UNSUPPORTED, v->macro);
  CHECK_FAILS(versioned_call(v, larger_nbytes, larger_nbytes - 1), GPUF_ERR_UNSUPPORTED, "newer");
  unsigned char *unset = calloc(1, v->nbytes);
  const size_t wrong[] = {0, sizeof(size_t) - 1, (size_t)1 << 40};
  for (int i = 0; i < 3; i++) {
    memcpy(unset, &wrong[i], sizeof(size_t));
    CHECK_FAILS(v->call(unset), GPUF_ERR_INVALID, v->macro);
  }
  free(unset);
}

#endif
