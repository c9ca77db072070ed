/* The HDF5 functions that the filter calls, found in the library that called it.
 *
 * A process may hold several libhdf5, and the one at work may be private to a Python wheel, where
 * dlsym(RTLD_DEFAULT) does not see it. The return address of a callback lies inside the library
 * that made the call, so that object is asked, and an answer from any other object is refused: an
 * hid_t means nothing to another libhdf5. A libhdf5 linked statically into a program that does
 * not export its symbols cannot be found at all.
 *
 * Thread-safety: every function is re-entrant. */
#ifndef GPUFI_HDF5_FILTER_CALLER_H
#define GPUFI_HDF5_FILTER_CALLER_H

#include "hdf5_types.h"

#include <stdbool.h>

typedef struct gpufi_caller {
  int (*get_chunk)(hid_t, int, hsize_t *);
  int (*filter_count)(hid_t);
  H5Z_filter_t (*get_filter)(hid_t, unsigned, unsigned *, size_t *, unsigned *, size_t, char *,
                             unsigned *);
  herr_t (*modify_filter)(hid_t, H5Z_filter_t, unsigned, size_t, const unsigned *);
  H5T_class_t (*type_class)(hid_t);
  size_t (*type_size)(hid_t);
  H5T_order_t (*type_order)(hid_t);
  H5T_sign_t (*type_sign)(hid_t);
  herr_t (*type_fields)(hid_t, size_t *, size_t *, size_t *, size_t *, size_t *);
  hid_t (*type_super)(hid_t);
  int (*type_nmembers)(hid_t);
  hid_t (*type_member)(hid_t, unsigned);
  size_t (*type_member_offset)(hid_t, unsigned);
  htri_t (*type_is_variable_str)(hid_t);
  herr_t (*type_close)(hid_t);
} gpufi_caller;

/* False if the object that `return_address` lies in does not offer all of the functions. */
bool gpufi_caller_find(const void *return_address, gpufi_caller *caller);

/* Push `text` on the error stack of the library that `return_address` lies in, if it can be
 * found. Calls back into HDF5: only for failures. */
void gpufi_caller_push_error(const void *return_address, const char *text);

#endif
