#include "comm/clients.h"

#include <stdlib.h>

void gpufi_clients_init(gpufi_clients *clients, int32_t max) {
  *clients = (gpufi_clients){.max = max};
  pthread_mutex_init(&clients->lock, NULL);
}

void gpufi_clients_fini(gpufi_clients *clients) {
  while (clients->first) {
    gpufi_client *next = clients->first->next;
    free(clients->first);
    clients->first = next;
  }
  pthread_mutex_destroy(&clients->lock);
}

uint64_t gpufi_clients_admit(gpufi_clients *clients, bool *full) {
  gpufi_client *client = calloc(1, sizeof(*client));
  uint64_t id = 0;
  pthread_mutex_lock(&clients->lock);
  *full = clients->count >= clients->max;
  if (client && !*full) {
    id = client->id = client->owner = ++clients->last_id;
    client->next = clients->first;
    clients->first = client;
    clients->count++;
    client = NULL;
  } else {
    clients->refused_count++;
  }
  pthread_mutex_unlock(&clients->lock);
  free(client);
  return id;
}

/* Under the lock: the link that leads to a client, or to NULL. */
static gpufi_client **client_link(gpufi_clients *clients, uint64_t id) {
  gpufi_client **link = &clients->first;
  while (*link && (*link)->id != id) {
    link = &(*link)->next;
  }
  return link;
}

bool gpufi_clients_remove(gpufi_clients *clients, uint64_t id) {
  pthread_mutex_lock(&clients->lock);
  gpufi_client **link = client_link(clients, id);
  gpufi_client *removed = *link;
  if (removed) {
    *link = removed->next;
    clients->count--;
  }
  pthread_mutex_unlock(&clients->lock);
  const bool known = removed != NULL;
  free(removed);
  return known;
}

bool gpufi_clients_find_owner(gpufi_clients *clients, uint64_t id, uint64_t *owner) {
  pthread_mutex_lock(&clients->lock);
  const gpufi_client *client = *client_link(clients, id);
  if (client) {
    *owner = client->owner;
  }
  pthread_mutex_unlock(&clients->lock);
  return client != NULL;
}

bool gpufi_clients_set_owner(gpufi_clients *clients, uint64_t id, uint64_t owner) {
  pthread_mutex_lock(&clients->lock);
  gpufi_client *client = *client_link(clients, id);
  if (client) {
    client->owner = owner;
  }
  pthread_mutex_unlock(&clients->lock);
  return client != NULL;
}

bool gpufi_clients_has(gpufi_clients *clients, uint64_t id) {
  uint64_t owner;
  return gpufi_clients_find_owner(clients, id, &owner);
}
