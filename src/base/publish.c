#include "base/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

gpuf_status gpufi_sync_descriptor(int fd, const char *path, gpuf_error *err) {
  return TEMP_FAILURE_RETRY(fsync(fd)) == 0
             ? GPUF_OK
             : gpufi_fail_system(err, "flushing to the disk of", path, errno);
}

bool gpufi_is_name_of(const char *path, int fd) {
  return gpufi_check_name(path, fd, NULL) == GPUF_OK;
}

gpuf_status gpufi_compare_name(const char *path, int fd, bool follows, int *difference,
                               gpuf_error *err) {
  struct stat named, held;
  const bool is_there = (follows ? stat(path, &named) : lstat(path, &named)) == 0;
  if ((!is_there && errno != ENOENT && errno != ENOTDIR) || fstat(fd, &held) != 0) {
    return gpufi_fail_system(err, "looking at", path, errno);
  }
  const bool is_same = is_there && named.st_dev == held.st_dev && named.st_ino == held.st_ino;
  *difference = is_same ? 0 : is_there ? ESTALE : ENOENT;
  return GPUF_OK;
}

gpuf_status gpufi_check_name(const char *path, int fd, gpuf_error *err) {
  int difference = 0;
  const gpuf_status status = gpufi_compare_name(path, fd, false, &difference, err);
  if (status != GPUF_OK || difference == 0) {
    return status;
  }
  return gpufi_fail(err, GPUF_ERR_IO, difference,
                    "'%s' was %s by another program while it was written: write it again, and let "
                    "one program at a time write or remove files of the folder",
                    path, difference == ESTALE ? "replaced" : "removed");
}

void gpufi_remove_name(const char *path, int fd) {
  if (gpufi_is_name_of(path, fd)) {
    unlink(path);
  }
}

/* Give the file a name that no other one has. A file system that cannot do so in one step has it
 * under both names for a moment. */
static int rename_new(const char *from, const char *to) {
  const int code = TEMP_FAILURE_RETRY(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE));
  if (code == 0 || (errno != EINVAL && errno != ENOSYS)) {
    return code;
  }
  return TEMP_FAILURE_RETRY(link(from, to)) == 0 ? unlink(from) : -1;
}

/* rename would replace a pipe, a socket or a device. A link's own name is replaced. */
static gpuf_status check_replaced(const char *to, gpuf_error *err) {
  struct stat found;
  return lstat(to, &found) != 0 || S_ISREG(found.st_mode) || S_ISLNK(found.st_mode)
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "'%s' is no regular file, and is not replaced: give another name", to);
}

gpuf_status gpufi_publish_file(const gpufi_publication *publication, gpuf_error *err) {
  const char *const from = publication->from;
  const char *const to = publication->to;
  gpuf_status status = publication->replaces ? check_replaced(to, err) : GPUF_OK;
  if (status == GPUF_OK && publication->syncs) {
    status = gpufi_sync_descriptor(publication->fd, from, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_check_name(from, publication->fd, err); /* flushing takes its time */
  }
  if (status != GPUF_OK) {
    return status;
  }
  if ((publication->replaces ? TEMP_FAILURE_RETRY(rename(from, to)) : rename_new(from, to)) != 0) {
    return gpufi_fail_system(err, "renaming the temporary to", to, errno);
  }
  return publication->syncs
             ? gpufi_sync_descriptor(publication->folder_fd, publication->folder, err)
             : GPUF_OK;
}
