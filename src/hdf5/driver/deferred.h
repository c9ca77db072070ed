/* Writes that HDF5 was told are done, and that threads carry out later, outside of HDF5: those of
 * chunks, whose memory the caller keeps as it is meanwhile. Those that are noted are begun
 * together; while they are under way, the next ones are noted. */
#ifndef GPUFI_HDF5_DRIVER_DEFERRED_H
#define GPUFI_HDF5_DRIVER_DEFERRED_H

#include "core/crew.h"
#include "hdf5/driver/io.h"

typedef struct gpufi_h5_write {
  uint64_t offset; /* in the file */
  const void *bytes;
  size_t nbytes;
} gpufi_h5_write;

/* Zeroed: none. */
typedef struct gpufi_h5_writes {
  gpufi_h5_write *all; /* that do not overlap */
  size_t count, capacity;
} gpufi_h5_writes;

/* Every function but the first is called with the mutex held. */
typedef struct gpufi_h5_deferred {
  pthread_mutex_t mutex; /* guards the next five */
  gpufi_h5_writes noted, under_way;
  gpufi_crew crew; /* the threads, from the first writes that are begun on */
  bool has_crew;
  gpufi_job job;
  /* Of those under way. */
  const gpufi_h5_target *target;
  pthread_mutex_t claims; /* guards what follows */
  size_t index, at;       /* the next piece is at `at` of write `index` */
  int code;               /* errno of the first failure, which was at `offset` */
  uint64_t offset;
} gpufi_h5_deferred;

/* Zeroed before. */
void gpufi_h5_deferred_init(gpufi_h5_deferred *d);
/* False, and nothing is added, where there is no memory. */
bool gpufi_h5_deferred_add(gpufi_h5_deferred *d, const gpufi_h5_write *write);
/* Whether one that is noted or under way overlaps these bytes. */
bool gpufi_h5_deferred_overlaps(const gpufi_h5_deferred *d, uint64_t offset, size_t nbytes);
/* Let up to `thread_count` threads carry out those that are noted. None is under way. */
void gpufi_h5_deferred_begin(gpufi_h5_deferred *d, const gpufi_h5_target *to, int32_t thread_count);
/* Wait for those that are under way; `under_way` is then the caller's to empty. 0, or errno of the
 * first failure, which was at *offset of the file. */
int gpufi_h5_deferred_end(gpufi_h5_deferred *d, uint64_t *offset);
/* The threads end. Nothing is under way. */
void gpufi_h5_deferred_dismiss(gpufi_h5_deferred *d);
/* A forked child leaves the threads alone, which are its parent's. */
void gpufi_h5_deferred_fini(gpufi_h5_deferred *d);

#endif
