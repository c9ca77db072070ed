/* Messages: what is answered at once, what waits, and the running of what waits, live or when a
 * step is complete. */
#include "base/clock.h"
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A batch of requests at one step takes no longer than this and one request more. */
#define STEP_BATCH_NS INT64_C(2000000)

/* --- The queues, under the lock ------------------------------------------------------------- */

static void push(gpufi_comm *comm, gpufi_comm_queue *queue, gpufi_comm_client *client,
                 gpufi_comm_request *request) {
  request->next = NULL;
  *queue->tail = request;
  queue->tail = &request->next;
  client->waiting_count++;
  comm->counts.waiting_count++;
  if (queue == &comm->at_step) {
    atomic_fetch_add(&comm->step_waiting_count, 1);
  }
}

static gpufi_comm_request *take(gpufi_comm *comm, gpufi_comm_queue *queue,
                                gpufi_comm_request **link) {
  gpufi_comm_request *request = *link;
  gpufi_comm_client *client = gpufi_comm_client_find(comm, request->client);
  *link = request->next;
  if (queue->tail == &request->next) {
    queue->tail = link;
  }
  request->next = NULL;
  if (client) {
    client->waiting_count--;
  }
  comm->counts.waiting_count--;
  if (queue == &comm->at_step) {
    atomic_fetch_sub(&comm->step_waiting_count, 1);
  }
  return request;
}

/* Take out the requests that fit: of a client (0 = all), with this id or key (NULL = any). */
static gpufi_comm_request *take_matching(gpufi_comm *comm, gpufi_comm_queue *queue, uint64_t client,
                                         const gpufi_comm_token *id, const char *key) {
  gpufi_comm_request *taken = NULL;
  for (gpufi_comm_request **link = &queue->head; *link;) {
    gpufi_comm_request *request = *link;
    if ((client == 0 || request->client == client) &&
        (!id || gpufi_comm_token_equal(&request->id, id)) &&
        (!key || strcmp(request->supersede, key) == 0)) {
      take(comm, queue, link);
      request->next = taken;
      taken = request;
    } else {
      link = &request->next;
    }
  }
  return taken;
}

/* --- Without the lock ------------------------------------------------------------------------- */

static void fail_request(gpufi_comm *comm, const gpufi_comm_request *request, gpufi_comm_code code,
                         const gpuf_error *err) {
  if (code != COMM_SUPERSEDED && code != COMM_CANCELLED) {
    gpufi_comm_log(comm, code, err->message);
  }
  gpufi_comm_deliver(comm, request->client, request->tag,
                     gpufi_comm_error_reply(comm, request, code, err), code);
}

/* Answer and free a list of requests that will not be run; returns how many. */
static int32_t fail_all(gpufi_comm *comm, gpufi_comm_request *requests, gpufi_comm_code code,
                        const char *text) {
  int32_t count = 0;
  gpuf_error err;
  gpufi_fail(&err, GPUF_ERR_STATE, 0, "%s", text);
  for (gpufi_comm_request *next; requests; requests = next) {
    next = requests->next;
    fail_request(comm, requests, code, &err);
    free(requests);
    count++;
  }
  return count;
}

static void free_all(gpufi_comm_request *requests) {
  for (gpufi_comm_request *next; requests; requests = next) {
    next = requests->next;
    free(requests);
  }
}

void gpufi_comm_queue_drop(gpufi_comm *comm, uint64_t client) {
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_request *live = take_matching(comm, &comm->live, client, NULL, NULL);
  gpufi_comm_request *at_step = take_matching(comm, &comm->at_step, client, NULL, NULL);
  pthread_mutex_unlock(&comm->lock);
  free_all(live);
  free_all(at_step);
}

static void run_and_deliver(gpufi_comm *comm, const gpufi_comm_request *request) {
  gpufi_comm_code code;
  gpufi_comm_reply *reply = gpufi_comm_execute(comm, request, &code);
  gpufi_comm_deliver(comm, request->client, request->tag, reply, code);
}

/* Take the first request of a queue, with room for its reply reserved; NULL if there is none, or
 * no room. */
static gpufi_comm_request *take_first(gpufi_comm *comm, gpufi_comm_queue *queue) {
  gpufi_comm_request *request = NULL;
  pthread_mutex_lock(&comm->lock);
  if (queue->head && gpufi_comm_budget_reserve(comm)) {
    request = take(comm, queue, &queue->head);
  }
  pthread_mutex_unlock(&comm->lock);
  return request;
}

static void run_taken(gpufi_comm *comm, gpufi_comm_request *request) {
  run_and_deliver(comm, request);
  gpufi_comm_budget_unreserve(comm);
  free(request);
}

bool gpufi_comm_run(gpufi_comm *comm) {
  gpufi_comm_request *request = take_first(comm, &comm->live);
  if (!request) {
    return false;
  }
  run_taken(comm, request);
  pthread_mutex_lock(&comm->lock);
  const bool more = comm->live.head && gpufi_comm_budget_reserve(comm);
  if (more) {
    gpufi_comm_budget_unreserve(comm);
  }
  pthread_mutex_unlock(&comm->lock);
  return more;
}

/* --- Messages -----------------------------------------------------------------------------------
 */

static void cancel(gpufi_comm *comm, const gpufi_comm_request *request) {
  gpufi_comm_draft draft = {.json = gpufi_comm_envelope(request)};
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_request *live =
      take_matching(comm, &comm->live, request->client, &request->target, NULL);
  gpufi_comm_request *at_step =
      take_matching(comm, &comm->at_step, request->client, &request->target, NULL);
  pthread_mutex_unlock(&comm->lock);
  const char *text = "cancelled by its client";
  int32_t count = fail_all(comm, live, COMM_CANCELLED, text);
  count += fail_all(comm, at_step, COMM_CANCELLED, text);
  json_object_set_new(draft.json, "cancelled", json_integer(count));
  gpufi_comm_deliver(comm, request->client, request->tag, gpufi_comm_draft_finish(comm, &draft),
                     COMM_OK);
}

/* Put a request into a queue, in place of those that it supersedes. */
static gpufi_comm_code enqueue(gpufi_comm *comm, gpufi_comm_queue *queue,
                               const gpufi_comm_request *request, gpuf_error *err) {
  gpufi_comm_request *copy = malloc(sizeof(*copy)), *old_live = NULL, *old_at_step = NULL;
  gpufi_comm_code code = COMM_OK;
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_client *client = gpufi_comm_client_find(comm, request->client);
  if (client && request->supersede[0] != '\0') {
    old_live = take_matching(comm, &comm->live, client->id, NULL, request->supersede);
    old_at_step = take_matching(comm, &comm->at_step, client->id, NULL, request->supersede);
  }
  if (!copy) {
    code = COMM_FAIL(err, COMM_BUSY, "no memory for a request: ask again later");
  } else if (client && client->waiting_count >= comm->options.waiting_max) {
    code = COMM_FAIL(err, COMM_BUSY,
                     "%" PRId32 " requests of this client wait already: wait for replies, or let "
                     "newer requests supersede older ones",
                     client->waiting_count);
  } else if (client) {
    *copy = *request;
    push(comm, queue, client, copy);
    copy = NULL;
  } /* else it was closed by another thread: there is nobody to answer */
  pthread_mutex_unlock(&comm->lock);
  free(copy);
  const char *text = "a newer request has taken this one's place";
  fail_all(comm, old_live, COMM_SUPERSEDED, text);
  fail_all(comm, old_at_step, COMM_SUPERSEDED, text);
  return code;
}

static gpufi_comm_code wait_for_step(gpufi_comm *comm, gpufi_comm_request *request,
                                     gpuf_error *err) {
  int64_t step;
  double time;
  if (request->op == COMM_OP_SUBSCRIBE && !request->has_after) {
    request->has_after = gpufi_comm_last_step(comm, &step, &time);
    request->after = request->has_after ? step : 0;
  }
  const gpufi_comm_code code = enqueue(comm, &comm->at_step, request, err);
  /* A step that came before the request was in the queue did not see it; one that comes now
   * does. */
  if (code == COMM_OK && request->op == COMM_OP_SUBSCRIBE &&
      gpufi_comm_last_step(comm, &step, &time) && (!request->has_after || step != request->after)) {
    gpufi_comm_request *late = NULL;
    pthread_mutex_lock(&comm->lock);
    for (gpufi_comm_request **link = &comm->at_step.head; *link && !late; link = &(*link)->next) {
      if ((*link)->client == request->client && (*link)->tag == request->tag &&
          (*link)->op == COMM_OP_SUBSCRIBE) {
        late = take(comm, &comm->at_step, link);
        break;
      }
    }
    pthread_mutex_unlock(&comm->lock);
    if (late) {
      run_and_deliver(comm, late);
      free(late);
    }
  }
  return code;
}

static gpufi_comm_code run_at_once(gpufi_comm *comm, const gpufi_comm_request *request,
                                   gpuf_error *err) {
  if (!gpufi_comm_budget_reserve(comm)) {
    return COMM_FAIL(err, COMM_BUSY,
                     "replies that are not sent yet fill the %zu bytes allowed for them: read them "
                     "and ask again",
                     comm->options.reply_memory_nbytes);
  }
  run_and_deliver(comm, request);
  gpufi_comm_budget_unreserve(comm);
  return COMM_OK;
}

/* Run, queue or answer a request that is well formed. */
static gpufi_comm_code dispatch(gpufi_comm *comm, gpufi_comm_request *request, gpuf_error *err) {
  const bool steps = request->at_step || request->op == COMM_OP_SUBSCRIBE;
  if (steps && comm->options.no_steps) {
    return COMM_FAIL(err, COMM_UNSUPPORTED, "this server has no steps: ask for \"at\": \"live\"");
  }
  if (comm->options.no_share && (request->op == COMM_OP_SHARE || request->op == COMM_OP_UNSHARE)) {
    return COMM_FAIL(err, COMM_UNSUPPORTED, "this server shares no memory: use read");
  }
  if (request->op == COMM_OP_CANCEL) {
    cancel(comm, request);
    return COMM_OK;
  }
  if (steps) {
    return wait_for_step(comm, request, err);
  }
  return comm->options.run_in_message ? run_at_once(comm, request, err)
                                      : enqueue(comm, &comm->live, request, err);
}

bool gpufi_comm_message(gpufi_comm *comm, uint64_t client, const char *json, size_t json_nbytes,
                        size_t buffer_count, uint64_t tag) {
  gpufi_comm_request request;
  gpuf_error err = {0};
  pthread_mutex_lock(&comm->lock);
  const bool open = gpufi_comm_client_find(comm, client) != NULL;
  comm->counts.request_count += open;
  pthread_mutex_unlock(&comm->lock);
  if (!open) {
    return false;
  }
  gpufi_comm_code code = gpufi_comm_request_parse(json, json_nbytes, &request, &err);
  request.client = client;
  request.tag = tag;
  if (code == COMM_OK && buffer_count > 0) {
    code = COMM_FAIL(&err, COMM_BAD_REQUEST, "a request with %zu binary buffers; it has none",
                     buffer_count);
  }
  if (code == COMM_OK) {
    code = dispatch(comm, &request, &err);
  }
  if (code != COMM_OK) {
    fail_request(comm, &request, code, &err);
  }
  return true;
}

/* --- Steps
 * ---------------------------------------------------------------------------------------- */

bool gpufi_comm_last_step(gpufi_comm *comm, int64_t *step, double *time) {
  uint64_t before, after, bits;
  do {
    before = atomic_load(&comm->step_sequence);
    *step = atomic_load(&comm->step);
    bits = atomic_load(&comm->step_time_bits);
    after = atomic_load(&comm->step_sequence);
  } while (before != after || before % 2 == 1);
  memcpy(time, &bits, sizeof(bits));
  return before > 0;
}

/* Run requests that wait for a step, then none for so long that step_share is kept. */
static void serve_step(gpufi_comm *comm) {
  const int64_t began_ns = gpufi_clock_ns();
  const int count = atomic_load(&comm->step_waiting_count); /* what comes later waits */
  if (began_ns < comm->step_next_ns) {
    return;
  }
  int64_t took_ns = 0;
  for (int i = 0; i < count && took_ns < STEP_BATCH_NS; i++) {
    gpufi_comm_request *request = take_first(comm, &comm->at_step);
    if (!request) {
      break;
    }
    run_taken(comm, request);
    took_ns = gpufi_clock_ns() - began_ns;
  }
  const double share = comm->options.step_share;
  comm->step_next_ns = began_ns + (int64_t)((double)took_ns / share);
}

void gpufi_comm_step(gpufi_comm *comm, int64_t step, double time) {
  uint64_t bits;
  memcpy(&bits, &time, sizeof(bits));
  /* Before the count is looked at: who enters a request looks at the step after that, so that one
   * of the two sees the other. */
  atomic_fetch_add(&comm->step_sequence, 1);
  atomic_store(&comm->step, step);
  atomic_store(&comm->step_time_bits, bits);
  atomic_fetch_add(&comm->step_sequence, 1);
  if (atomic_load(&comm->step_waiting_count) > 0) {
    serve_step(comm);
  }
}
