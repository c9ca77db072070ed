/* Structs of the public headers that may grow: they begin with `size_t struct_nbytes`, and a
 * program may have been compiled against a header whose struct is smaller or larger than the
 * library's. Thread-safety: any thread. */
#ifndef GPUFI_BASE_STRUCT_H
#define GPUFI_BASE_STRUCT_H

#include <gpufetch/gpufetch.h>

/* Whether `given`, the caller's, can stand for a struct of which the library knows the first
 * `known_nbytes` bytes. Otherwise GPUF_ERR_INVALID (struct_nbytes was not set; the message names
 * the initializer `macro`) or GPUF_ERR_UNSUPPORTED (a member that the library does not know is
 * set). */
gpuf_status gpufi_struct_check(const void *given, size_t known_nbytes, const char *macro,
                               gpuf_error *err);

/* Check `given` and copy it to the library's `own`. Members that `given` lacks, and all of them if
 * it is NULL, become zero, which means the default. On failure `own` is untouched. */
gpuf_status gpufi_struct_read(void *own, size_t own_nbytes, const void *given, const char *macro,
                              gpuf_error *err);

/* Copy the library's `own` to `given`, which gpufi_struct_check has accepted: of its members those
 * that it has, struct_nbytes excepted. */
void gpufi_struct_write(void *given, const void *own, size_t own_nbytes);

#endif
