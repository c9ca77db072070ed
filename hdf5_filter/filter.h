/* The HDF5 filter: the codec behind HDF5's filter interface. Compiled into the plugin and into
 * libgpufetch; calls HDF5 only through what it finds at run time (caller.h).
 *
 * Thread-safety: no mutable state; HDF5 may call the filter from any thread. */
#ifndef GPUFI_HDF5_FILTER_FILTER_H
#define GPUFI_HDF5_FILTER_FILTER_H

#include "codec/codec.h"

#include <gpufetch/hdf5.h>

/* What files call the filter. Where no plugin is found, HDF5's message quotes this name from the
 * file: "required filter '...' is not registered". */
#define GPUFI_FILTER_NAME "gpufetch; pip install hdf5-gpufetch"

/* Layout of cd_values, version 0 (docs/format.md). */
#define GPUFI_CD_VERSION 0
enum {
  GPUFI_CD_AT_VERSION = 0,
  GPUFI_CD_AT_DTYPE = 1, /* dtype code; plus GPUFI_CD_BIG_ENDIAN */
  GPUFI_CD_AT_RAW_NBYTES = 2,
  GPUFI_CD_AT_NDIM = 3,
  GPUFI_CD_AT_DIMS = 4,
  GPUFI_CD_COUNT_MAX = GPUFI_CD_AT_DIMS + GPUFI_CODEC_NDIM_MAX,
};
#define GPUFI_CD_BIG_ENDIAN 0x100u

/* The H5Z_class2_t (void, so that callers need no HDF5 headers) of the filter under its id number
 * `index` of ids.h, in static storage; NULL from their count on. All of them are to be registered.
 */
const void *gpufi_filter_class(size_t index);

/* Whether `id` is one of the filter's. */
bool gpufi_filter_has_id(int id);

/* Write the cd_values that describe a chunk of `shape` and return their count, 0 for a shape that
 * gpufi_chunk_raw_nbytes() refuses. */
size_t gpufi_filter_cd_values(const gpufi_chunk_shape *shape, bool big_endian,
                              unsigned int cd_values[GPUFI_CD_COUNT_MAX]);

#endif
