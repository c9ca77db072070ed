/* The folder of one prefix's checkpoints: their names, who may write them, and what is done with
 * whole files. Used by one thread at a time, but where something else is said. */
#ifndef GPUFI_HDF5_CHECKPOINT_FOLDER_H
#define GPUFI_HDF5_CHECKPOINT_FOLDER_H

#include <dirent.h>
#include <gpufetch/checkpoint.h>

#define GPUFI_CHECKPOINT_PATH_NBYTES 2048
#define GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX ((size_t)200)
#define GPUFI_CHECKPOINT_FILE_NAME_NBYTES 256
#define GPUFI_CHECKPOINT_STEP_DIGITS_MIN 12

typedef struct gpufi_checkpoint_folder {
  char path[GPUFI_CHECKPOINT_PATH_NBYTES]; /* absolute */
  char prefix[GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX + 1];
  int fd;      /* of the folder; -1 while closed */
  int lock_fd; /* of the lock file, which is locked; -1 for readers */
} gpufi_checkpoint_folder;

typedef struct gpufi_checkpoint_path {
  char text[GPUFI_CHECKPOINT_PATH_NBYTES];
} gpufi_checkpoint_path;

/* A file that is being written. */
typedef struct gpufi_checkpoint_temporary {
  gpufi_checkpoint_path path;
  int fd;                   /* for reading and writing; -1 while there is none */
  uint64_t recycled_nbytes; /* of the older file that it was; 0: it is a new one, and empty */
  /* Where that file was a master: the step and the set of its shards, which have none any more; -1:
   * there are none. */
  int64_t spare_step;
  uint64_t spare_set;
} gpufi_checkpoint_temporary;

/* Check the names, and open the folder. `folder` is closed before, and after a failure. */
gpuf_status gpufi_checkpoint_folder_open(gpufi_checkpoint_folder *folder, const char *directory,
                                         const char *prefix, gpuf_error *err);
/* Lock the prefix for writing: GPUF_ERR_STATE where another one holds it. A forked child has the
 * lock too until it closes lock_fd. */
gpuf_status gpufi_checkpoint_folder_lock(gpufi_checkpoint_folder *folder, gpuf_error *err);
/* GPUF_ERR_STATE where the path of the folder or that of the lock file leads elsewhere by now:
 * another writer may hold the prefix there. */
gpuf_status gpufi_checkpoint_folder_check(const gpufi_checkpoint_folder *folder, gpuf_error *err);
void gpufi_checkpoint_folder_close(gpufi_checkpoint_folder *folder);

/* The paths of a finished checkpoint and of one that is being written. */
gpufi_checkpoint_path gpufi_checkpoint_path_of(const gpufi_checkpoint_folder *folder, int64_t step);
gpufi_checkpoint_path gpufi_checkpoint_temporary_of(const gpufi_checkpoint_folder *folder,
                                                    int64_t step);

/* The path of another file of the folder. `name` has less than GPUFI_CHECKPOINT_FILE_NAME_NBYTES
 * bytes.
 */
gpufi_checkpoint_path gpufi_checkpoint_path_in(const gpufi_checkpoint_folder *folder,
                                               const char *name);
/* The folder's entries, from the first one, for closedir; NULL after a failure, GPUF_ERR_IO. */
DIR *gpufi_checkpoint_folder_entries(const gpufi_checkpoint_folder *folder, gpuf_error *err);

/* The steps of the finished ones, the highest first, in memory that the caller frees. */
gpuf_status gpufi_checkpoint_folder_list(const gpufi_checkpoint_folder *folder, int64_t **steps,
                                         size_t *count, gpuf_error *err);
/* GPUF_ERR_INVALID if there is a finished one of the step. */
gpuf_status gpufi_checkpoint_folder_check_new(const gpufi_checkpoint_folder *folder, int64_t step,
                                              gpuf_error *err);
/* Remove the temporaries, which are dead owners' while the prefix is locked. */
gpuf_status gpufi_checkpoint_folder_sweep(const gpufi_checkpoint_folder *folder, gpuf_error *err);

/* Make the step's temporary, empty, and open it; `temporary->fd` is -1 where that fails. */
gpuf_status gpufi_checkpoint_temporary_create(const gpufi_checkpoint_folder *folder, int64_t step,
                                              gpufi_checkpoint_temporary *temporary,
                                              gpuf_error *err);
/* Remove its name, unless another program has put something else there; it stays open. */
void gpufi_checkpoint_temporary_remove(const gpufi_checkpoint_temporary *temporary);
/* Have changes of names on the disk. */
gpuf_status gpufi_checkpoint_folder_sync(const gpufi_checkpoint_folder *folder, gpuf_error *err);
/* Give the temporary its final name, which no file has, or any with `replaces`. With `syncs`, the
 * file is on the disk before that, and its name afterwards. Of a failure no temporary is left. */
gpuf_status gpufi_checkpoint_publish(const gpufi_checkpoint_folder *folder, int64_t step,
                                     const gpufi_checkpoint_temporary *temporary, bool replaces,
                                     bool syncs, gpuf_error *err);

#endif
