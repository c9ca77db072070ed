/* A file that is written through the library's own driver, as its writer sees it: what the I/O
 * threads may write, whether something has failed. It outlives the open file, so that the outcome
 * can be asked for after H5Fclose.
 *
 * The driver remembers the first failure of a write, truncation or fsync. From then on it accepts
 * all that HDF5 writes, without an error, so that HDF5 closes the file in good order, which it
 * cannot after a failed write of its own: metadata goes into memory, where HDF5 finds it again, and
 * data is dropped. The file is then incomplete, and the writer, who alone knows, removes it. So
 * whoever has made one of these asks gpufi_h5_driver_error before every chunk, or now and then, and
 * after H5Fclose.
 *
 * The file on disk is plain HDF5, like one of HDF5's default driver. Another file that HDF5 opens
 * with the same access list meanwhile (an external link leads to it) has failures reported to HDF5
 * at once, as by the default driver. After H5Fclose a next file may be opened with the list, unless
 * something has failed. Single-writer-multiple-reader access is not offered: readers could find the
 * place of a chunk before its bytes.
 *
 * In a forked child an open file is the parent's: HDF5, which closes its files at exit there too,
 * reads what is on the disk, and what it writes goes nowhere. */
#ifndef GPUFI_HDF5_DRIVER_FILE_H
#define GPUFI_HDF5_DRIVER_FILE_H

#include <gpufetch/gpufetch.h>

#include "hdf5/driver/latch.h"
#include "hdf5/driver/pending.h"

#define GPUFI_H5_DRIVER_PATH_NBYTES 1024

/* Zeroed: the defaults. */
typedef struct gpufi_h5_driver_options {
  int32_t thread_count;    /* the most I/O threads at a time; 0 = each write is done at once */
  int64_t reserve_nbytes;  /* space to take for the file before its first write; 0 = none. What the
                              file has not filled is given back when it is closed. Where it cannot
                              be had, the file is written without. */
  bool sync_on_flush;      /* H5Fflush ends with an fsync, as does H5Fcreate */
  bool sync_on_close;      /* H5Fclose ends with an fsync */
  int64_t kept_nbytes_max; /* of metadata, after a failure; 0 = 256 MiB. What is beyond it is
                              dropped, and reading that fails. */
} gpufi_h5_driver_options;

/* Members are the driver's own. */
typedef struct gpufi_h5_driver_file {
  uint64_t number; /* which HDF5 compares; another one for each */
  int64_t process_id;
  gpufi_h5_driver_options options;
  int32_t reference_count; /* atomic: the writer's, and one of each access list */
  bool has_writer;         /* atomic: somebody may still ask for failures */
  bool has_told;           /* atomic: somebody has, and there was one */
  gpufi_h5_latch latch;
  gpufi_h5_pending pending;
  /* What follows is used under HDF5's lock, or the caller's own. */
  bool is_open;
  int open_error; /* errno of the last attempt to open or lock it; 0 if that succeeded */
  char path[GPUFI_H5_DRIVER_PATH_NBYTES]; /* as given to HDF5; cut if it is longer */
  gpufi_h5_range announced;               /* bytes is NULL: nothing is */
  int64_t deferred_count;                 /* writes that were left to I/O threads */
} gpufi_h5_driver_file;

/* --- For the writer ---------------------------------------------------------------
 *
 * The calls are made by one thread at a time, none of them while another thread is inside HDF5 with
 * this file. */

/* The next write of HDF5's that is exactly these bytes, which are the chunk of the H5Dwrite_chunk
 * that follows, is left to the I/O threads, so that H5Dwrite_chunk returns at once. The bytes stay
 * as they are until `done(arg)`, which is called once in any case: by an I/O thread, or in
 * gpufi_h5_driver_withdraw. It must not call HDF5, nor wait for a thread that does. What was
 * announced before is withdrawn. */
void gpufi_h5_driver_announce(gpufi_h5_driver_file *file, const void *bytes, size_t nbytes,
                              void (*done)(void *arg), void *arg);
/* After the H5Dwrite_chunk, whether it succeeded or not: HDF5 takes the announced bytes no more. If
 * it has not left them to the driver as they are (a page buffer copies them), or the driver has
 * written or dropped them already, `done` is called here. Returns whether an I/O thread has them.
 */
bool gpufi_h5_driver_withdraw(gpufi_h5_driver_file *file);

/* Wait until the I/O threads have written all that they have, and report as gpufi_h5_driver_error.
 * Called before H5Fclose, outside of HDF5's lock, it shortens the time that the lock is held. */
gpuf_status gpufi_h5_driver_drain(gpufi_h5_driver_file *file, gpuf_error *err);

/* GPUF_OK while nothing has failed. GPUF_ERR_IO, with errno as native_code and with the operation,
 * the offset and the path in the message, if a system call has, for this file or for the attempt to
 * open it. GPUF_ERR_STATE in a forked child. Any thread, once H5Fcreate or H5Fopen has returned. */
gpuf_status gpufi_h5_driver_error(const gpufi_h5_driver_file *file, gpuf_error *err);

/* The writer is done with it. If the file is still open, HDF5 is told of failures from now on, and
 * of the one that the writer has not heard of. */
void gpufi_h5_driver_release(gpufi_h5_driver_file *file);

/* --- For the driver --------------------------------------------------------------- */

/* With one reference, the writer's. NULL if there is no memory. */
gpufi_h5_driver_file *gpufi_h5_driver_file_create(const gpufi_h5_driver_options *options);
void gpufi_h5_driver_file_retain(gpufi_h5_driver_file *file);
void gpufi_h5_driver_file_drop(gpufi_h5_driver_file *file);

/* Leave a write to the I/O threads if it is the announced one. */
bool gpufi_h5_driver_file_defer(gpufi_h5_driver_file *file, int fd, uint64_t offset,
                                const void *bytes, size_t nbytes);

#endif
