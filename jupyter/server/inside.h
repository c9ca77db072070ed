/* Which servers the calling thread is inside of: a thread of a server's own always is, and one that
 * calls a server is until the call returns. Callbacks run there, which cannot stop that server: it
 * would be freed under the call, and a thread cannot wait for its own end. Thread-safety: any
 * thread; a server's address is only compared. */
#ifndef GPUFI_SERVER_INSIDE_H
#define GPUFI_SERVER_INSIDE_H

#include <gpufetch/serve.h>

#include <stdbool.h>

/* Lives on the stack of the thread while it is inside. */
typedef struct gpufi_inside {
  const gpuf_server *server;
  const struct gpufi_inside *outer;
} gpufi_inside;

void gpufi_inside_enter(gpufi_inside *inside, const gpuf_server *server);
void gpufi_inside_leave(const gpufi_inside *inside); /* the one that was entered last */
bool gpufi_inside_of(const gpuf_server *server);

#endif
