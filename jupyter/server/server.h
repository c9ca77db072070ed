/* What makes up a server, and its thread. */
#ifndef GPUFI_SERVER_SERVER_H
#define GPUFI_SERVER_SERVER_H

#include "server/kernel.h"
#include "server/parent.h"

#include <gpufetch/serve.h>

struct gpuf_server {
  struct gpuf_server *next; /* in the list of those that run: serve.c */
  gpufi_connection connection;
  gpufi_bridge bridge; /* see there which thread owns what */
  pthread_t thread;
  int wake_fd;             /* by which other threads wake this one; -1 = not open */
  atomic_bool is_closed;   /* gpuf_server_stop has begun: nothing is published any more */
  atomic_bool is_stopping; /* the thread is to end */

  /* These belong to the thread once it runs. */
  gpufi_endpoint endpoint;
  gpufi_kernel kernel;
  gpufi_parent parent; /* the kernel manager that started the program, while it is watched */
};

/* thread.c: the thread's body, which serves until is_stopping. */
void *gpufi_server_main(void *server);

#endif
