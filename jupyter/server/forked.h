/* A forked child gives up the sockets of its parent's servers: as long as it had them, nobody could
 * listen at their addresses again, and connections that the parent closes would stay open. What
 * ZeroMQ keeps in memory of them is left as it is; none of its threads is in the child. */
#ifndef GPUFI_SERVER_FORKED_H
#define GPUFI_SERVER_FORKED_H

#include "server/connection.h"

typedef struct gpufi_forked gpufi_forked;
struct gpufi_forked {
  const gpufi_connection *connection; /* whose addresses tell which descriptors are the server's */
  gpufi_forked *next;
};

/* From now until gpufi_forked_unwatch, a forked child closes what listens at the connection's
 * addresses, and what has connected to them. Thread-safety: any thread. */
void gpufi_forked_watch(gpufi_forked *server, const gpufi_connection *connection);
void gpufi_forked_unwatch(gpufi_forked *server); /* of all zero: does nothing */

#endif
