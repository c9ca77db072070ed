/* Deflate streams, decoded by libdeflate or, where that is not installed, by zlib. Neither is
 * linked: the first call looks for them, as the loader finds them. Thread-safety: every function,
 * from any thread. */
#ifndef GPUFI_HDF5_INFLATE_H
#define GPUFI_HDF5_INFLATE_H

#include <gpufetch/gpufetch.h>

/* The library in use: "libdeflate" or "zlib"; NULL where there is neither, or GPUFETCH_INFLATE
 * names one that is not there. */
const char *gpufi_inflate_name(void);

/* Decode the zlib stream at the start of `encoded`, which is untrusted, into at most `capacity`
 * bytes of `raw`; *raw_nbytes is how many they are. What follows the stream is left alone, as HDF5
 * does. GPUF_ERR_CORRUPT for anything but a whole stream of that size; `raw` is then indeterminate.
 */
gpuf_status gpufi_inflate(const void *encoded, size_t encoded_nbytes, void *raw, size_t capacity,
                          size_t *raw_nbytes, gpuf_error *err);

#endif
