/* Where the Unix sockets of a server lie. Their paths are a prefix, '-' and 1 to 5, as Jupyter has
 * it: the prefix stands as "ip" in the connection file. */
#ifndef GPUFI_SERVER_IPC_H
#define GPUFI_SERVER_IPC_H

#include <gpufetch/gpufetch.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Make a folder that its owner alone can open, and give the prefix of five sockets in it: the
 * folder STEM-ipc beside the connection file STEM.json, or a new one in /tmp where that path is too
 * long for a socket. */
gpuf_status gpufi_ipc_make(const char *connection_file, char prefix[PATH_MAX], gpuf_error *err);

/* Make a prefix that was given absolute, so that it holds wherever the program's working folder is
 * later. Its folder is made if it alone is missing; *has_made says so. */
gpuf_status gpufi_ipc_take(const char *given, char prefix[PATH_MAX], bool *has_made,
                           gpuf_error *err);

/* Whether a living server has the sockets that gpufi_ipc_make would name for a connection file. */
bool gpufi_ipc_is_in_use(const char *connection_file);

/* Whether the path is of a socket at which somebody listens, or that is in use otherwise. */
bool gpufi_ipc_is_living(const char *path);

/* Remove the sockets that a prefix names, if they are this user's, and the folder if
 * gpufi_ipc_make has made it and nothing else is in it: of these inodes or, where they are NULL,
 * those that are not living. */
void gpufi_ipc_remove(const char *prefix, const int32_t *numbers, const uint64_t *inodes,
                      int count);

#endif
