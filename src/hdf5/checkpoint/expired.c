#include "hdf5/checkpoint/expired.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/publish.h"
#include "base/system.h"
#include "hdf5/checkpoint/seal.h"
#include "hdf5/checkpoint/shard_files.h"

/* The steps of the files that have expired, the highest first, in memory that the caller frees. */
static gpuf_status list_expired(const gpufi_checkpoint_folder *folder,
                                const gpufi_checkpoint_keeping *keeping, int64_t **steps,
                                size_t *count, gpuf_error *err) {
  size_t all_count = 0;
  int32_t kept_count = 0;
  *steps = NULL;
  *count = 0;
  if (keeping->count <= 0 || keeping->step < 0) {
    return GPUF_OK;
  }
  const gpuf_status status = gpufi_checkpoint_folder_list(folder, steps, &all_count, err);
  for (size_t i = 0; i < all_count; i++) {
    const int64_t step = (*steps)[i];
    if (step > keeping->step ||
        !gpufi_checkpoint_has_seal(gpufi_checkpoint_path_of(folder, step).text)) {
      continue;
    }
    if (kept_count < keeping->count) {
      kept_count++;
    } else {
      (*steps)[(*count)++] = step;
    }
  }
  return status;
}

/* --- Removing ---------------------------------------------------------------- */

/* A master goes first, so that there never is one without its shards; with `syncs`, from the disk
 * as well. Shards that are left are removed by the next writer. */
static gpuf_status remove_step(const gpufi_checkpoint_folder *folder,
                               const gpufi_checkpoint_keeping *keeping, int64_t step,
                               gpuf_error *err) {
  const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(folder, step);
  gpufi_checkpoint_set set = {0, 0, 0};
  gpufi_checkpoint_read_set(path.text, &set);
  const int code = gpufi_checkpoint_leftovers_unlink(keeping->leftovers, path.text);
  if (code != 0) {
    return gpufi_fail_system(err, "removing the older checkpoint", path.text, code);
  }
  gpuf_status status = GPUF_OK;
  if (set.count > 0 && keeping->syncs) {
    status = gpufi_checkpoint_folder_sync(folder, err);
  }
  return set.count > 0 && status == GPUF_OK
             ? gpufi_checkpoint_shards_remove(folder, step, NULL, keeping->leftovers, err)
             : status;
}

gpuf_status gpufi_checkpoint_prune(const gpufi_checkpoint_folder *folder,
                                   const gpufi_checkpoint_keeping *keeping, gpuf_error *err) {
  int64_t *steps;
  size_t count;
  gpuf_status first = list_expired(folder, keeping, &steps, &count, err);
  for (size_t i = keeping->recycles; i < count; i++) {
    const gpuf_status status =
        remove_step(folder, keeping, steps[i], first == GPUF_OK ? err : NULL);
    first = first == GPUF_OK ? status : first;
  }
  free(steps);
  return first;
}

/* --- Recycling --------------------------------------------------------------- */

/* Whether no other descriptor or mapping leads to the file: the system grants a lease for writing
 * only then. It is given back at once. Somebody who opens the file in between makes the system send
 * a signal, for which one is chosen that does nothing by default. */
static bool is_nobodys(int fd) {
  return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0 &&
         fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

/* Whether the file, open as `fd`, may be overwritten: it has the one name, and nobody reads it. */
static bool is_ours_alone(int fd, struct stat *file) {
  return fstat(fd, file) == 0 && S_ISREG(file->st_mode) && file->st_nlink == 1 && is_nobodys(fd);
}

/* Give the file the temporary's name. Somebody may have opened it, or made a link to it, before it
 * lost its own: it is looked at again. */
static bool take_over(const gpufi_checkpoint_folder *folder, const char *from, bool syncs,
                      const gpufi_checkpoint_temporary *temporary) {
  struct stat file;
  if (!gpufi_is_name_of(from, temporary->fd) || rename(from, temporary->path.text) != 0) {
    return false;
  }
  if (is_ours_alone(temporary->fd, &file) &&
      (!syncs || gpufi_checkpoint_folder_sync(folder, NULL) == GPUF_OK)) {
    return true;
  }
  gpufi_checkpoint_temporary_remove(temporary);
  return false;
}

static bool recycle_file(const gpufi_checkpoint_folder *folder, const char *path, bool syncs,
                         gpufi_checkpoint_temporary *temporary) {
  struct stat file;
  temporary->fd = gpufi_open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
  if (temporary->fd < 0) {
    return false;
  }
  if (is_ours_alone(temporary->fd, &file) && take_over(folder, path, syncs, temporary)) {
    temporary->recycled_nbytes = (uint64_t)file.st_size;
    return true;
  }
  gpufi_close(temporary->fd);
  temporary->fd = -1;
  return false;
}

/* A master that somebody opened while it was taken over has lost its name: its shards go, too. */
static void remove_rest(const gpufi_checkpoint_folder *folder, int64_t step, bool syncs) {
  struct stat file;
  if (lstat(gpufi_checkpoint_path_of(folder, step).text, &file) != 0 && errno == ENOENT &&
      (!syncs || gpufi_checkpoint_folder_sync(folder, NULL) == GPUF_OK)) {
    gpufi_checkpoint_shards_remove(folder, step, NULL, NULL, NULL);
  }
}

bool gpufi_checkpoint_recycle(const gpufi_checkpoint_folder *folder,
                              const gpufi_checkpoint_keeping *keeping, int64_t step, bool syncs,
                              gpufi_checkpoint_temporary *temporary) {
  int64_t *steps;
  size_t count;
  bool is_recycled = false;
  *temporary = (gpufi_checkpoint_temporary){
      .path = gpufi_checkpoint_temporary_of(folder, step), .fd = -1, .spare_step = -1};
  if (!keeping->recycles) {
    return false;
  }
  if (list_expired(folder, keeping, &steps, &count, NULL) != GPUF_OK) {
    count = 0;
  }
  for (size_t i = 0; i < count && !is_recycled; i++) {
    const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(folder, steps[i]);
    gpufi_checkpoint_set set = {0, 0, 0};
    gpufi_checkpoint_read_set(path.text, &set);
    /* One that is to be replaced stays until the new one is whole. */
    is_recycled = steps[i] != step && recycle_file(folder, path.text, syncs, temporary);
    if (is_recycled && set.count > 0) {
      temporary->spare_step = steps[i];
      temporary->spare_set = set.number;
    } else if (set.count > 0) {
      remove_rest(folder, steps[i], syncs);
    }
  }
  free(steps);
  return is_recycled;
}

bool gpufi_checkpoint_recycle_shard(const gpufi_checkpoint_folder *folder,
                                    const gpufi_checkpoint_temporary *master, size_t index,
                                    gpufi_checkpoint_temporary *shard) {
  if (master->spare_step < 0) {
    return false;
  }
  const gpufi_checkpoint_shard_name name =
      gpufi_checkpoint_shard_name_of(folder->prefix, master->spare_step, master->spare_set, index);
  return recycle_file(folder, gpufi_checkpoint_path_in(folder, name.text).text, false, shard);
}
