/* An open checkpoint writer, and how its checkpoints ended. */
#ifndef GPUFI_HDF5_CHECKPOINT_STATE_H
#define GPUFI_HDF5_CHECKPOINT_STATE_H

#include <pthread.h>

#include "hdf5/checkpoint/folder.h"
#include "hdf5/checkpoint/process.h"
#include "hdf5/checkpoint/ranks.h"
#include "hdf5/checkpoint/shards.h"
#include "hdf5/checkpoint/snapshot.h"
#include "hdf5/checkpoint/write.h"

typedef enum gpufi_checkpoint_phase {
  GPUFI_CHECKPOINT_IDLE,    /* no contents */
  GPUFI_CHECKPOINT_BEGUN,   /* contents and snapshot are those of the thread whose turn it is */
  GPUFI_CHECKPOINT_WRITING, /* they are the writer's */
  /* With ranks: as begun, until all ranks have said how theirs ended; and on rank 0, the writer's
   * while it writes the master. */
  GPUFI_CHECKPOINT_WRITTEN,
  GPUFI_CHECKPOINT_JOINING,
} gpufi_checkpoint_phase;

/* Of the file that was written, and of the older one that it was before, or 0. */
typedef struct gpufi_checkpoint_file_sizes {
  uint64_t file_nbytes, recycled_nbytes;
} gpufi_checkpoint_file_sizes;

/* With ranks: what the writer has done, for the thread whose turn it is once it has. */
typedef struct gpufi_checkpoint_written {
  gpuf_status status;
  gpuf_error error; /* why it failed, or what did not go well besides */
  gpufi_checkpoint_file_sizes sizes;
  gpufi_checkpoint_shards shards;
  bool is_published; /* the master has its name, also where the status is a failure */
} gpufi_checkpoint_written;

struct gpuf_checkpoint {
  gpufi_checkpoint_member member; /* first: the process hands it back */
  int64_t process_id;
  gpuf_checkpoint_options options; /* its application is the writer's own */
  gpufi_checkpoint_folder folder;
  gpufi_checkpoint_writing writing;
  gpufi_checkpoint_leftovers leftovers; /* given back after each checkpoint */
  int64_t finished_step; /* the writer's: that of the last one that it finished, or -1 */
  atomic_bool stop;      /* the process ends: what is being written is given up */
  pthread_t thread;
  pthread_mutex_t turn;         /* held by calls, one after another; without ranks, not by a wait */
  gpufi_checkpoint_ranks ranks; /* of the thread whose turn it is */
  gpufi_checkpoint_written written;
  gpufi_checkpoint_contents contents;
  gpufi_checkpoint_snapshot snapshot;
  int64_t stall_ns;
  int64_t committed_ns; /* when */
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t changed;
  gpufi_checkpoint_phase phase;
  bool ends;                     /* the writer is to return */
  bool is_entered;               /* the writer uses HDF5 or a device */
  gpuf_checkpoint_report report; /* of the one that is being written, or was last */
};

/* Whether a call may be made here: not in a forked child, in a kernel of the host backend, for
 * which the writer may wait, nor in the ranks' own agree. */
gpuf_status gpufi_checkpoint_check_caller(const gpuf_checkpoint *c, gpuf_error *err);

/* --- Reports (the lock is held, but where something else is said) ------------- */

/* The checkpoint that is being committed is the one to report on, and is being written. */
void gpufi_checkpoint_report_begin(gpuf_checkpoint *c);
/* What is reserved may have changed. Called by the thread whose turn it is. */
void gpufi_checkpoint_report_memory(gpuf_checkpoint *c);
/* It has ended. `error` is its failure, or what did not go well once it was finished; without a
 * message there was nothing. */
void gpufi_checkpoint_report_end(gpuf_checkpoint *c, gpuf_status status, const gpuf_error *error,
                                 const gpufi_checkpoint_file_sizes *sizes);
/* Fill the caller's report, unless it is NULL or was not initialised. */
void gpufi_checkpoint_report_write(const gpuf_checkpoint *c, gpuf_checkpoint_report *given);
/* How the last one ended. */
gpuf_status gpufi_checkpoint_outcome(const gpuf_checkpoint *c, gpuf_error *err);
/* Whether the caller's report, which may be NULL, can be filled. Without the lock. */
gpuf_status gpufi_checkpoint_check_report(const gpuf_checkpoint_report *report, gpuf_error *err);

#endif
