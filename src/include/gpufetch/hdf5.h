/* gpufetch: device tensors to and from HDF5 datasets.
 *
 * libgpufetch does not link libhdf5. An identifier (hid_t) belongs to one libhdf5, so the calls
 * here use the library that the caller already uses, found at run time: see gpuf_h5_bind.
 *
 * Thread-safety: within a call, one thread at a time enters HDF5. Two calls at once, or a call
 * beside the caller's own HDF5 calls, are safe only if libhdf5 was built thread-safe or if the
 * options carry a lock that the other callers hold too. A fork waits until no other thread is in
 * HDF5 by a call here, for at most 3 s, so that the child may use HDF5; where one stayed longer,
 * the child's calls here are GPUF_ERR_STATE.
 *
 * Where HDF5 fails with GPUF_ERR_HDF5 since the system refused it something, the error's
 * native_code is errno: ENOSPC for a full disk, EIO, EDQUOT. A file that is read past HDF5
 * (gpuf_h5_read_region) and cannot be read is GPUF_ERR_IO with that errno. Where HDF5 lacks memory
 * it is GPUF_ERR_NO_MEMORY. Where it does while a dataset is created, the open file is flushed, and
 * takes no more writes, as after a full disk: HDF5 1.10 may close it without writing what follows.
 *
 * A full disk. HDF5 keeps data and metadata in memory and writes them in its own time: after
 * GPUF_OK HDF5 has the data, and the file has them once H5Dclose and H5Fclose have succeeded. After
 * a write that the system refused, HDF5 takes further writes without an error. As long as there is
 * no room, H5Fflush and H5Fclose fail; some releases (seen: 1.10.8) then crash at exit, even where
 * there was room again when the file was closed.
 *   - Once a write of gpufetch to a file has failed so, gpuf_h5_write, gpuf_h5_write_dataset,
 *     gpuf_h5_write_region and the setters of attributes fail at once for that open file, whichever
 *     identifier they are given, with GPUF_ERR_HDF5 and the first failure's errno. Reading goes on,
 *     unless HDF5 may have lost chunks that it held in memory: it writes them when it needs the
 *     memory for others, and before it tells how they are stored, and loses those that it cannot
 *     write. Then reading fails too. What was created for the failed write is unlinked, unless HDF5
 *     cannot close it.
 *   - Make room, then close the file. If H5Fclose succeeds, the file holds what had been flushed
 *     before the failure, and can be opened and written to again; otherwise it may be unreadable.
 *   - Where there is no room to be had, end the process with _exit.
 *   - To keep a good copy whatever happens, write checkpoints (checkpoint.h), whose files survive
 *     all of this; or write a file of another name, and rename it once H5Fclose has succeeded.
 *
 * A file that cannot be read (EIO). HDF5 may take something else for what it did not read, without
 * an error the next time. Once HDF5 has failed to read a file in a call of gpufetch, reading it and
 * writing to it fail at once, likewise, until it is closed and opened again.
 *
 * A file that several MPI processes have opened together (MPI-IO and subfiling drivers). All of
 * them must write filtered chunks together, which no call here does: gpuf_h5_write, and writing to
 * a dataset with filters, are GPUF_ERR_UNSUPPORTED. Create datasets without filters by H5Dcreate,
 * and write each process's part with gpuf_h5_write_region; or let each process write a file of its
 * own. Attributes must be set by all processes alike.
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

/* Identifier of the gpufetch filter in the datasets that are written; in HDF5's range for private
 * use. Once one is registered, it becomes that one, and 49370 is still read (docs/registration.md).
 */
#define GPUF_H5_FILTER_ID 49370

/* Choose the libhdf5 that later calls use. `object_path` names a loaded shared object that is this
 * library or uses it (a Python extension, a simulation's library). NULL means the libhdf5 that the
 * program links, or else the only one in the process; GPUF_ERR_STATE, naming them, where there is
 * none or there are several. Calls that need the library bind with NULL by themselves. Binding to
 * the same library again does nothing; binding to another one switches. */
GPUF_API gpuf_status gpuf_h5_bind(const char *object_path, gpuf_error *err);

/* Register the gpufetch filter with the bound library, under each identifier that it has had, so
 * that H5Dread and H5Dwrite use it without any plugin path. Does nothing if it is registered. */
GPUF_API gpuf_status gpuf_h5_filter_register(gpuf_error *err);

/* --- Options ------------------------------------------------------------- */

typedef enum gpuf_h5_codec {
  GPUF_H5_CODEC_GPUFETCH = 0, /* lossless; readers need the plugin or `import gpufetch` */
  GPUF_H5_CODEC_NONE = 1,     /* plain chunks; any HDF5 reads them */
  /* Lossless, and larger than gpufetch's: filter 32008 with LZ4, which hdf5plugin and bitshuffle
   * bring to readers. Neither is needed to write it, nor for gpuf_h5_read. */
  GPUF_H5_CODEC_BITSHUFFLE_LZ4 = 2,
} gpuf_h5_codec;

typedef struct gpuf_h5_options {
  size_t struct_nbytes;
  gpuf_h5_codec codec;        /* for datasets that gpuf_h5_write creates */
  const int64_t *chunk_shape; /* ndim values in 1 .. shape; NULL = chosen by the library */
  /* Threads that encode or decode; 0 = chosen by the library: one for each core, at most 16. Of a
   * larger number, 64 are started. */
  int32_t thread_count;
  /* Called around all HDF5 calls, which the thread that called the library makes; both NULL or both
   * set. The lock is not held while that thread waits for others. Two calls take no options, and so
   * no lock: hold it around gpuf_h5_bind and gpuf_h5_filter_register yourself. */
  void (*lock)(void *lock_arg);
  void (*unlock)(void *lock_arg);
  void *lock_arg;
  /* What an asynchronous write has encoded, and HDF5 has not got yet, takes at most this much
   * memory, or one chunk where that is more; 0 = 256 MiB. */
  size_t async_max_nbytes;
} gpuf_h5_options;

#define GPUF_H5_OPTIONS_INIT                                                                       \
  {sizeof(gpuf_h5_options), GPUF_H5_CODEC_GPUFETCH, NULL, 0, NULL, NULL, NULL, 0}

/* --- Writing ------------------------------------------------------------- */

/* Create dataset `name` (intermediate groups too) under the open file or group `location` and
 * write `src` into it. Fails if the name exists. If writing fails, the dataset and the groups that
 * were created for it are unlinked again, as far as HDF5 still can. The name is UTF-8, as HDF5
 * takes it: from `location`, or from the file's root if it begins with a slash; none of the names
 * between its slashes may be empty, "." or "..". `options` may be NULL. Returns when `src`
 * may be overwritten and HDF5 has the data.
 *   - The default chunk shape takes at most 1 MiB. It is the tensor's shape with its longest axis
 *     halved until it fits; the last axis counts a quarter of its length, so that rows stay long.
 *   - A 0-d or empty tensor is stored without chunks or filter; the element of a 0-d one with the
 *     dataset's description (compact), and the file is flushed.
 *   - Elements are little-endian. bool is the enumeration {FALSE, TRUE} of int8, complex the
 *     compound {r, i}, as in h5py. bfloat16, float8_e3m4, float8_e4m3 and float8_e5m2 are
 *     floating-point types of those layouts, which HDF5 converts. The other float8 types, which
 *     HDF5 would misread, are a compound of one uint8 member that bears the dtype's name.
 *   - Chunks in flight take at most 256 MiB of host memory, or two chunks and their encodings
 *     where that is more; the same holds for reading. */
GPUF_API gpuf_status gpuf_h5_write(gpuf_h5_id location, const char *name, const gpuf_tensor *src,
                                   const gpuf_h5_options *options, gpuf_error *err);

/* Overwrite the whole open dataset with `src`, which has its shape and dtype. The dataset keeps its
 * layout and filters; of `options`, threads and lock count. On failure the dataset may be partly
 * overwritten. */
GPUF_API gpuf_status gpuf_h5_write_dataset(gpuf_h5_id dataset, const gpuf_tensor *src,
                                           const gpuf_h5_options *options, gpuf_error *err);

/* Overwrite a region of the open dataset: it begins at `start` (one index for each axis; NULL is
 * gpuf_h5_write_dataset) and has the shape of `src`. A region that begins and ends where chunks do,
 * or where the dataset does, is encoded by several threads or by the device of `src`; any other one
 * is written by HDF5. */
GPUF_API gpuf_status gpuf_h5_write_region(gpuf_h5_id dataset, const int64_t *start,
                                          const gpuf_tensor *src, const gpuf_h5_options *options,
                                          gpuf_error *err);

/* --- Asynchronous writing ------------------------------------------------ */

/* A write in flight. A thread of the library copies and encodes `src`; it never enters HDF5. What
 * it has made is handed to HDF5 by the calls of the future, on the thread that calls them, under
 * the lock of the options. One thread at a time uses a future, and several futures may be in
 * flight, of one dataset too: where they overlap, the elements of the chunks that are handed over
 * last stay.
 *   - `src` must stay valid and unchanged until gpuf_h5_future_wait_copied or _wait has returned
 *     GPUF_OK, or _wait a failure. The write has what the tensor holds behind the work that is
 *     pending on its stream when the write begins.
 *   - The file may be used by others meanwhile, and the dataset may grow; if it shrinks so that the
 *     region does not lie in it any more, the write fails with GPUF_ERR_INVALID. The future holds
 *     the dataset open: an H5Fclose closes the file once the future is finished or destroyed. Where
 *     the file's identifiers are all closed with it (H5F_CLOSE_STRONG, as by h5py), the write fails
 *     with GPUF_ERR_STATE.
 *   - A new dataset may get another name meanwhile. Where it was deleted, the write fails with
 *     GPUF_ERR_STATE; where a group that holds it was, HDF5 may not tell, and the data is lost.
 *   - A failure is as that of gpuf_h5_write or gpuf_h5_write_region: the first failure of the file
 *     is remembered, and its errno is in native_code.
 *   - A program that ends before a future is finished leaves its dataset incomplete.
 *   - Where the system has no thread for it, the first call of the future writes everything.
 *   - In a forked child, the calls of its parent's futures are GPUF_ERR_STATE. */
typedef struct gpuf_h5_future gpuf_h5_future;

/* Begin what gpuf_h5_write and gpuf_h5_write_region do. The call itself enters HDF5 to create or to
 * inspect the dataset, so that wrong arguments fail at once; it does not wait for `src`. The lock
 * of the options stays in use until the future is destroyed. End with gpuf_h5_future_destroy. */
GPUF_API gpuf_status gpuf_h5_write_async(gpuf_h5_id location, const char *name,
                                         const gpuf_tensor *src, const gpuf_h5_options *options,
                                         gpuf_h5_future **future, gpuf_error *err);
GPUF_API gpuf_status gpuf_h5_write_region_async(gpuf_h5_id dataset, const int64_t *start,
                                                const gpuf_tensor *src,
                                                const gpuf_h5_options *options,
                                                gpuf_h5_future **future, gpuf_error *err);

/* Hand to HDF5 what is ready, without waiting for more. *done: the write is finished, or has
 * failed, as the status says. */
GPUF_API gpuf_status gpuf_h5_future_poll(gpuf_h5_future *future, bool *done, gpuf_error *err);
/* Hand everything to HDF5 and close what the write has opened: GPUF_OK where gpuf_h5_write would
 * return that. GPUF_ERR_TIMEOUT where it is not finished after `timeout_ns` (negative: no limit).
 */
GPUF_API gpuf_status gpuf_h5_future_wait(gpuf_h5_future *future, int64_t timeout_ns,
                                         gpuf_error *err);
/* The same until `src` may be overwritten, where more may be left to hand over. */
GPUF_API gpuf_status gpuf_h5_future_wait_copied(gpuf_h5_future *future, int64_t timeout_ns,
                                                gpuf_error *err);
/* Free a future. One that is not finished is given up: a dataset that was created for it is
 * unlinked, which enters HDF5, and a region is left partly written. What others have put under the
 * dataset's name stays, and so does, incomplete, a dataset that has another name now. NULL is
 * allowed. A kernel of the host backend waits for no write: there, a future that is not finished is
 * left as it is. */
GPUF_API void gpuf_h5_future_destroy(gpuf_h5_future *future);

/* --- Reading ------------------------------------------------------------- */

/* Set dtype, ndim and shape of `tensor` to those of the open dataset, and nothing else of it.
 * Datasets of any byte order, layout and filter can be described and read, those of HDF5 2.0's
 * complex type too; an enumeration other than bool counts as its integers. GPUF_ERR_UNSUPPORTED,
 * saying what it is, for a stored type that no gpuf_dtype stands for. `options` may be NULL; of
 * them, the lock counts. */
GPUF_API gpuf_status gpuf_h5_describe(gpuf_h5_id dataset, gpuf_tensor *tensor,
                                      const gpuf_h5_options *options, gpuf_error *err);

/* Fill `dst` (on a device or the CPU, in any layout) from dataset `name` under `location`, or from
 * the open dataset, which has its shape and dtype. Elements that were never written are the
 * dataset's fill value, or 0 where HDF5 gives none (fill time NEVER), as in h5py; those of a
 * contiguous dataset without a fill value of its own are what HDF5 reads, which is what the file
 * held there before. The same holds for elements of a virtual dataset whose source is missing; HDF5
 * converts those of a source of another type, and, where a source is itself virtual and as many of
 * its elements have two sources as have none, the latter may be the fill value of the dataset that
 * is read. On failure `dst` may be partly overwritten. */
GPUF_API gpuf_status gpuf_h5_read(gpuf_h5_id location, const char *name, const gpuf_tensor *dst,
                                  const gpuf_h5_options *options, gpuf_error *err);
GPUF_API gpuf_status gpuf_h5_read_dataset(gpuf_h5_id dataset, const gpuf_tensor *dst,
                                          const gpuf_h5_options *options, gpuf_error *err);

/* Fill `dst` from the region of the open dataset that begins at `start` (one index for each axis;
 * NULL is gpuf_h5_read_dataset) and has the shape of `dst`. Only chunks that it touches are read.
 *   - Several threads at once read the chunks of a plain file that is open read-only (HDF5 1.14 or
 *     newer); one thread reads those of other files.
 *   - Several threads decode them. Where `dst` is on a device and the chunks are gpufetch's, of at
 *     most 32 MiB, they cross the link encoded and the device decodes them, except for the forms
 *     that it leaves to the CPU (docs/reading.md). This takes 100 MiB of device memory, or up to
 *     500 for more than 1 GiB where there is so much, or 300 for chunks of 32 MiB; where they are
 *     lacking, the threads decode all chunks. */
GPUF_API gpuf_status gpuf_h5_read_region(gpuf_h5_id dataset, const int64_t *start,
                                         const gpuf_tensor *dst, const gpuf_h5_options *options,
                                         gpuf_error *err);

/* --- Attributes ---------------------------------------------------------- */

/* Scalars beside a tensor: the step, parameters, units. `location` is an open file, group or
 * dataset, and `object_name` the group or dataset under it that has the attribute: "." is the
 * location itself, "/" the file's root. `options` may be NULL; of them, the lock counts.
 *
 * Setting overwrites an attribute that has the name, whatever it held. h5py reads the values as
 * int64, float64 and str: text is UTF-8, NUL-terminated, and is stored with variable length. Names
 * and text that are not UTF-8 are GPUF_ERR_INVALID. */
GPUF_API gpuf_status gpuf_h5_set_attribute_int64(gpuf_h5_id location, const char *object_name,
                                                 const char *name, int64_t value,
                                                 const gpuf_h5_options *options, gpuf_error *err);
GPUF_API gpuf_status gpuf_h5_set_attribute_float64(gpuf_h5_id location, const char *object_name,
                                                   const char *name, double value,
                                                   const gpuf_h5_options *options, gpuf_error *err);
GPUF_API gpuf_status gpuf_h5_set_attribute_text(gpuf_h5_id location, const char *object_name,
                                                const char *name, const char *text,
                                                const gpuf_h5_options *options, gpuf_error *err);

/* Getting converts integers of any size, sign and byte order to int64, and floating-point numbers
 * of at most 8 bytes to double. GPUF_ERR_INVALID where there is no such attribute, or where it is
 * none of one such value; the message says what it is. */
GPUF_API gpuf_status gpuf_h5_get_attribute_int64(gpuf_h5_id location, const char *object_name,
                                                 const char *name, int64_t *value,
                                                 const gpuf_h5_options *options, gpuf_error *err);
GPUF_API gpuf_status gpuf_h5_get_attribute_float64(gpuf_h5_id location, const char *object_name,
                                                   const char *name, double *value,
                                                   const gpuf_h5_options *options, gpuf_error *err);
/* Copy the text and a NUL to `text`, a buffer of *text_nbytes; *text_nbytes becomes the number of
 * bytes that they take. Where the buffer is too small, GPUF_ERR_INVALID, and *text_nbytes says how
 * many it needs; `text` may be NULL where it is 0. */
GPUF_API gpuf_status gpuf_h5_get_attribute_text(gpuf_h5_id location, const char *object_name,
                                                const char *name, char *text, size_t *text_nbytes,
                                                const gpuf_h5_options *options, gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_HDF5_H */
