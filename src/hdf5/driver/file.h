/* A file that is written through the library's own driver, as its writer sees it: whether something
 * has failed. It outlives the open file, so that the outcome can be asked for after H5Fclose.
 *
 * The driver remembers the first failure of a write or truncation. From then on it accepts all that
 * HDF5 writes, without an error, so that HDF5 closes the file in good order, which it cannot after
 * a failed write of its own: metadata goes into memory, where HDF5 finds it again, and data is
 * dropped. The file is then incomplete, and the writer, who alone knows, removes it. So
 * whoever has made one of these asks gpufi_h5_driver_error before every chunk, or now and then, and
 * after H5Fclose.
 *
 * The file on disk is plain HDF5, like one of HDF5's default driver. Another file that HDF5 opens
 * with the same access list meanwhile (an external link leads to it) has failures reported to HDF5
 * at once, as by the default driver. After H5Fclose a next file may be opened with the list, unless
 * something has failed. Single-writer-multiple-reader access is not offered: readers would not
 * learn of a failure.
 *
 * In a forked child an open file is the parent's: HDF5, which closes its files at exit there too,
 * reads what is on the disk, and what it writes goes nowhere. A file that the child opens is never
 * taken for one of its parent's: the disk counts. */
#ifndef GPUFI_HDF5_DRIVER_FILE_H
#define GPUFI_HDF5_DRIVER_FILE_H

#include <gpufetch/gpufetch.h>

#include "hdf5/driver/deferred.h"
#include "hdf5/driver/extents.h"
#include "hdf5/driver/latch.h"

#define GPUFI_H5_DRIVER_PATH_NBYTES 1024

/* Members are the driver's own. */
typedef struct gpufi_h5_driver_file {
  uint64_t number; /* which HDF5 compares; another one for each */
  int64_t process_id;
  int32_t reference_count; /* atomic: the writer's, and one of each access list */
  bool has_writer;         /* atomic: somebody may still ask for failures */
  bool has_told;           /* atomic: somebody has, and there was one */
  bool is_finished;        /* nobody writes to the file any more: it is only read, without a lock */
  /* The file that is made is an older one, which is not emptied: what it holds is overwritten. */
  bool is_recycled;
  int32_t thread_count; /* for deferred writes */
  gpufi_h5_latch latch;
  /* What follows is used under HDF5's lock, or the caller's own. */
  bool is_open;              /* atomic: changed there, and asked for by the writer */
  int open_error;            /* errno of the last attempt to open or lock it; 0 if that succeeded */
  bool notes_elements;       /* raw data that is written now is elements */
  gpufi_h5_extents elements; /* where those lie, but for short pieces */
  const char *announced;     /* writes of raw data from there are deferred; NULL = from nowhere */
  size_t announced_nbytes;
  const void *probe;      /* reads of raw data to there are only noted; NULL = to nowhere */
  gpufi_h5_extent probed; /* what the last of them would have read; none if it is empty */
  char path[GPUFI_H5_DRIVER_PATH_NBYTES]; /* as given to HDF5; cut if it is longer */
  /* Its mutex guards what follows, too. */
  gpufi_h5_deferred deferred;
  gpufi_h5_target target;   /* the open file; fd is -1 while there is none */
  gpufi_h5_mapping mapping; /* that was used, and is not any more */
  gpufi_h5_extent lost;     /* where deferred writes were not carried out, after a failure */
} gpufi_h5_driver_file;

/* --- For the writer ---------------------------------------------------------------
 *
 * The calls are made by one thread at a time, none of them while another thread is inside HDF5 with
 * this file. */

/* Before the file is opened: it is finished, and opened for reading. A failed read is remembered as
 * well as told to HDF5, and no lock is taken, which another process may hold. */
void gpufi_h5_driver_set_finished(gpufi_h5_driver_file *file);

/* Before the file is made: it is there already, with an older content that nobody else uses. Its
 * blocks are kept and overwritten, by up to `thread_count` threads, which is faster than new ones
 * are allocated. More than one thread write through a mapping, since they would wait for each other
 * otherwise. Reading what was not written gives zeros beyond the end that HDF5 knows, and old bytes
 * before it. */
void gpufi_h5_driver_set_recycled(gpufi_h5_driver_file *file, int32_t thread_count);

/* From now on HDF5 writes raw data from `bytes` (NULL: from no place any more). Such writes are
 * only noted, and the memory stays as it is until gpufi_h5_driver_drain. Entered. */
void gpufi_h5_driver_announce(gpufi_h5_driver_file *file, const void *bytes, size_t nbytes);
/* Begin to carry out what was deferred, once what was begun before is done: its memory is the
 * caller's again. gpufi_h5_driver_error tells of failures. Any thread, not entered: the writes need
 * no lock of HDF5's. */
void gpufi_h5_driver_begin(gpufi_h5_driver_file *file);
/* Carry out all that was deferred. As gpufi_h5_driver_begin. */
void gpufi_h5_driver_drain(gpufi_h5_driver_file *file);

/* Until gpufi_h5_driver_probed is called, reads of raw data to `probe` are only noted: nothing is
 * read. Entered. */
void gpufi_h5_driver_probe(gpufi_h5_driver_file *file, const void *probe);
/* Where the last of them was; empty if there was none. Entered. */
gpufi_h5_extent gpufi_h5_driver_probed(gpufi_h5_driver_file *file);

/* What is raw data to HDF5 is elements from now on, whose places are noted, or is not: HDF5 writes
 * some of its own structures so. */
void gpufi_h5_driver_note_elements(gpufi_h5_driver_file *file, bool notes_elements);

/* GPUF_OK while nothing has failed. GPUF_ERR_IO, with errno as native_code and with the operation,
 * the offset and the path in the message, if a system call has, for this file or for the attempt to
 * open it. GPUF_ERR_STATE in a forked child. Any thread, once H5Fcreate or H5Fopen has returned. */
gpuf_status gpufi_h5_driver_error(const gpufi_h5_driver_file *file, gpuf_error *err);

/* Whether HDF5 has the file open: it closes it without having been asked to where the program calls
 * H5close. Any thread. */
bool gpufi_h5_driver_is_open(const gpufi_h5_driver_file *file);

/* Once the file is closed: the mapping through which it was written, which the caller ends when it
 * has the time. Else gpufi_h5_driver_release does. */
gpufi_h5_mapping gpufi_h5_driver_take_mapping(gpufi_h5_driver_file *file);

/* The writer is done with it. If the file is still open, HDF5 is told of failures from now on, and
 * of the one that the writer has not heard of. */
void gpufi_h5_driver_release(gpufi_h5_driver_file *file);

/* --- For the driver --------------------------------------------------------------- */

/* With one reference, the writer's. NULL if there is no memory. */
gpufi_h5_driver_file *gpufi_h5_driver_file_create(void);
void gpufi_h5_driver_file_retain(gpufi_h5_driver_file *file);
void gpufi_h5_driver_file_drop(gpufi_h5_driver_file *file);
/* The file is open as `fd`, and holds `old_nbytes` bytes that are overwritten; or, with -1, it is
 * about to be closed: all that was deferred is carried out. */
void gpufi_h5_driver_set_target(gpufi_h5_driver_file *file, int fd, uint64_t old_nbytes);
/* What the file held before is not overwritten through a mapping any more: its length is about to
 * change. All that was deferred is carried out. */
void gpufi_h5_driver_end_mapping(gpufi_h5_driver_file *file);
/* Defer a write if it was announced. False where it is to be carried out now. */
bool gpufi_h5_driver_defer(gpufi_h5_driver_file *file, uint64_t offset, const void *bytes,
                           size_t nbytes);
/* Carry out what was deferred if one of the writes overlaps these bytes. False if they are lost. */
bool gpufi_h5_driver_settle(gpufi_h5_driver_file *file, uint64_t offset, size_t nbytes);

#endif
