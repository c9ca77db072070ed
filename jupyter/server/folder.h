/* Jupyter's runtime folder, and folders of connection files in general. Thread-safety: any thread.
 */
#ifndef GPUFI_SERVER_FOLDER_H
#define GPUFI_SERVER_FOLDER_H

#include <gpufetch/gpufetch.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* As jupyter_core.paths.jupyter_runtime_dir gives it on Linux. It need not exist. */
gpuf_status gpufi_folder_runtime(char folder[PATH_MAX], gpuf_error *err);
/* Make a folder and those above it, as mkdir -p does; only the owner can open new ones. */
gpuf_status gpufi_folder_make(const char *folder, gpuf_error *err);
/* The folder of a path; "." if it has no slash. */
void gpufi_folder_of(const char *path, char folder[PATH_MAX]);

/* Lock a folder, so that servers that start at the same time take turns. Whoever can open the
 * folder can lock it: after `wait_ns`, which is to be longer than any server needs, and on a file
 * system without locks, the call gives the folder without its lock. On failure *fd is -1. */
gpuf_status gpufi_folder_lock(const char *folder, int64_t wait_ns, int *fd, gpuf_error *err);
/* Give a lock up, if *fd is one, and make it -1. */
void gpufi_folder_unlock(int *fd);
/* Whether a descriptor is of the folder that has this path now. */
bool gpufi_folder_is_of(const char *folder, int fd);

/* Make a path absolute, so that it holds wherever the program's working folder is later. */
gpuf_status gpufi_path_absolute(const char *path, char absolute[PATH_MAX], gpuf_error *err);

/* Fails with GPUF_ERR_INVALID. */
gpuf_status gpufi_path_too_long(const char *path, gpuf_error *err);

#endif
