#include "hdf5/checkpoint/rank_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system.h"
#include "hdf5/checkpoint/manifest.h"
#include "hdf5/checkpoint/shard_files.h"

#define FILE_NBYTES_MAX ((int64_t)1 << 30)

typedef struct file_name {
  char text[GPUFI_CHECKPOINT_FILE_NAME_NBYTES];
} file_name;

/* ".", "-", 20 digits, ".", 16 digits, ".", 10 digits, ".part". */
_Static_assert(GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX + 55 < GPUFI_CHECKPOINT_FILE_NAME_NBYTES,
               "the name of a rank's file fits");

static file_name name_of(const gpufi_checkpoint_folder *folder,
                         const gpufi_checkpoint_rank_file *which) {
  file_name name;
  snprintf(name.text, sizeof(name.text), ".%s-%0*" PRId64 ".%016" PRIx64 ".%" PRId32 ".part",
           folder->prefix, GPUFI_CHECKPOINT_STEP_DIGITS_MIN, which->step, which->set, which->rank);
  return name;
}

static gpufi_checkpoint_path path_of(const gpufi_checkpoint_folder *folder,
                                     const gpufi_checkpoint_rank_file *which) {
  return gpufi_checkpoint_path_in(folder, name_of(folder, which).text);
}

/* --- Writing ----------------------------------------------------------------- */

static gpuf_status write_text(const char *path, const char *text, size_t nbytes, gpuf_error *err) {
  const int fd = gpufi_open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd < 0) {
    return gpufi_fail_system(err, "making the file", path, errno);
  }
  int code = gpufi_write(fd, text, nbytes) ? 0 : errno;
  if (!gpufi_close(fd) && code == 0) {
    code = errno;
  }
  if (code != 0) {
    unlink(path);
    return gpufi_fail_system(err, "writing", path, code);
  }
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_rank_file_write(const gpufi_checkpoint_folder *folder,
                                             const gpufi_checkpoint_rank_file *which,
                                             const gpufi_checkpoint_contents *share,
                                             gpuf_error *err) {
  char *text;
  size_t nbytes;
  gpuf_status status = gpufi_checkpoint_manifest_format(share, &text, &nbytes, err);
  if (status == GPUF_OK) {
    status = write_text(path_of(folder, which).text, text, nbytes, err);
    free(text);
  }
  return status;
}

/* --- Reading ----------------------------------------------------------------- */

static gpuf_status open_text(const char *path, int32_t rank, int *fd, gpuf_error *err) {
  *fd = gpufi_open(path, O_RDONLY | O_NOFOLLOW, 0);
  if (*fd >= 0) {
    return GPUF_OK;
  }
  return errno == ENOENT
             ? gpufi_fail(err, GPUF_ERR_IO, ENOENT,
                          "rank %" PRId32 " has written its shards, and its file '%s' is not "
                          "there: give all ranks the same folder, on a file system that they share",
                          rank, path)
             : gpufi_fail_system(err, "opening", path, errno);
}

/* The caller frees the text. */
static gpuf_status read_text(const char *path, int fd, char **text, size_t *nbytes,
                             gpuf_error *err) {
  struct stat file;
  if (fstat(fd, &file) != 0) {
    return gpufi_fail_system(err, "looking at", path, errno);
  }
  if (!S_ISREG(file.st_mode) || file.st_size > FILE_NBYTES_MAX) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "'%s' is no rank's file", path);
  }
  *nbytes = (size_t)file.st_size;
  *text = malloc(*nbytes + 1);
  if (!*text) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", *nbytes);
  }
  const int64_t read_nbytes = gpufi_read(fd, *text, *nbytes);
  if (read_nbytes != (int64_t)*nbytes) {
    const int code = errno;
    free(*text);
    *text = NULL;
    return read_nbytes < 0 ? gpufi_fail_system(err, "reading", path, code)
                           : gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "'%s' was cut", path);
  }
  return GPUF_OK;
}

/* Whether the file names its own step and shards. */
static bool is_expected(const gpufi_checkpoint_folder *folder,
                        const gpufi_checkpoint_rank_file *which, size_t shard_count,
                        const gpufi_checkpoint_contents *share) {
  bool is_good =
      share->step == which->step && share->shard_count == shard_count && !share->self.name;
  for (size_t i = 0; i < shard_count && is_good; i++) {
    const gpufi_checkpoint_shard_name name = gpufi_checkpoint_shard_name_of(
        folder->prefix, which->step, which->set, (size_t)which->rank * shard_count + i);
    is_good =
        share->shards[i].uuid[0] == which->set && strcmp(share->shards[i].name, name.text) == 0;
  }
  return is_good;
}

gpuf_status gpufi_checkpoint_rank_file_read(const gpufi_checkpoint_folder *folder,
                                            const gpufi_checkpoint_rank_file *which,
                                            size_t shard_count, gpufi_checkpoint_contents *share,
                                            gpuf_error *err) {
  const gpufi_checkpoint_path path = path_of(folder, which);
  char *text = NULL;
  size_t nbytes;
  int fd;
  gpuf_status status = open_text(path.text, which->rank, &fd, err);
  if (fd < 0) {
    return status;
  }
  status = read_text(path.text, fd, &text, &nbytes, err);
  gpufi_close(fd);
  if (!text) {
    return status;
  }
  share->is_share = true;
  status = gpufi_checkpoint_manifest_parse(share, text, nbytes, err);
  free(text);
  if (status == GPUF_ERR_CORRUPT ||
      (status == GPUF_OK && !is_expected(folder, which, shard_count, share))) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "'%s' is not what rank %" PRId32 " has written of its shards", path.text,
                      which->rank);
  }
  return status;
}

/* --- Removing ---------------------------------------------------------------- */

void gpufi_checkpoint_rank_file_remove(const gpufi_checkpoint_folder *folder,
                                       const gpufi_checkpoint_rank_file *which) {
  unlink(path_of(folder, which).text);
}

/* A number, and what stands before it. `*at` comes to lie behind it; 0 where it is not so. */
static uint64_t take_number(const char **at, char before, int base) {
  char *end;
  if (**at != before) {
    return 0;
  }
  const uint64_t number = strtoull(*at + 1, &end, base);
  *at = end;
  return number;
}

/* Whether the name is one that name_of gives. */
static bool parse(const gpufi_checkpoint_folder *folder, const char *name) {
  gpufi_checkpoint_rank_file found;
  const size_t prefix_nbytes = strlen(folder->prefix);
  if (*name != '.' || strncmp(name + 1, folder->prefix, prefix_nbytes) != 0) {
    return false;
  }
  const char *at = name + 1 + prefix_nbytes;
  found.step = (int64_t)take_number(&at, '-', 10);
  found.set = take_number(&at, '.', 16);
  found.rank = (int32_t)take_number(&at, '.', 10);
  return strcmp(name_of(folder, &found).text, name) == 0;
}

gpuf_status gpufi_checkpoint_rank_files_sweep(const gpufi_checkpoint_folder *folder,
                                              gpuf_error *err) {
  const struct dirent *entry;
  DIR *const entries = gpufi_checkpoint_folder_entries(folder, err);
  if (!entries) {
    return GPUF_ERR_IO;
  }
  while ((errno = 0, entry = readdir(entries)) != NULL) {
    if (parse(folder, entry->d_name)) {
      unlink(gpufi_checkpoint_path_in(folder, entry->d_name).text);
    }
  }
  const int code = errno;
  closedir(entries);
  return code == 0 ? GPUF_OK : gpufi_fail_system(err, "listing the folder", folder->path, code);
}
