/* The writes of one open file that I/O threads carry out: worker threads of the library
 * (core/workers.h), which take the oldest write that none has taken yet until there is none, and go
 * back. They touch nothing but the file's descriptor, the latch and the bytes: never HDF5, and
 * never Python.
 *
 * A forked child has none of the threads, and the mutex may be held in it for ever: it calls
 * nothing here. */
#ifndef GPUFI_HDF5_DRIVER_PENDING_H
#define GPUFI_HDF5_DRIVER_PENDING_H

#include <pthread.h>

#include "core/workers.h"
#include "hdf5/driver/latch.h"

#include <stddef.h>

#define GPUFI_H5_PENDING_MAX 256

/* Bytes on their way to a file. They stay readable and as they are until `done` is called. */
typedef struct gpufi_h5_range {
  int fd;
  uint64_t offset;
  const void *bytes;
  size_t nbytes;
  /* Called once, by any thread, with nothing locked: after the bytes are written, or have been
   * dropped since the latch is set. It must not call HDF5, nor wait for a thread that does. NULL:
   * nothing is called. */
  void (*done)(void *arg);
  void *arg;
} gpufi_h5_range;

typedef struct gpufi_h5_pending {
  gpufi_h5_latch *latch;  /* gets the failures */
  int32_t thread_count;   /* the most threads at a time */
  gpufi_workers workers;  /* used by the thread that adds and stops */
  pthread_mutex_t mutex;  /* guards what follows */
  pthread_cond_t written; /* some range is done */
  int32_t active_count;   /* threads that take ranges */
  /* Ranges are numbered from 0 on, and lie at their number modulo the capacity: those from
   * `first` on may be unfinished, those from `next` on are not taken yet, `end` is the next one
   * to be added. */
  uint64_t first, next, end;
  gpufi_h5_range ranges[GPUFI_H5_PENDING_MAX];
  bool is_finished[GPUFI_H5_PENDING_MAX];
} gpufi_h5_pending;

void gpufi_h5_pending_init(gpufi_h5_pending *pending, gpufi_h5_latch *latch, int32_t thread_count);
/* Nothing may be pending, and gpufi_h5_pending_stop was the last call. */
void gpufi_h5_pending_fini(gpufi_h5_pending *pending);

/* Let a thread write the range; the call itself does so where no thread can be started. False, and
 * nothing is done, if there are no threads or too many ranges are pending. No two calls of add and
 * stop at a time. */
bool gpufi_h5_pending_add(gpufi_h5_pending *pending, const gpufi_h5_range *range);
/* Wait until no pending range has one of the file's `nbytes` bytes from `offset` on. Any thread. */
void gpufi_h5_pending_wait(gpufi_h5_pending *pending, uint64_t offset, uint64_t nbytes);
/* Wait until nothing is pending. Any thread. */
void gpufi_h5_pending_drain(gpufi_h5_pending *pending);
/* The same, and until no thread uses `pending` any more. Ranges may be added afterwards. */
void gpufi_h5_pending_stop(gpufi_h5_pending *pending);

#endif
