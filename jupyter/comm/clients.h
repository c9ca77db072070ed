/* The clients of a dispatcher: whoever sends it requests, one for each open comm. A client is known
 * by an id, which is never 0 and never used again. Thread-safety: any thread. */
#ifndef GPUFI_COMM_CLIENTS_H
#define GPUFI_COMM_CLIENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct gpufi_client {
  struct gpufi_client *next;
  uint64_t id;
  uint64_t owner; /* of its requests: itself, or the client that it takes turns with others as */
} gpufi_client;

typedef struct gpufi_clients {
  int32_t max;
  pthread_mutex_t lock; /* guards what follows */
  gpufi_client *first;
  uint64_t last_id;
  int32_t count;
  uint64_t refused_count; /* of gpufi_clients_admit, since creation */
} gpufi_clients;

void gpufi_clients_init(gpufi_clients *clients, int32_t max);
void gpufi_clients_fini(gpufi_clients *clients);

/* The id of a new client; 0 if there are too many, so that *full is true, or there is no memory. */
uint64_t gpufi_clients_admit(gpufi_clients *clients, bool *full);
/* False if there is no such client. */
bool gpufi_clients_remove(gpufi_clients *clients, uint64_t id);
bool gpufi_clients_has(gpufi_clients *clients, uint64_t id);
/* As gpufi_clients_has. */
bool gpufi_clients_set_owner(gpufi_clients *clients, uint64_t id, uint64_t owner);
bool gpufi_clients_find_owner(gpufi_clients *clients, uint64_t id, uint64_t *owner);

#endif
