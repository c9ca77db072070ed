/* Connection files: by them clients find a server, and a kernel manager tells a server what to
 * listen on. */
#ifndef GPUFI_SERVER_CONNECTION_H
#define GPUFI_SERVER_CONNECTION_H

#include "server/wire.h"

#include <limits.h>

typedef enum gpufi_socket {
  GPUFI_SHELL,
  GPUFI_IOPUB,
  GPUFI_STDIN,
  GPUFI_CONTROL,
  GPUFI_HEARTBEAT,
  GPUFI_SOCKET_COUNT,
} gpufi_socket;

#define GPUFI_NAME_MAX_NBYTES 64
#define GPUFI_CURVE_KEY_NBYTES 41 /* Z85 text and NUL */

/* What tells a file that was written from one that has its name, and may have its inode, later. */
typedef struct gpufi_written {
  uint64_t inode; /* 0 = none was written */
  int64_t time_s, time_ns;
} gpufi_written;

typedef struct gpufi_connection {
  char name[GPUFI_NAME_MAX_NBYTES + 1]; /* of the server; numbered if it was taken */
  char path[PATH_MAX];                  /* of the connection file, absolute */
  bool is_ipc;
  bool has_sockets;                           /* with ipc: there are files to remove */
  uint64_t socket_inodes[GPUFI_SOCKET_COUNT]; /* of those files; 0 = it does not listen there */
  char ip[PATH_MAX];                 /* the address; with ipc, how the paths of the sockets begin */
  char sockets[PATH_MAX];            /* with ipc: `ip` as an absolute path */
  bool has_made_folder;              /* of the sockets, for an `ip` that was given */
  int32_t ports[GPUFI_SOCKET_COUNT]; /* 0 = any that is free */
  char key[GPUFI_WIRE_KEY_MAX_NBYTES + 1];
  char curve_publickey[GPUFI_CURVE_KEY_NBYTES]; /* both "" without CurveZMQ */
  char curve_secretkey[GPUFI_CURVE_KEY_NBYTES];
  /* Of the file's folder and, for an `ip` that was given, of the sockets' folder, if it is another,
   * between claim and write; else -1. */
  int lock_fd, sockets_lock_fd;
  gpufi_written written;  /* the file */
  gpufi_written external; /* the one in the folder external_kernels */
  int64_t process_id;
  char *given; /* what a file said that was given, until the server has started */
} gpufi_connection;

extern const char *const gpufi_socket_names[GPUFI_SOCKET_COUNT]; /* "shell", ... */

/* Choose the file's path and the server's name. If `file` is NULL, the path is kernel-NAME.json in
 * Jupyter's runtime folder, which is made if it is missing, and NAME is numbered while there is
 * such a file, unless gpufetch wrote it on this machine and the process has ended. Otherwise the
 * path is `file`, and the settings in such a file are taken, whoever wrote them: a kernel manager,
 * or a server that it started before this one. The call fails if the file is of a living server on
 * this machine, if another user may have written it, or if it is anything but a whole connection
 * file. Holds the folders' locks until gpufi_connection_write or _fini.
 */
gpuf_status gpufi_connection_claim(gpufi_connection *connection, const char *name, const char *file,
                                   gpuf_error *err);

/* URL of a socket; with port 0 one that asks for any port. `url` holds PATH_MAX + 64 bytes. */
void gpufi_connection_url(const gpufi_connection *connection, gpufi_socket socket, char *url);

/* Write the file, readable by its owner alone, in one step. `external`: also as
 * external_kernels/kernel-NAME.json beside it, where JupyterLab looks for kernels; files there of
 * servers that have ended are removed. */
gpuf_status gpufi_connection_write(gpufi_connection *connection, bool external, gpuf_error *err);

/* Remove the sockets of ipc, and the files if they are still the ones that this process wrote. Safe
 * to repeat. */
void gpufi_connection_remove(gpufi_connection *connection);
/* The server has started: a file that was given goes with it. */
void gpufi_connection_keep(gpufi_connection *connection);
/* gpufi_connection_remove, and give up the locks. Where the server has not started, a file that was
 * given is there again. */
void gpufi_connection_fini(gpufi_connection *connection);

#endif
