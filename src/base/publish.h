/* A file gets its name once it is whole and on the disk. Thread-safety: any thread. */
#ifndef GPUFI_BASE_PUBLISH_H
#define GPUFI_BASE_PUBLISH_H

#include <gpufetch/gpufetch.h>
#include <stdbool.h>

/* fsync(2), again where a signal interrupts it; `path` is for the message. */
gpuf_status gpufi_sync_descriptor(int fd, const char *path, gpuf_error *err);

/* Compare what the path names, or with `follows` leads to, with the file or folder that is open as
 * `fd`: *difference is 0, ENOENT where there is nothing, or ESTALE where there is something else.
 */
gpuf_status gpufi_compare_name(const char *path, int fd, bool follows, int *difference,
                               gpuf_error *err);
/* Whether the path is a name of the file that is open as `fd`, and not of one that has replaced it.
 */
bool gpufi_is_name_of(const char *path, int fd);
/* GPUF_ERR_IO where it is not, with the difference as errno. */
gpuf_status gpufi_check_name(const char *path, int fd, gpuf_error *err);
/* Remove the name; what another program has put there stays. */
void gpufi_remove_name(const char *path, int fd);

typedef struct gpufi_publication {
  const char *from;   /* the file's temporary name */
  const char *to;     /* its name, on the same file system */
  const char *folder; /* that of `to`, for messages */
  int fd;             /* of the file, which is complete, and which `from` must be a name of */
  int folder_fd;
  bool replaces; /* a file that has the name loses it; else there must be none */
  bool syncs;    /* the file is on the disk before it has its name, and the name afterwards */
} gpufi_publication;

/* Give a file its name. GPUF_ERR_IO, with errno, after a failure: EEXIST where the name is taken,
 * and as gpufi_check_name where another program has removed or replaced the file.
 * GPUF_ERR_INVALID where the name is that of a pipe, a socket, a device or a folder.
 * Where flushing the folder alone fails, the file has its name, which a power cut may take back. */
gpuf_status gpufi_publish_file(const gpufi_publication *publication, gpuf_error *err);

#endif
