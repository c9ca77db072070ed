/* gpufetch: checkpoints of a simulation, written while it goes on, and restarts from them.
 *
 * A checkpoint is one HDF5 file, DIRECTORY/PREFIX-STEP.h5, with the step in at least 12 digits, or
 * such a file and several others beside it ("Shards" below). Any HDF5 reads it: a dataset for each
 * tensor, as gpuf_h5_write makes them, and an attribute of the root for each value. The dataset
 * "gpufetch_checkpoint" says what belongs to it, with checksums, and docs/checkpoints.md what is
 * promised and how that was shown.
 *
 *   gpuf_checkpoint_begin(c, step, NULL, &err);
 *   gpuf_checkpoint_add(c, "u", &u, NULL, &err);
 *   gpuf_checkpoint_commit(c, stream, &err); // kernels enqueued from here on may overwrite u
 *
 * What holds:
 *   - A file of that name is whole. It is written under a temporary name in the same folder,
 *     flushed to the disk, renamed, and the folder flushed. Older ones are removed after that.
 *     The newest is found by listing the folder; there is no pointer that could be wrong.
 *   - A failure (a full disk, an I/O error, no memory) ends that checkpoint and nothing else. Those
 *     before it stand, gpuf_checkpoint_wait and the next gpuf_checkpoint_begin report the errno and
 *     the path, and the next one may be begun.
 *   - A process that ends at any time (SIGKILL, a crash, SIGTERM without a handler) leaves the
 *     newest finished checkpoint and perhaps a temporary, which the next gpuf_checkpoint_open
 *     removes. exit(), and a return from main, without gpuf_checkpoint_close give the unfinished
 *     one up: they wait until the writer has left HDF5, at most one chunk, and remove the
 *     temporary. Only gpuf_checkpoint_wait and gpuf_checkpoint_close wait for a checkpoint to be
 *     finished; destructors of static objects in C++ run too late for them.
 *   - The library installs no signal handler. A program that wants a last checkpoint at SIGTERM
 *     sets a flag in its handler, and commits and closes in its main loop.
 *
 * Shards. With options.shard_count the tensors are spread over so many files, which are written at
 * once, each by a thread: a system fills one file no faster with several threads. Their names are
 * PREFIX-STEP.NUMBER.INDEX.h5, with a number that no other checkpoint has, and PREFIX-STEP.h5 is
 * their master, which is small. It has a virtual dataset for each tensor, by which any HDF5 reads
 * the whole state as long as all of the files are in one folder, and a manifest of the shards.
 * Where a shard is missing HDF5 reads fill values, which are NaN for floating-point numbers; a
 * restart refuses the checkpoint, and names the file. So it does where a shard is not the file that
 * was written. The master gets its name last and loses it first, and no file's name is that of an
 * older one but for a master's that is replaced.
 *
 * The tensors, one behind the other, are cut into shard_count ranges of as many bytes. A tensor
 * that is longer than what is left of a range is cut between chunks along its first axis that has
 * more than one: so one huge tensor and many small ones are both divided evenly, to within one
 * layer of chunks; a dataset more is made for a cut only, because HDF5 takes time for each that no
 * two files can take at once; and what a shard has of a tensor is one box. There may be fewer files
 * than shard_count, and for a state without a chunk there is one.
 *
 * Ranks. With options.rank_count, so many processes write one checkpoint: each opens a writer of
 * the same folder, prefix and options, but for its rank, adds what it holds, and writes shard_count
 * shards of its own (one for 0); rank 0 writes the master, once all shards are whole and on the
 * disk. What the ranks know of each other goes through one callback, options.agree, the minimum of
 * an integer over all of them, and through the folder, so that no type of MPI is involved. With
 * MPI:
 *
 *   static int64_t agree(void *comm, int64_t value) {
 *     MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, *(MPI_Comm *)comm);
 *     return value;
 *   }
 *
 * gpuf_checkpoint_open, _begin, _wait and _close are collective: all ranks call them, in the same
 * order, and each returns once all have called it. The others are not. Of an array each rank adds
 * its parts; one that is added whole, and one of no axes, which must be rank 0's, is added by one
 * rank. A value may be added by any rank, or by several alike; the checkpoint has all of them. A
 * checkpoint is finished by the next of those calls: after it was flushed to the disk, the ranks
 * wait there until rank 0 has written the master. It is there for all ranks or for none: where one
 * fails, or has gone, or where their parts overlap or leave gaps, no master appears, and each rank
 * gets an error that names the rank that failed. The report's numbers are those of the rank. A
 * restart needs no ranks: any process reads any box from it.
 *
 * HDF5. A checkpoint owns its files, and no identifier of the program's is involved. They are
 * written by a thread of the library, with the libhdf5 that gpuf_h5_bind chooses if it was built
 * thread-safe. Otherwise the program's own calls could meet the thread's, so that a second copy of
 * that libhdf5 is loaded, which nothing else uses; GPUF_ERR_UNSUPPORTED where that fails, as for a
 * libhdf5 that is linked statically. A program that makes no HDF5 call of its own calls H5open, so
 * that the linker keeps libhdf5. While a thread forks, it waits until the writer is between two
 * of its HDF5 calls. A function that the program's own thread-safe libhdf5 calls, such as that of
 * H5Literate or H5Ovisit, runs with HDF5's lock held, for which the library's thread waits: there,
 * gpuf_checkpoint_begin, _wait without a time-out and _close would wait for ever for a checkpoint
 * that is being written. Call them outside. H5close, called by the program with its own thread-safe
 * libhdf5, closes the library's open files too: the checkpoint that is being written fails,
 * gpuf_restart_open and an open restart's reads are GPUF_ERR_STATE, and HDF5 may print "infinite
 * loop closing library", as it does beside any other thread's calls.
 *
 * Thread-safety: several restarts may be open at a time, of one checkpoint, too. Calls on one
 * checkpoint, or on one restart, take turns, and a call waits for those of other threads;
 * gpuf_checkpoint_wait may be called beside any other, but with ranks. No other thread may be in a
 * call when gpuf_checkpoint_close or gpuf_restart_close begins. In a forked child every call on an
 * object of the parent is GPUF_ERR_STATE, and the parent's checkpoint is left alone.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef GPUFETCH_CHECKPOINT_H
#define GPUFETCH_CHECKPOINT_H

#include <gpufetch/gpufetch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Options ------------------------------------------------------------- */

/* Where the state is kept between gpuf_checkpoint_commit and the file. Tensors on the CPU are
 * always copied to host memory. */
typedef enum gpuf_checkpoint_mode {
  /* The first of those below for which there is memory. */
  GPUF_CHECKPOINT_AUTO = 0,
  /* Copied within the device: commit only enqueues, and takes as much device memory as the state.
   */
  GPUF_CHECKPOINT_DEVICE_COPY = 1,
  /* Encoded by the device, into device memory as far as it goes and then into host memory; commit
   * waits for the stream and for the encoding. Refused with options.uncompressed
   * (GPUF_ERR_INVALID), with which GPUF_CHECKPOINT_AUTO never chooses it. */
  GPUF_CHECKPOINT_DEVICE_ENCODED = 2,
  /* Encoded by the device in small batches that cross the link to page-locked memory; commit waits
   * for the stream and for the last batch. */
  GPUF_CHECKPOINT_PINNED = 3,
} gpuf_checkpoint_mode;

typedef struct gpuf_checkpoint_options {
  size_t struct_nbytes;
  const char *directory; /* that exists; at most 1500 bytes, made absolute by the call */
  const char *prefix;    /* of the files' names: UTF-8 without a slash, at most 200 bytes */
  /* The device of the tensors that are on one. The default is the CPU: no device memory is
   * reserved, and the mode is GPUF_CHECKPOINT_PINNED. */
  gpuf_device device;
  /* What the tensors of one checkpoint take on the device; 0: not known, nothing is reserved on it,
   * and GPUF_CHECKPOINT_AUTO is GPUF_CHECKPOINT_PINNED. A tensor that finds no room among what is
   * reserved is kept as by GPUF_CHECKPOINT_PINNED; the report's message says how much they take
   * where that is more. */
  size_t state_nbytes;
  size_t device_max_nbytes; /* of device memory to reserve; 0: half of what is free */
  /* Page-locked memory to reserve, in which encoded chunks wait for the writer; 0: 256 MiB. At
   * least 64 MiB; a state that is smaller needs, and takes, twice its size and 1 MiB. Tensors on
   * the CPU, and those that the device cannot encode, take host memory of their size besides. */
  size_t host_max_nbytes;
  /* Of finished checkpoints to keep; 0: all. Only files that end with the library's seal are
   * counted, and removed. */
  int32_t keep_count;
  int32_t thread_count; /* that encode; as in gpuf_h5_options */
  gpuf_checkpoint_mode mode;
  /* Plain chunks, which need no plugin to be read. Tensors on the device that find no room for a
   * copy there are copied to host memory. */
  bool uncompressed;
  bool unsynced;     /* no fsync: a finished checkpoint survives the process, not a power cut */
  bool replace;      /* a step that exists is replaced; the old file stays until the new is whole */
  bool skip_if_busy; /* begin does not wait for the checkpoint before: GPUF_ERR_TIMEOUT instead */
  /* A checkpoint that keep_count no longer promises stays until the next one is begun to be
   * written, and its file is then overwritten, which is faster than a new file is filled: one more
   * than keep_count (which must be set) is in the folder. A file that any program has open, or that
   * has another name too, is left alone, and so is every file where the file system cannot tell;
   * then a new one is made. Readers on other machines may not be seen. Not with ranks
   * (GPUF_ERR_UNSUPPORTED). */
  bool recycle;
  /* How many files the tensors of a checkpoint are spread over, which are written at once, at most
   * 256; 0 or 1: all is one file. With ranks, those of each rank, of which all have at most 4096.
   * See "Shards" above. */
  size_t shard_count;
  /* Of several processes that write one checkpoint, which one this is, from 0, and how many there
   * are; 0 or 1: it is alone. See "Ranks" above. */
  int32_t rank;
  int32_t rank_count;
  /* The minimum of `value` over all ranks, each of which makes the call; any negative number where
   * it is not to be had, because a rank or the connection to it is gone. Called with agree_arg, by
   * gpuf_checkpoint_open, _begin, _wait and _close alone, on the thread that called them. A call on
   * the checkpoint that it makes there is GPUF_ERR_STATE, also gpuf_checkpoint_close, which then
   * frees nothing; it must not wait for another thread that makes one. */
  int64_t (*agree)(void *arg, int64_t value);
  void *agree_arg;
  /* Which program writes, as "name version": UTF-8 of at most 255 bytes, or NULL. It is in the
   * manifest and the attribute "gpufetch_application" of the root, and restarts report it. With
   * ranks, rank 0's. */
  const char *application;
} gpuf_checkpoint_options;

#define GPUF_CHECKPOINT_OPTIONS_INIT                                                               \
  {sizeof(gpuf_checkpoint_options),                                                                \
   NULL,                                                                                           \
   NULL,                                                                                           \
   {GPUF_DEVICE_CPU, 0},                                                                           \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   GPUF_CHECKPOINT_AUTO,                                                                           \
   false,                                                                                          \
   false,                                                                                          \
   false,                                                                                          \
   false,                                                                                          \
   false,                                                                                          \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   NULL,                                                                                           \
   NULL,                                                                                           \
   NULL}

/* How a checkpoint ended, or how far it is. */
typedef struct gpuf_checkpoint_report {
  size_t struct_nbytes;
  int64_t step; /* -1: there was none yet */
  /* GPUF_OK: it is finished. GPUF_ERR_TIMEOUT: it is still being written. Otherwise why it failed.
   */
  gpuf_status status;
  gpuf_checkpoint_mode mode;
  int64_t system_error;   /* errno where one caused what the message says, else 0 */
  uint64_t raw_nbytes;    /* of the tensors */
  uint64_t file_nbytes;   /* of the finished file with its shards, else 0 */
  double ratio;           /* raw_nbytes / file_nbytes, or 0 */
  int64_t stall_ns;       /* host time in begin, add and commit */
  int64_t write_ns;       /* from commit to the end */
  uint64_t device_nbytes; /* of device memory that are reserved now */
  uint64_t host_nbytes;   /* of host memory that are reserved now */
  /* Of the older files that were overwritten, with options.recycle; 0: all are new ones. */
  uint64_t recycled_nbytes;
  char path[2048]; /* of the file, or the master, under its final name; empty if there was none */
  /* Of the failure. With GPUF_OK, what else did not go well: an older checkpoint that could not be
   * removed, or a state that is larger than
   * options.state_nbytes. Otherwise empty. */
  char message[GPUF_ERROR_MESSAGE_NBYTES];
} gpuf_checkpoint_report;

#define GPUF_CHECKPOINT_REPORT_INIT                                                                \
  {sizeof(gpuf_checkpoint_report),                                                                 \
   0,                                                                                              \
   GPUF_OK,                                                                                        \
   GPUF_CHECKPOINT_AUTO,                                                                           \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   {0},                                                                                            \
   {0}}

/* The box of a global array that a tensor holds: it begins at `start`, and has the tensor's shape.
 */
typedef struct gpuf_part {
  size_t struct_nbytes;
  int64_t shape[GPUF_NDIM_MAX]; /* of the global array, which has the tensor's rank */
  int64_t start[GPUF_NDIM_MAX];
} gpuf_part;

#define GPUF_PART_INIT {sizeof(gpuf_part), {0}, {0}}

/* --- Writing ------------------------------------------------------------- */

/* Writes the checkpoints of one prefix. */
typedef struct gpuf_checkpoint gpuf_checkpoint;

/* Start a writer for `options`, with memory reserved, and remove the temporaries that dead owners
 * of the prefix have left. *report (may be NULL) says which mode was chosen, and what is reserved.
 * While it is open, the file DIRECTORY/.PREFIX.lock is locked: GPUF_ERR_STATE where another writer
 * of the prefix, in this process or another, holds it. GPUF_ERR_IO where the folder does not exist
 * or may not be written to. With ranks, rank 0 holds the lock, and all of them fail where one does:
 * GPUF_ERR_INVALID where they differ in rank_count, prefix, shard_count, keep_count, replace,
 * skip_if_busy, unsynced or uncompressed. Close it with gpuf_checkpoint_close. */
GPUF_API gpuf_status gpuf_checkpoint_open(const gpuf_checkpoint_options *options,
                                          gpuf_checkpoint **checkpoint,
                                          gpuf_checkpoint_report *report, gpuf_error *err);

/* Begin the checkpoint of `step` (>= 0). Waits for the one before, and fills *report (may be NULL)
 * with how that ended: its failure is reported there, and is none of this call's. With
 * skip_if_busy, GPUF_ERR_TIMEOUT where it is still being written; then nothing is begun.
 * GPUF_ERR_INVALID for a step of which there is a file, unless options.replace is set;
 * GPUF_ERR_STATE where one has been begun and neither committed nor aborted, and where the folder
 * or its lock file was removed or replaced since the writer was opened: close it, and open it
 * again. With ranks, GPUF_ERR_INVALID where they begin other steps, and GPUF_ERR_STATE where
 * another rank could not begin; then none has. */
GPUF_API gpuf_status gpuf_checkpoint_begin(gpuf_checkpoint *checkpoint, int64_t step,
                                           gpuf_checkpoint_report *report, gpuf_error *err);

/* Add a tensor, on a device or the CPU and in any layout, as dataset `name`: UTF-8 of at most 1000
 * bytes, whose slashes make groups. The name and the descriptor are copied. Its memory is read by
 * gpuf_checkpoint_commit, and must stay valid until that has returned and, on a device, until the
 * work on its stream is done. GPUF_STREAM_PER_THREAD is the calling thread's: that thread commits,
 * too, and adds all such tensors; else GPUF_ERR_INVALID.
 *
 * With `part` NULL, the tensor is the whole array. Otherwise it is that part of an array, of which
 * the others are added under the same name, in any order and from any device. Together they are one
 * dataset, which restarts read as they do any other. Commit puts them together, within the device
 * where the mode copies there and in host memory otherwise; it fails with GPUF_ERR_INVALID where
 * they leave gaps. Parts may be empty, as those of domains without particles.
 *
 * GPUF_ERR_INVALID for a name that was added before, or that a group has, and for a part that lies
 * outside of the array, overlaps another one, or is of another array than they; the checkpoint then
 * is as it was. */
GPUF_API gpuf_status gpuf_checkpoint_add(gpuf_checkpoint *checkpoint, const char *name,
                                         const gpuf_tensor *tensor, const gpuf_part *part,
                                         gpuf_error *err);

/* Add a value, which becomes an attribute of the file's root and is copied by the call. Values have
 * names of their own beside those of tensors. Text is UTF-8. */
GPUF_API gpuf_status gpuf_checkpoint_add_int64(gpuf_checkpoint *checkpoint, const char *name,
                                               int64_t value, gpuf_error *err);
GPUF_API gpuf_status gpuf_checkpoint_add_float64(gpuf_checkpoint *checkpoint, const char *name,
                                                 double value, gpuf_error *err);
GPUF_API gpuf_status gpuf_checkpoint_add_text(gpuf_checkpoint *checkpoint, const char *name,
                                              const char *text, gpuf_error *err);

/* Take the snapshot and hand it to the writer. It has what the tensors hold behind the work that is
 * on `stream`, and on each tensor's own stream, now. When the call returns, CPU tensors may be
 * overwritten, and device tensors by work that is enqueued on `stream` later. `stream` is one of
 * options.device, or GPUF_STREAM_NONE if no work is pending and all is on the CPU or may be waited
 * for: where options.device is the CPU, any but a default one is GPUF_ERR_INVALID. After a failure
 * the checkpoint is given up, and the next report says so too. */
GPUF_API gpuf_status gpuf_checkpoint_commit(gpuf_checkpoint *checkpoint, gpuf_stream stream,
                                            gpuf_error *err);

/* Give up what was begun and not committed, as if it had not been. Does nothing if nothing was.
 * With ranks, the checkpoint of those that go on fails. */
GPUF_API gpuf_status gpuf_checkpoint_abort(gpuf_checkpoint *checkpoint, gpuf_error *err);

/* Wait for the checkpoint that was committed last, and return how it ended: GPUF_OK too if there
 * was none. `timeout_ns` as in gpuf_future_wait. *report (may be NULL) is filled in any case. With
 * ranks, GPUF_ERR_TIMEOUT also without a limit: another rank has begun, and neither committed nor
 * aborted. */
GPUF_API gpuf_status gpuf_checkpoint_wait(gpuf_checkpoint *checkpoint, int64_t timeout_ns,
                                          gpuf_checkpoint_report *report, gpuf_error *err);

/* Give up what was not committed, wait as gpuf_checkpoint_wait does without a limit, return the
 * same, and free the checkpoint in any case. NULL is allowed. In a forked child, and in a kernel of
 * the host backend, nothing is waited for, nor freed, and GPUF_ERR_STATE returned. */
GPUF_API gpuf_status gpuf_checkpoint_close(gpuf_checkpoint *checkpoint,
                                           gpuf_checkpoint_report *report, gpuf_error *err);

/* --- Restart ------------------------------------------------------------- */

/* A checkpoint that was found whole, open for reading. */
typedef struct gpuf_restart gpuf_restart;

typedef struct gpuf_restart_report {
  size_t struct_nbytes;
  int64_t step;                            /* that was opened, or -1 */
  int64_t skipped_count;                   /* newer ones that are damaged or cannot be read */
  int64_t skipped_step;                    /* the newest of them, or -1 */
  char path[2048];                         /* of the file or master that was opened, or empty */
  char message[GPUF_ERROR_MESSAGE_NBYTES]; /* why each was skipped, as far as there is room */
  char application[256]; /* that wrote what was opened, by its options; empty if they had none */
} gpuf_restart_report;

#define GPUF_RESTART_REPORT_INIT {sizeof(gpuf_restart_report), 0, 0, 0, {0}, {0}, {0}}

/* Open the newest checkpoint of the prefix whose step is at most `step_max` (negative: any) and
 * that is whole: every chunk of every tensor is read and compared with its checksum, and all other
 * bytes of the file with its seal. Others are skipped, and *report (may be NULL, filled in any
 * case) says why.
 *
 * GPUF_OK with *restart = NULL: there is none yet. GPUF_ERR_CORRUPT: there are some, and none of
 * them is whole. Any other failure, such as a folder that does not exist, too little memory, a file
 * that the system does not let be opened or read (GPUF_ERR_IO, with errno and the path), a writer
 * that removed or replaced files faster than they could be opened (GPUF_ERR_IO, ESTALE: try again,
 * or keep more of them), or HDF5 that the program closed meanwhile (GPUF_ERR_STATE, naming
 * H5close) or that fails at every file since it lacked memory (GPUF_ERR_STATE: restart the
 * program), says nothing about the checkpoints. Close it with gpuf_restart_close. */
GPUF_API gpuf_status gpuf_restart_open(const char *directory, const char *prefix, int64_t step_max,
                                       gpuf_restart **restart, gpuf_restart_report *report,
                                       gpuf_error *err);

/* Fill `tensor`, on a device or the CPU and in any layout, from tensor `name`: with `part`, from
 * the box that begins at part->start, where part->shape must be the stored shape; for NULL it has
 * that shape. The element types must be equal. It is filled when the call returns, behind the work
 * that was pending on its stream. After a failure the tensor may be partly written. */
GPUF_API gpuf_status gpuf_restart_read(gpuf_restart *restart, const char *name,
                                       const gpuf_tensor *tensor, const gpuf_part *part,
                                       gpuf_error *err);

/* The name of tensor `index`, in the order in which they were added, or NULL from their count on.
 * Valid until gpuf_restart_close. NULL for a NULL restart. */
GPUF_API const char *gpuf_restart_name(const gpuf_restart *restart, size_t index);
/* Set dtype, ndim and shape of *tensor to those of tensor `name`, and nothing else of it. */
GPUF_API gpuf_status gpuf_restart_describe(gpuf_restart *restart, const char *name,
                                           gpuf_tensor *tensor, gpuf_error *err);

/* Get a value. GPUF_ERR_INVALID where there is none of that name and kind. Text is that of the
 * restart, valid until gpuf_restart_close. */
GPUF_API gpuf_status gpuf_restart_get_int64(gpuf_restart *restart, const char *name, int64_t *value,
                                            gpuf_error *err);
GPUF_API gpuf_status gpuf_restart_get_float64(gpuf_restart *restart, const char *name,
                                              double *value, gpuf_error *err);
GPUF_API gpuf_status gpuf_restart_get_text(gpuf_restart *restart, const char *name,
                                           const char **text, gpuf_error *err);

/* Close the file and free the restart. NULL is allowed. */
GPUF_API void gpuf_restart_close(gpuf_restart *restart);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_CHECKPOINT_H */
