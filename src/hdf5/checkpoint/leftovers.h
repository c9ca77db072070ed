/* What a writer needs no longer, and the system takes its time to give back: the cached pages of
 * files that have lost their names, and mappings. It is given back once the checkpoint is finished
 * and reported on, while the program goes on. */
#ifndef GPUFI_HDF5_CHECKPOINT_LEFTOVERS_H
#define GPUFI_HDF5_CHECKPOINT_LEFTOVERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/workers.h"
#include "hdf5/driver/io.h"

/* What does not find a place is given back at once. */
#define GPUFI_CHECKPOINT_LEFTOVERS_MAX 64

typedef struct gpufi_checkpoint_leftovers {
  /* Of files without names; -1: none. A descriptor is open as long as it stands here. */
  atomic_int fds[GPUFI_CHECKPOINT_LEFTOVERS_MAX];
  pthread_mutex_t mutex; /* guards the mappings */
  gpufi_h5_mapping mappings[GPUFI_CHECKPOINT_LEFTOVERS_MAX];
  size_t mapping_count;
  /* Those that a thread ends, which were the others: it uses them until it has. */
  gpufi_workers unmapping;
  gpufi_h5_mapping ending[GPUFI_CHECKPOINT_LEFTOVERS_MAX];
  size_t ending_count;
} gpufi_checkpoint_leftovers;

void gpufi_checkpoint_leftovers_init(gpufi_checkpoint_leftovers *leftovers);
/* After gpufi_checkpoint_leftovers_release: wait until nothing is left. */
void gpufi_checkpoint_leftovers_fini(gpufi_checkpoint_leftovers *leftovers);

/* Take the name of a file away. 0, also where there is none; or errno. On the file systems of one
 * machine what it holds is given back later. With NULL as leftovers, at once. Any thread. */
int gpufi_checkpoint_leftovers_unlink(gpufi_checkpoint_leftovers *leftovers, const char *path);
/* Take over a mapping, which may be none. Any thread. */
void gpufi_checkpoint_leftovers_add(gpufi_checkpoint_leftovers *leftovers,
                                    gpufi_h5_mapping mapping);

/* Give all of it back. Mappings take no room on a disk: what is left of them when this returns is
 * ended while the next checkpoint is written. */
void gpufi_checkpoint_leftovers_release(gpufi_checkpoint_leftovers *leftovers);
/* In a forked child: close the descriptors, by which it would keep the files. */
void gpufi_checkpoint_leftovers_forget(const gpufi_checkpoint_leftovers *leftovers);

#endif
