/* What a chunk holds, from the dataset's type and creation properties. */
#ifndef GPUFI_HDF5_FILTER_DESCRIBE_H
#define GPUFI_HDF5_FILTER_DESCRIBE_H

#include "caller.h"
#include "codec/codec.h"

/* GPUF_ERR_UNSUPPORTED for types whose values live outside the chunk. */
gpuf_status gpufi_describe_check(const gpufi_caller *caller, hid_t type, gpuf_error *err);

/* Numbers become their dtype; any other fixed-size element becomes bytes along one more axis. */
gpuf_status gpufi_describe_chunk(const gpufi_caller *caller, hid_t dcpl, hid_t type,
                                 gpufi_chunk_shape *shape, bool *big_endian, gpuf_error *err);

#endif
