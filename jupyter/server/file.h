/* Connection files that exist: what they say, and whether the server that wrote one still lives.
 * Nothing in a file is trusted. Thread-safety: any thread. */
#ifndef GPUFI_SERVER_FILE_H
#define GPUFI_SERVER_FILE_H

#include "server/connection.h"

#include <jansson.h>

/* The JSON object in a file, which the caller releases; NULL, with GPUF_OK, if there is no such
 * file. On failure *file is NULL. Fails with
 *   GPUF_ERR_INVALID    it is a folder, a link to no file or another thing than a file, or holds no
 *                       JSON object
 *   GPUF_ERR_STATE      another user may have written it, who would know its key
 *   GPUF_ERR_IO         it cannot be read
 *   GPUF_ERR_NO_MEMORY  there is no memory for it */
gpuf_status gpufi_file_load(const char *path, json_t **file, gpuf_error *err);

/* Whether gpufetch wrote the file, on this machine, and the process that did lives. NULL is
 * allowed, here and below. */
bool gpufi_file_is_alive(const json_t *file);
/* Whether gpufetch wrote the file, on this machine, and the process that did has ended. Such a file
 * alone may be replaced or removed without being asked for. */
bool gpufi_file_is_stale(const json_t *file);
/* The process that wrote the file; 0 if gpufetch did not. */
int64_t gpufi_file_process_id(const json_t *file);
/* The name of this machine, as files have it; "" if it has none. */
void gpufi_file_host(char host[HOST_NAME_MAX + 1]);

/* Remove the sockets that a stale file names. */
void gpufi_file_remove_sockets(const json_t *file);

/* Take the addresses, the ports and the keys in a file into *connection. NULL if a server can
 * listen as the file says, else what is wrong with it; *connection is then filled in part. */
const char *gpufi_file_settings(const json_t *file, gpufi_connection *connection);

#endif
