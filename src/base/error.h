/* Filling a gpuf_error. Thread-safety: any thread. */
#ifndef GPUFI_BASE_ERROR_H
#define GPUFI_BASE_ERROR_H

#include <gpufetch/gpufetch.h>

/* Fill `err` (may be NULL) and return `status`, so that a failure is one statement:
 *   return gpufi_fail(err, GPUF_ERR_INVALID, 0, "ndim %d is negative", ndim);
 * A message that is too long is cut behind a whole character, and what is not UTF-8 in it (a part
 * of a name that was cut, a path in another encoding) becomes '?'. */
gpuf_status gpufi_fail(gpuf_error *err, gpuf_status status, int64_t native_code, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));

/* Fill `err` with GPUF_ERR_IO and an errno: "WHAT 'PATH' failed: No such file or directory". */
gpuf_status gpufi_fail_system(gpuf_error *err, const char *what, const char *path, int code);

/* Return GPUF_ERR_INVALID from the calling function if its pointer argument is NULL. */
#define GPUFI_REQUIRE(pointer, err)                                                                \
  do {                                                                                             \
    if (!(pointer)) {                                                                              \
      return gpufi_fail((err), GPUF_ERR_INVALID, 0,                                                \
                        "the argument %s is NULL; pass the address of a value", #pointer);         \
    }                                                                                              \
  } while (0)

#endif
