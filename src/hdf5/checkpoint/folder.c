#include "hdf5/checkpoint/folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/publish.h"
#include "base/system.h"
#include "base/text.h"

#define SUFFIX ".h5"
#define TEMPORARY_SUFFIX ".h5.tmp"
#define DIRECTORY_NBYTES_MAX ((size_t)1500)

typedef struct file_name {
  char text[GPUFI_CHECKPOINT_FILE_NAME_NBYTES];
} file_name;

/* --- Names ------------------------------------------------------------------- */

static file_name name_of(const gpufi_checkpoint_folder *folder, int64_t step) {
  file_name name;
  snprintf(name.text, sizeof(name.text), "%s-%0*" PRId64 SUFFIX, folder->prefix,
           GPUFI_CHECKPOINT_STEP_DIGITS_MIN, step);
  return name;
}

static file_name temporary_name_of(const gpufi_checkpoint_folder *folder, int64_t step) {
  file_name name;
  snprintf(name.text, sizeof(name.text), ".%s-%0*" PRId64 TEMPORARY_SUFFIX, folder->prefix,
           GPUFI_CHECKPOINT_STEP_DIGITS_MIN, step);
  return name;
}

/* The step of a file's name as name_of writes it, or of a temporary's; -1 for any other name. */
static int64_t step_of(const gpufi_checkpoint_folder *folder, const char *name, bool is_temporary) {
  const size_t prefix_nbytes = strlen(folder->prefix);
  const char *at = name + is_temporary;
  char *end;
  if ((is_temporary && *name != '.') || strncmp(at, folder->prefix, prefix_nbytes) != 0 ||
      at[prefix_nbytes] != '-' || !isdigit((unsigned char)at[prefix_nbytes + 1])) {
    return -1;
  }
  errno = 0;
  const long long step = strtoll(at + prefix_nbytes + 1, &end, 10);
  if (errno != 0) {
    return -1;
  }
  const file_name expected = is_temporary ? temporary_name_of(folder, step) : name_of(folder, step);
  return strcmp(expected.text, name) == 0 ? step : -1;
}

gpufi_checkpoint_path gpufi_checkpoint_path_in(const gpufi_checkpoint_folder *folder,
                                               const char *name) {
  gpufi_checkpoint_path path = {""};
  const size_t folder_nbytes = strlen(folder->path);
  const size_t name_nbytes = strlen(name);
  memcpy(path.text, folder->path, folder_nbytes);
  path.text[folder_nbytes] = '/';
  memcpy(path.text + folder_nbytes + 1, name, name_nbytes + 1);
  return path;
}
_Static_assert(DIRECTORY_NBYTES_MAX + 1 + GPUFI_CHECKPOINT_FILE_NAME_NBYTES <=
                   GPUFI_CHECKPOINT_PATH_NBYTES,
               "the path of a file fits");
_Static_assert(GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX + 30 < GPUFI_CHECKPOINT_FILE_NAME_NBYTES,
               "the name of a file fits");

gpufi_checkpoint_path gpufi_checkpoint_path_of(const gpufi_checkpoint_folder *folder,
                                               int64_t step) {
  return gpufi_checkpoint_path_in(folder, name_of(folder, step).text);
}

gpufi_checkpoint_path gpufi_checkpoint_temporary_of(const gpufi_checkpoint_folder *folder,
                                                    int64_t step) {
  return gpufi_checkpoint_path_in(folder, temporary_name_of(folder, step).text);
}

/* --- Opening ----------------------------------------------------------------- */

static gpuf_status check_prefix(const char *prefix, gpuf_error *err) {
  const size_t nbytes = strlen(prefix);
  if (nbytes == 0 || nbytes > GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX || strchr(prefix, '/') ||
      !gpufi_text_is_utf8(prefix)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "prefix '%.250s' must be UTF-8 of 1 to %zu bytes without a slash", prefix,
                      GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX);
  }
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_folder_open(gpufi_checkpoint_folder *folder, const char *directory,
                                         const char *prefix, gpuf_error *err) {
  memset(folder, 0, sizeof(*folder));
  folder->fd = folder->lock_fd = -1;
  if (!directory || !prefix) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is NULL: give the checkpoints' %s",
                      directory ? "prefix" : "directory", directory ? "prefix" : "folder");
  }
  const gpuf_status status = check_prefix(prefix, err);
  if (status != GPUF_OK) {
    return status;
  }
  memcpy(folder->prefix, prefix, strlen(prefix) + 1);
  char *const path = realpath(directory, NULL);
  if (!path) {
    return gpufi_fail_system(err, "opening the checkpoints' folder", directory, errno);
  }
  const size_t nbytes = strlen(path);
  if (nbytes > DIRECTORY_NBYTES_MAX) {
    free(path);
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the path of the checkpoints' folder has %zu bytes; at most %zu do", nbytes,
                      DIRECTORY_NBYTES_MAX);
  }
  memcpy(folder->path, path, nbytes + 1);
  free(path);
  folder->fd = gpufi_open(folder->path, O_RDONLY | O_DIRECTORY, 0);
  return folder->fd >= 0
             ? GPUF_OK
             : gpufi_fail_system(err, "opening the checkpoints' folder", folder->path, errno);
}

/* Leave a note for whoever finds the prefix locked. */
static void sign(int fd) {
  char text[32];
  const int nbytes = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) == 0) {
    gpufi_write(fd, text, (size_t)nbytes);
  }
}

static gpuf_status refuse_locked(const gpufi_checkpoint_folder *folder, int fd, gpuf_error *err) {
  char owner[32] = "";
  const int64_t nbytes = gpufi_read(fd, owner, sizeof(owner) - 1);
  owner[nbytes > 0 ? nbytes : 0] = '\0';
  owner[strcspn(owner, "\n")] = '\0';
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "checkpoints '%s' in '%s' are being written by %s%s: choose another prefix, or "
                    "end it first",
                    folder->prefix, folder->path, *owner ? "process " : "another writer", owner);
}

static gpufi_checkpoint_path lock_path_of(const gpufi_checkpoint_folder *folder) {
  file_name name;
  snprintf(name.text, sizeof(name.text), ".%s.lock", folder->prefix);
  return gpufi_checkpoint_path_in(folder, name.text);
}

gpuf_status gpufi_checkpoint_folder_lock(gpufi_checkpoint_folder *folder, gpuf_error *err) {
  const gpufi_checkpoint_path path = lock_path_of(folder);
  const int fd = gpufi_open(path.text, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (fd < 0) {
    return gpufi_fail_system(err, "opening the lock file", path.text, errno);
  }
  if (TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB)) != 0) {
    const gpuf_status status = errno == EWOULDBLOCK
                                   ? refuse_locked(folder, fd, err)
                                   : gpufi_fail_system(err, "locking the file", path.text, errno);
    gpufi_close(fd);
    return status;
  }
  sign(fd);
  folder->lock_fd = fd;
  return GPUF_OK;
}

/* Whether the path leads to the open file still. */
static gpuf_status check_same(const char *path, int fd, const char *what, gpuf_error *err) {
  int difference = 0;
  const gpuf_status status = gpufi_compare_name(path, fd, true, &difference, err);
  if (status != GPUF_OK || difference == 0) {
    return status;
  }
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "the %s '%s' was removed or replaced since the writer was opened: close the "
                    "checkpoint writer, and open it again",
                    what, path);
}

gpuf_status gpufi_checkpoint_folder_check(const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  const gpuf_status status = check_same(folder->path, folder->fd, "folder", err);
  return status == GPUF_OK
             ? check_same(lock_path_of(folder).text, folder->lock_fd, "lock file", err)
             : status;
}

void gpufi_checkpoint_folder_close(gpufi_checkpoint_folder *folder) {
  if (folder->lock_fd >= 0) {
    /* A forked child that has not run yet still has the descriptor, and with it the lock. */
    flock(folder->lock_fd, LOCK_UN);
    gpufi_close(folder->lock_fd);
  }
  if (folder->fd >= 0) {
    gpufi_close(folder->fd);
  }
  folder->fd = folder->lock_fd = -1;
}

/* --- Listing ----------------------------------------------------------------- */

typedef struct step_list {
  int64_t *steps;
  size_t count;
} step_list;

static bool append(step_list *list, int64_t step) {
  if ((list->count & (list->count - 1)) == 0) {
    const size_t capacity = list->count ? 2 * list->count : 1;
    int64_t *const grown = realloc(list->steps, capacity * sizeof(*grown));
    if (!grown) {
      return false;
    }
    list->steps = grown;
  }
  list->steps[list->count++] = step;
  return true;
}

static int by_falling_step(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a;
  const int64_t right = *(const int64_t *)b;
  return (left < right) - (left > right);
}

static gpuf_status read_entries(const gpufi_checkpoint_folder *folder, DIR *entries,
                                bool are_temporary, step_list *list, gpuf_error *err) {
  const struct dirent *entry;
  while ((errno = 0, entry = readdir(entries)) != NULL) {
    const int64_t step = step_of(folder, entry->d_name, are_temporary);
    if (step >= 0 && !append(list, step)) {
      return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to list '%s'", folder->path);
    }
  }
  return errno == 0 ? GPUF_OK : gpufi_fail_system(err, "listing the folder", folder->path, errno);
}

DIR *gpufi_checkpoint_folder_entries(const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  const int fd = gpufi_open(folder->path, O_RDONLY | O_DIRECTORY, 0);
  DIR *const entries = fd >= 0 ? fdopendir(fd) : NULL;
  if (!entries) {
    gpufi_fail_system(err, "listing the folder", folder->path, errno);
    if (fd >= 0) {
      gpufi_close(fd);
    }
  }
  return entries;
}

static gpuf_status list_steps(const gpufi_checkpoint_folder *folder, bool are_temporary,
                              step_list *list, gpuf_error *err) {
  *list = (step_list){NULL, 0};
  DIR *const entries = gpufi_checkpoint_folder_entries(folder, err);
  if (!entries) {
    return GPUF_ERR_IO;
  }
  const gpuf_status status = read_entries(folder, entries, are_temporary, list, err);
  closedir(entries);
  if (status != GPUF_OK) {
    free(list->steps);
    *list = (step_list){NULL, 0};
  } else if (list->count > 1) {
    qsort(list->steps, list->count, sizeof(*list->steps), by_falling_step);
  }
  return status;
}

gpuf_status gpufi_checkpoint_folder_list(const gpufi_checkpoint_folder *folder, int64_t **steps,
                                         size_t *count, gpuf_error *err) {
  step_list list;
  const gpuf_status status = list_steps(folder, false, &list, err);
  *steps = list.steps;
  *count = list.count;
  return status;
}

gpuf_status gpufi_checkpoint_folder_check_new(const gpufi_checkpoint_folder *folder, int64_t step,
                                              gpuf_error *err) {
  struct stat found;
  const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(folder, step);
  if (lstat(path.text, &found) == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, EEXIST,
                      "there is a checkpoint of step %" PRId64 " already ('%s'): remove it, or set "
                      "options.replace",
                      step, path.text);
  }
  return errno == ENOENT ? GPUF_OK : gpufi_fail_system(err, "looking for", path.text, errno);
}

/* A temporary that nobody writes, while the prefix is locked. */
static void remove_left(const gpufi_checkpoint_folder *folder, int64_t step) {
  unlink(gpufi_checkpoint_temporary_of(folder, step).text);
}

gpuf_status gpufi_checkpoint_folder_sweep(const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  step_list list;
  const gpuf_status status = list_steps(folder, true, &list, err);
  for (size_t i = 0; i < list.count; i++) {
    remove_left(folder, list.steps[i]);
  }
  free(list.steps);
  return status;
}

/* --- Files ------------------------------------------------------------------- */

gpuf_status gpufi_checkpoint_temporary_create(const gpufi_checkpoint_folder *folder, int64_t step,
                                              gpufi_checkpoint_temporary *temporary,
                                              gpuf_error *err) {
  temporary->path = gpufi_checkpoint_temporary_of(folder, step);
  temporary->recycled_nbytes = 0;
  temporary->spare_step = -1;
  remove_left(folder, step); /* one that could not be removed before */
  temporary->fd = gpufi_open(temporary->path.text, O_RDWR | O_CREAT | O_EXCL, 0666);
  return temporary->fd >= 0
             ? GPUF_OK
             : gpufi_fail_system(err, "making the file", temporary->path.text, errno);
}

void gpufi_checkpoint_temporary_remove(const gpufi_checkpoint_temporary *temporary) {
  gpufi_remove_name(temporary->path.text, temporary->fd);
}

gpuf_status gpufi_checkpoint_folder_sync(const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  return gpufi_sync_descriptor(folder->fd, folder->path, err);
}

gpuf_status gpufi_checkpoint_publish(const gpufi_checkpoint_folder *folder, int64_t step,
                                     const gpufi_checkpoint_temporary *temporary, bool replaces,
                                     bool syncs, gpuf_error *err) {
  const gpufi_checkpoint_path to = gpufi_checkpoint_path_of(folder, step);
  const gpufi_publication publication = {
      .from = temporary->path.text,
      .to = to.text,
      .folder = folder->path,
      .fd = temporary->fd,
      .folder_fd = folder->fd,
      .replaces = replaces,
      .syncs = syncs,
  };
  const gpuf_status status = gpufi_publish_file(&publication, err);
  if (status != GPUF_OK) {
    gpufi_checkpoint_temporary_remove(temporary);
  }
  return status;
}
