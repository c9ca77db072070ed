/* What a filter plugin sees of HDF5: types and constants that have been the same in every release
 * since 1.10.0, with HDF5's names.
 *
 * HDF5's own headers are those of one machine (H5pubconf.h). Plugins are built for others, too, on
 * which no HDF5 is installed. tests/python/test_reader_build.py compares these declarations with
 * <hdf5.h>. Not to be included beside it. */
#ifndef GPUFI_HDF5_FILTER_HDF5_TYPES_H
#define GPUFI_HDF5_FILTER_HDF5_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int64_t hid_t;
typedef int herr_t;
typedef int htri_t;
typedef unsigned long long hsize_t;
typedef int H5Z_filter_t;

#define H5E_DEFAULT 0
#define H5S_MAX_RANK 32
#define H5Z_CLASS_T_VERS 1
#define H5Z_FILTER_SHUFFLE 2
#define H5Z_FILTER_NBIT 5
#define H5Z_FILTER_SCALEOFFSET 6
#define H5Z_FLAG_REVERSE 0x0100

typedef enum H5T_class_t {
  H5T_NO_CLASS = -1,
  H5T_INTEGER = 0,
  H5T_FLOAT = 1,
  H5T_TIME = 2,
  H5T_STRING = 3,
  H5T_BITFIELD = 4,
  H5T_COMPOUND = 6,
  H5T_REFERENCE = 7,
  H5T_ENUM = 8,
  H5T_VLEN = 9,
  H5T_ARRAY = 10,
} H5T_class_t;

typedef enum H5T_order_t { H5T_ORDER_ERROR = -1, H5T_ORDER_LE = 0, H5T_ORDER_BE = 1 } H5T_order_t;

typedef enum H5T_sign_t { H5T_SGN_ERROR = -1, H5T_SGN_NONE = 0, H5T_SGN_2 = 1 } H5T_sign_t;

typedef enum H5PL_type_t { H5PL_TYPE_ERROR = -1, H5PL_TYPE_FILTER = 0 } H5PL_type_t;

typedef struct H5Z_class2_t {
  int version;
  H5Z_filter_t id;
  unsigned encoder_present, decoder_present;
  const char *name;
  htri_t (*can_apply)(hid_t dcpl, hid_t type, hid_t space);
  herr_t (*set_local)(hid_t dcpl, hid_t type, hid_t space);
  size_t (*filter)(unsigned flags, size_t cd_nelmts, const unsigned cd_values[], size_t nbytes,
                   size_t *buf_size, void **buf);
} H5Z_class2_t;

#endif
