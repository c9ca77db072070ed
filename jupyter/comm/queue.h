/* Requests that wait: live ones to be run, and those that wait for a step. They are taken in
 * rounds: each owner has one request in a round at most, so that one with many requests holds up
 * another's by one for each owner at most. Thread-safety: any thread. */
#ifndef GPUFI_COMM_QUEUE_H
#define GPUFI_COMM_QUEUE_H

#include "comm/budget.h"
#include "comm/failure.h"
#include "comm/request.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum gpufi_queue_kind { QUEUE_LIVE, QUEUE_STEP, QUEUE_COUNT } gpufi_queue_kind;

typedef struct gpufi_queues {
  int32_t waiting_max;   /* of one client, in both queues together */
  atomic_int step_count; /* requests in QUEUE_STEP */
  pthread_mutex_t lock;  /* guards what follows */
  struct {
    gpufi_request *head; /* by rounds, and in a round by arrival */
    uint64_t round;      /* of the request that gpufi_queues_take_first gave last */
    bool is_short;       /* there was no memory for the reply when one was to be taken last */
  } lists[QUEUE_COUNT];
  int32_t waiting_count; /* requests in both queues */
  uint64_t last_serial;
} gpufi_queues;

/* Which requests to take: those of a client (0 = any), with this id or `supersede` (NULL = any), or
 * the one with this serial number (0 = any). */
typedef struct gpufi_queue_filter {
  uint64_t client;
  const gpufi_token *id;
  const char *supersede;
  uint64_t serial;
} gpufi_queue_filter;

void gpufi_queues_init(gpufi_queues *queues, int32_t waiting_max);
void gpufi_queues_fini(gpufi_queues *queues); /* drops what waits */

/* Put a copy of a request into a queue, in place of those of its client that it supersedes: a list
 * of these goes to *superseded, also on failure. CODE_BUSY if too many wait. Sets request->serial,
 * which no other request has. */
gpufi_code gpufi_queues_put(gpufi_queues *queues, gpufi_queue_kind kind, gpufi_request *request,
                            gpufi_request **superseded, gpuf_error *err);
/* Take the request whose turn it is, with memory for its reply reserved; NULL if there is
 * none, or no memory for it. The caller frees it. */
gpufi_request *gpufi_queues_take_first(gpufi_queues *queues, gpufi_queue_kind kind,
                                       gpufi_budget *budget);
/* Take requests out of both queues: a list, which the caller frees. */
gpufi_request *gpufi_queues_take(gpufi_queues *queues, const gpufi_queue_filter *filter);
/* Whether gpufi_queues_take_first would give one. */
bool gpufi_queues_can_take(gpufi_queues *queues, gpufi_queue_kind kind, gpufi_budget *budget);
/* Whether a request of either queue was to be taken, and waits for memory for its reply. */
bool gpufi_queues_are_short(gpufi_queues *queues);

int32_t gpufi_queues_count(gpufi_queues *queues);
void gpufi_requests_free(gpufi_request *list);

#endif
