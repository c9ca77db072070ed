/* A server: its parts, and its thread. */
#ifndef GPUFI_SERVER_SERVER_H
#define GPUFI_SERVER_SERVER_H

#include "server/kernel.h"

#include <gpufetch/serve.h>

struct gpuf_server {
  struct gpuf_server *next; /* of those that run: serve.c */
  gpufi_connection connection;
  gpufi_bridge bridge; /* says itself which thread has what */
  pthread_t thread;
  int wake_fd; /* other threads have something for this one; -1 = none */
  atomic_bool is_stopping;

  /* The thread's, once it runs. */
  gpufi_endpoint endpoint;
  gpufi_kernel kernel;
};

/* thread.c: the thread's body, which serves until is_stopping. */
void *gpufi_server_main(void *server);

#endif
