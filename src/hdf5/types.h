/* HDF5 types for element types, and back. */
#ifndef GPUFI_HDF5_TYPES_H
#define GPUFI_HDF5_TYPES_H

#include "hdf5/session.h"

/* The type that elements of `dtype` have in memory and in files that gpufetch writes:
 * little-endian. The caller closes it. Entered. */
gpuf_status gpufi_h5_type_create(gpufi_h5_session *session, gpuf_dtype dtype, hid_t *type,
                                 gpuf_error *err);

/* The same of HDF5 2.0's own complex type, for complex64 and complex128. Only where the library has
 * Tcomplex_create. */
gpuf_status gpufi_h5_type_create_complex(gpufi_h5_session *session, gpuf_dtype dtype, hid_t *type,
                                         gpuf_error *err);

/* Which dtype the stored `type` of the dataset called `name` is. *is_native tells whether its bytes
 * are those of the dtype in memory. GPUF_ERR_UNSUPPORTED, saying what it is, for a type that no
 * dtype stands for. Entered. */
gpuf_status gpufi_h5_type_match(gpufi_h5_session *session, hid_t type, const char *name,
                                gpuf_dtype *dtype, bool *is_native, gpuf_error *err);

/* Whether HDF5 misreads `type` as an integer of its size in the other byte order: HDF5 swaps the
 * bytes of a big-endian integer and forgets that some bits are padding, so that its sign is lost.
 * It is read in its own byte order then, and swapped by us. Negative where HDF5 cannot tell.
 * Entered. */
htri_t gpufi_h5_type_needs_swap(const gpufi_h5_api *api, hid_t type);
/* Swap the bytes of `count` elements of `nbytes` bytes each. */
void gpufi_h5_swap(void *elements, size_t count, size_t nbytes);

/* What an HDF5 class of types is called in messages: "integer", "string", ... */
const char *gpufi_h5_class_name(int type_class);

/* True for the small floats that are stored as a compound of one byte. */
bool gpufi_h5_dtype_is_named_byte(gpuf_dtype dtype);

#endif
