/* Jupyter comms that are open: who opened each, which client of the dispatcher it is, and its
 * messages that wait for a reply. They belong to the server's thread. */
#ifndef GPUFI_SERVER_COMM_H
#define GPUFI_SERVER_COMM_H

#include "server/wire.h"

#define GPUFI_COMM_ID_MAX_NBYTES 128
#define GPUFI_TOPIC_NBYTES (GPUFI_COMM_ID_MAX_NBYTES + 8)

/* A message that waits for its reply. */
typedef struct gpufi_pending {
  struct gpufi_pending *next;
  uint64_t tag;
  json_t *header; /* of the message */
} gpufi_pending;

typedef struct gpufi_comm {
  struct gpufi_comm *next;
  char id[GPUFI_COMM_ID_MAX_NBYTES + 1];
  char session[GPUFI_WIRE_ID_MAX_NBYTES + 1]; /* of the client that opened it */
  uint64_t client;                            /* the dispatcher's id for it */
  uint64_t owner; /* the first client of its session, of those whose comms were open with it */
  gpufi_pending *pending;
} gpufi_comm;

/* The member comm_id of a message: 1 to GPUFI_COMM_ID_MAX_NBYTES printable characters that stand
 * in JSON as they are. NULL if it is missing or anything else. */
const char *gpufi_comm_id_of(const gpufi_message *message);
/* The topic under which iopub carries a comm's messages. */
void gpufi_comm_topic(const char *id, char topic[GPUFI_TOPIC_NBYTES]);

/* With no client yet; NULL where there is no memory. `id` is checked. */
gpufi_comm *gpufi_comm_create(const char *id, const char *session);
void gpufi_comm_destroy(gpufi_comm *comm); /* drops what is pending */

/* The link of a list that leads to the comm with an id, or to NULL. */
gpufi_comm **gpufi_comm_find_id(gpufi_comm **list, const char *id);
gpufi_comm *gpufi_comm_find_client(gpufi_comm *list, uint64_t client);      /* or NULL */
gpufi_comm *gpufi_comm_find_session(gpufi_comm *list, const char *session); /* one, or NULL */

/* Remember a message; false where there is no memory. */
bool gpufi_comm_add_pending(gpufi_comm *comm, uint64_t tag, json_t *header);
/* The link that leads to the pending message with a tag, or to NULL. */
gpufi_pending **gpufi_comm_find_pending(gpufi_comm *comm, uint64_t tag);
/* Take a pending message out of its list and free it. */
void gpufi_comm_end_pending(gpufi_pending **link);

#endif
