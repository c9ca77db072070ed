/* gpufetch: device tensors to and from HDF5 datasets.
 *
 * libgpufetch does not link libhdf5. An identifier (hid_t) belongs to one libhdf5, so the calls
 * here go to the library that the caller already uses, found at run time: see gpuf_h5_bind.
 *
 * Thread-safety: HDF5 is entered by one thread at a time within a call. Two calls at once, or a
 * call beside the caller's own HDF5 calls, are safe only if libhdf5 was built thread-safe or if
 * the options carry a lock that the other callers hold too.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef GPUFETCH_HDF5_H
#define GPUFETCH_HDF5_H

#include <gpufetch/gpufetch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* HDF5's hid_t, 64 bits wide in every release since 1.10. */
typedef int64_t gpuf_h5_id;

/* Identifier of the gpufetch filter; in HDF5's range for private use. */
#define GPUF_H5_FILTER_ID 49370

/* Choose the libhdf5 that later calls use. `object_path` names a loaded shared object that uses
 * it (a Python extension, a simulation's library) or is it; NULL means: the one that the program
 * links, else the only libhdf5 in the process. Fails with GPUF_ERR_STATE, naming them, where
 * there is none or there are several. Calls that need the library bind with NULL by themselves.
 * Binding again to the same library does nothing; to another one switches. */
GPUF_API gpuf_status gpuf_h5_bind(const char *object_path, gpuf_error *err);

/* Register the gpufetch filter with the bound library, so that H5Dread and H5Dwrite use it
 * without any plugin path. Does nothing if it is registered. */
GPUF_API gpuf_status gpuf_h5_filter_register(gpuf_error *err);

typedef enum gpuf_h5_codec {
  GPUF_H5_CODEC_GPUFETCH = 0, /* lossless; readers need the plugin or `import gpufetch` */
  GPUF_H5_CODEC_NONE = 1,     /* plain chunks; any HDF5 reads them */
  /* Lossless, larger than gpufetch's: filter 32008 with LZ4, which readers have by hdf5plugin or
   * bitshuffle. Neither is needed to write it, nor for gpuf_h5_read. */
  GPUF_H5_CODEC_BITSHUFFLE_LZ4 = 2,
} gpuf_h5_codec;

typedef struct gpuf_h5_options {
  size_t struct_nbytes;
  gpuf_h5_codec codec;        /* for datasets that gpuf_h5_write creates */
  const int64_t *chunk_shape; /* ndim values in 1 .. shape; NULL = chosen by the library */
  int32_t thread_count;       /* encoding or decoding threads; 0 = chosen by the library: one a
                                 core, at most 16 */
  /* Held around every HDF5 call, and only there; both NULL or both set. Called only by the thread
   * that called the library, which alone enters HDF5. */
  void (*lock)(void *lock_arg);
  void (*unlock)(void *lock_arg);
  void *lock_arg;
} gpuf_h5_options;

#define GPUF_H5_OPTIONS_INIT                                                                       \
  {sizeof(gpuf_h5_options), GPUF_H5_CODEC_GPUFETCH, NULL, 0, NULL, NULL, NULL}

/* Create dataset `name` (intermediate groups too) under the open file or group `location` and
 * write `src` into it. Fails if the name exists. If writing fails, the dataset is unlinked again.
 * `options` may be NULL. Returns when `src` may be overwritten and HDF5 has the data.
 *   - The default chunk shape takes at most 1 MiB: the tensor's shape, its longest axis
 *     halved until it fits; the last axis counts a quarter of its length, so that rows stay long.
 *   - A 0-d or empty tensor is stored in one piece, without chunks or filter.
 *   - Elements are little-endian. bool is the enumeration {FALSE, TRUE} of int8, complex the
 *     compound {r, i}, as in h5py. bfloat16, float8_e3m4, float8_e4m3 and float8_e5m2 are
 *     floating-point types of those layouts, which HDF5 converts; the other float8 types, which
 *     HDF5 would misread, are a compound of one uint8 member that bears the dtype's name.
 *   - Chunks in flight take at most 256 MiB of host memory, or two chunks and their encodings
 *     where that is more; the same when reading. */
GPUF_API gpuf_status gpuf_h5_write(gpuf_h5_id location, const char *name, const gpuf_tensor *src,
                                   const gpuf_h5_options *options, gpuf_error *err);

/* Overwrite the open dataset with `src`: same shape and dtype. The dataset's own layout and
 * filters are kept; `options` gives threads and lock only. On failure it is partly overwritten. */
GPUF_API gpuf_status gpuf_h5_write_dataset(gpuf_h5_id dataset, const gpuf_tensor *src,
                                           const gpuf_h5_options *options, gpuf_error *err);

/* The same for the part of the open dataset that begins at `start` (one value an axis; NULL: at its
 * origin, and all of it) and has the shape of `src`. A part that begins and ends where chunks do,
 * or where the dataset does, is encoded by several threads; any other by HDF5. */
GPUF_API gpuf_status gpuf_h5_write_region(gpuf_h5_id dataset, const int64_t *start,
                                          const gpuf_tensor *src, const gpuf_h5_options *options,
                                          gpuf_error *err);

/* Set dtype, ndim and shape of `tensor` to those of the open dataset; other fields are left.
 * Any byte order, layout and filter will do, and HDF5 2.0's complex type too; an enumeration other
 * than bool is its integers. GPUF_ERR_UNSUPPORTED, saying what it is, for a stored type that no
 * gpuf_dtype stands for. */
GPUF_API gpuf_status gpuf_h5_describe(gpuf_h5_id dataset, gpuf_tensor *tensor, gpuf_error *err);

/* Fill `dst` (device or CPU; same shape and dtype, any layout) from dataset `name` under
 * `location`, or from the open dataset. On failure `dst` may be partly overwritten. */
GPUF_API gpuf_status gpuf_h5_read(gpuf_h5_id location, const char *name, const gpuf_tensor *dst,
                                  const gpuf_h5_options *options, gpuf_error *err);
GPUF_API gpuf_status gpuf_h5_read_dataset(gpuf_h5_id dataset, const gpuf_tensor *dst,
                                          const gpuf_h5_options *options, gpuf_error *err);

/* The same for the part of the open dataset that begins at `start` (one value an axis; NULL: at its
 * origin, and all of it) and has the shape of `dst`. Only chunks that it touches are read.
 *   - Chunks of a file that is a plain one and open read-only are read by several threads at once
 *     (HDF5 1.14 or newer), those of other files by one. They are decoded by several threads, or on
 *     the device of `dst` where they are gpufetch's and of 32 MiB or less: they cross the link
 *     encoded then. Forms that the device does not decode (docs/reading.md) are left to the
 *     threads, as is everything where it lacks the memory: 100 MiB, 300 for chunks of 32 MiB. */
GPUF_API gpuf_status gpuf_h5_read_region(gpuf_h5_id dataset, const int64_t *start,
                                         const gpuf_tensor *dst, const gpuf_h5_options *options,
                                         gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_HDF5_H */
