#include "server/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gpufi_comm_id_of(const gpufi_message *message) {
  const json_t *value = json_object_get(message->content, "comm_id");
  const char *id = json_string_value(value);
  const size_t nbytes = json_string_length(value);
  if (!id || nbytes == 0 || nbytes > GPUFI_COMM_ID_MAX_NBYTES) {
    return NULL;
  }
  for (size_t i = 0; i < nbytes; i++) {
    if (id[i] <= ' ' || id[i] > '~' || id[i] == '"' || id[i] == '\\') {
      return NULL;
    }
  }
  return id;
}

void gpufi_comm_topic(const char *id, char topic[GPUFI_TOPIC_NBYTES]) {
  snprintf(topic, GPUFI_TOPIC_NBYTES, "comm-%s", id);
}

gpufi_comm *gpufi_comm_create(const char *id, const char *session) {
  gpufi_comm *comm = calloc(1, sizeof(*comm));
  if (comm) {
    snprintf(comm->id, sizeof(comm->id), "%s", id);
    snprintf(comm->session, sizeof(comm->session), "%s", session);
  }
  return comm;
}

void gpufi_comm_destroy(gpufi_comm *comm) {
  while (comm->pending) {
    gpufi_comm_end_pending(&comm->pending);
  }
  free(comm);
}

gpufi_comm **gpufi_comm_find_id(gpufi_comm **list, const char *id) {
  gpufi_comm **link = list;
  while (*link && strcmp((*link)->id, id) != 0) {
    link = &(*link)->next;
  }
  return link;
}

gpufi_comm *gpufi_comm_find_client(gpufi_comm *list, uint64_t client) {
  gpufi_comm *comm = list;
  while (comm && comm->client != client) {
    comm = comm->next;
  }
  return comm;
}

gpufi_comm *gpufi_comm_find_session(gpufi_comm *list, const char *session) {
  gpufi_comm *comm = list;
  while (comm && strcmp(comm->session, session) != 0) {
    comm = comm->next;
  }
  return comm;
}

bool gpufi_comm_add_pending(gpufi_comm *comm, uint64_t tag, json_t *header) {
  gpufi_pending *added = malloc(sizeof(*added));
  if (!added) {
    return false;
  }
  *added = (gpufi_pending){comm->pending, tag, json_incref(header)};
  comm->pending = added;
  return true;
}

gpufi_pending **gpufi_comm_find_pending(gpufi_comm *comm, uint64_t tag) {
  gpufi_pending **link = &comm->pending;
  while (*link && (*link)->tag != tag) {
    link = &(*link)->next;
  }
  return link;
}

void gpufi_comm_end_pending(gpufi_pending **link) {
  gpufi_pending *ended = *link;
  *link = ended->next;
  json_decref(ended->header);
  free(ended);
}
