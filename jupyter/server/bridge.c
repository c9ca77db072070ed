#include "server/bridge.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/json.h"
#include "server/inside.h"
#include "server/wake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long gpuf_server_stop waits for other processes that use shared memory. */
#define IMPORTERS_WAIT_NS 5000000000
/* Answers to requests whose comm is closed while they run, one on each thread that runs some: the
 * worker, the server's and the one that publishes a step. */
#define LATE_ANSWERS_MAX 3
/* After all subscribers were dropped, replies wait so long for them to connect anew. */
#define RECONNECT_NS 1000000000

_Static_assert(GPUF_PUBLISH_NAME_MAX_NBYTES == GPUFI_TENSOR_NAME_MAX_NBYTES &&
                   GPUF_PUBLISH_TEXT_MAX_NBYTES == GPUFI_TEXT_MAX_NBYTES,
               "serve.h says what the dispatcher takes");

/* --- From the dispatcher ------------------------------------------------------- */

static void set_work(gpufi_bridge *bridge) {
  pthread_mutex_lock(&bridge->lock);
  bridge->has_work = true;
  pthread_cond_signal(&bridge->changed);
  pthread_mutex_unlock(&bridge->lock);
}

static void take_reply(void *arg, uint64_t client, uint64_t tag, gpufi_reply *reply) {
  gpufi_bridge *bridge = arg;
  gpufi_answers_put(&bridge->answers, client, tag, reply);
  gpufi_wake(bridge->wake_fd);
}

static void take_log(void *arg, const char *text) {
  const gpufi_bridge *bridge = arg;
  if (bridge->endpoint->log) {
    bridge->endpoint->log(bridge->endpoint->log_arg, text);
  }
}

/* --- The worker ---------------------------------------------------------------- */

static void *worker_main(void *arg) {
  gpufi_bridge *bridge = arg;
  gpufi_inside inside;
  gpufi_inside_enter(&inside, bridge->server);
  pthread_mutex_lock(&bridge->lock);
  while (!bridge->is_stopping) {
    if (!bridge->has_work) {
      pthread_cond_wait(&bridge->changed, &bridge->lock);
      continue;
    }
    bridge->has_work = false;
    pthread_mutex_unlock(&bridge->lock);
    const bool more = gpufi_dispatcher_run(bridge->dispatcher);
    pthread_mutex_lock(&bridge->lock);
    bridge->has_work = bridge->has_work || more;
  }
  pthread_mutex_unlock(&bridge->lock);
  gpufi_inside_leave(&inside);
  return NULL;
}

gpuf_status gpufi_bridge_init(gpufi_bridge *bridge, gpufi_endpoint *endpoint, int wake_fd,
                              const gpufi_dispatcher_options *options, gpuf_error *err) {
  gpufi_dispatcher_options own = *options;
  bridge->endpoint = endpoint;
  bridge->wake_fd = wake_fd;
  gpufi_answers_init(&bridge->answers);
  bridge->open_max = options->client_max;
  own.client_max = options->client_max + 1; /* which is opened before the longest unused closes */
  pthread_mutex_init(&bridge->lock, NULL);
  pthread_cond_init(&bridge->changed, NULL);
  own.reply = take_reply;
  own.log = take_log;
  own.arg = bridge;
  return gpufi_dispatcher_create(&own, &bridge->dispatcher, err);
}

gpuf_status gpufi_bridge_start(gpufi_bridge *bridge, gpuf_error *err) {
  const int code = gpufi_thread_start(&bridge->worker, "gpufetch-reads", 0, worker_main, bridge);
  if (code != 0) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, code, "no thread for the server: %s",
                      strerror(code));
  }
  bridge->is_running = true;
  return GPUF_OK;
}

void gpufi_bridge_stop(gpufi_bridge *bridge) {
  if (bridge->is_running) {
    pthread_mutex_lock(&bridge->lock);
    bridge->is_stopping = true;
    pthread_cond_signal(&bridge->changed);
    pthread_mutex_unlock(&bridge->lock);
    pthread_join(bridge->worker, NULL);
    bridge->is_running = false;
  }
}

gpuf_status gpufi_bridge_fini(gpufi_bridge *bridge, gpuf_error *err) {
  if (!bridge->endpoint) {
    return GPUF_OK; /* it was never made */
  }
  const gpuf_status status = gpufi_dispatcher_destroy(bridge->dispatcher, IMPORTERS_WAIT_NS, err);
  gpufi_answers_fini(&bridge->answers);
  pthread_cond_destroy(&bridge->changed);
  pthread_mutex_destroy(&bridge->lock);
  return status;
}

/* --- Open comms ---------------------------------------------------------------- */

/* Answer a message of a comm that cannot be told, or cannot be opened, by Jupyter's message for
 * what went wrong. */
static void send_error(gpufi_bridge *bridge, const gpufi_message *message, const char *problem) {
  gpufi_endpoint_publish(
      bridge->endpoint, "error", "error", message->header,
      json_pack("{ss ss s[]}", "ename", "ValueError", "evalue", problem, "traceback"));
}

static void send_close(gpufi_bridge *bridge, const char *id, json_t *parent) {
  char topic[GPUFI_TOPIC_NBYTES];
  gpufi_comm_topic(id, topic);
  gpufi_endpoint_publish(bridge->endpoint, topic, "comm_close", parent,
                         json_pack("{ss s{}}", "comm_id", id, "data"));
}

static void end_pending(gpufi_bridge *bridge, gpufi_pending **link) {
  bridge->pending_count--;
  gpufi_comm_end_pending(link);
}

/* Have memory for the answers to all messages that wait, and to `more`. */
static bool reserve_answers(gpufi_bridge *bridge, int32_t more) {
  return gpufi_answers_reserve(&bridge->answers,
                               (size_t)bridge->pending_count + (size_t)more + LATE_ANSWERS_MAX);
}

/* Remember a message of a comm under a new tag, which it returns; 0 without memory. */
static uint64_t add_pending(gpufi_bridge *bridge, gpufi_comm *comm, const gpufi_message *message) {
  const uint64_t tag = bridge->tag_count + 1;
  if (!reserve_answers(bridge, 1) || !gpufi_comm_add_pending(comm, tag, message->header)) {
    return 0;
  }
  bridge->tag_count = tag;
  bridge->pending_count++;
  return tag;
}

/* Close a comm: its messages that wait get no reply any more, but their idle. */
static void drop_comm(gpufi_bridge *bridge, gpufi_comm **link) {
  gpufi_comm *comm = *link;
  *link = comm->next;
  bridge->open_count--;
  gpufi_client_close(bridge->dispatcher, comm->client);
  while (comm->pending) {
    gpufi_endpoint_status(bridge->endpoint, comm->pending->header, "idle");
    end_pending(bridge, &comm->pending);
  }
  gpufi_comm_destroy(comm);
}

/* A client that vanishes leaves its comm open: where there are as many as may be, the one that was
 * used least recently is closed for the new one, which is not in the list yet. */
static void limit_open(gpufi_bridge *bridge) {
  gpufi_comm **link = &bridge->open;
  if (bridge->open_count < bridge->open_max) {
    return;
  }
  while ((*link)->next) {
    link = &(*link)->next;
  }
  gpufi_endpoint_log(bridge->endpoint, "more comms than comms_max: the longest unused was closed");
  send_close(bridge, (*link)->id, NULL);
  drop_comm(bridge, link);
}

static void put_first(gpufi_bridge *bridge, gpufi_comm *comm) {
  comm->next = bridge->open;
  bridge->open = comm;
}

/* --- Replies ------------------------------------------------------------------- */

/* A reply whose buffers ZeroMQ holds. */
typedef struct holder {
  gpufi_reply *reply;
  gpufi_bridge *bridge;
  atomic_size_t buffer_count; /* not released yet */
} holder;

static void release_buffer(void *data, void *arg) {
  holder *held = arg;
  if (atomic_fetch_sub(&held->buffer_count, 1) == 1) {
    gpufi_bridge *bridge = held->bridge;
    gpufi_reply_free(held->reply);
    atomic_fetch_add(&bridge->release_count, 1);
    free(held);
    set_work(bridge); /* a request may have waited for the memory */
  }
}

/* {"comm_id": ID, "data": REPLY}; the reply is JSON already. NULL without memory. */
static char *content_of(const char *id, const gpufi_reply *reply) {
  char *text = NULL;
  return asprintf(&text, "{\"comm_id\":\"%s\",\"data\":%.*s}", id, (int)reply->json_nbytes,
                  reply->json) >= 0
             ? text
             : NULL;
}

/* Takes over the reply. */
static void send_reply(gpufi_bridge *bridge, const char *id, json_t *parent, gpufi_reply *reply) {
  char topic[GPUFI_TOPIC_NBYTES];
  gpufi_packed packed;
  gpufi_payload payloads[GPUFI_REPLY_BUFFERS_MAX];
  const size_t count = reply->buffer_count;
  char *content = content_of(id, reply);
  holder *held = malloc(sizeof(*held));
  gpuf_error err;
  if (gpufi_message_pack(bridge->endpoint->session, "comm_msg", parent, content, &packed, &err) !=
      GPUF_OK) {
    gpufi_endpoint_log(bridge->endpoint, err.message);
    free(held);
    held = NULL;
  } else if (!held) {
    gpufi_packed_fini(&packed);
  }
  if (!held) {
    gpufi_reply_free(reply);
    return;
  }
  held->reply = reply;
  held->bridge = bridge;
  atomic_init(&held->buffer_count, count + 1);
  for (size_t i = 0; i < count; i++) {
    payloads[i] =
        (gpufi_payload){(void *)reply->buffers[i], reply->buffer_nbytes[i], release_buffer, held};
  }
  gpufi_comm_topic(id, topic);
  const gpufi_frame frame = {topic, strlen(topic)};
  gpufi_sockets_send(&bridge->endpoint->sockets, GPUFI_IOPUB, &frame, 1, &packed, payloads, count);
  release_buffer(NULL, held);
}

static void send_answer(gpufi_bridge *bridge, const gpufi_answer *sent) {
  gpufi_comm *comm = gpufi_comm_find_client(bridge->open, sent->client);
  gpufi_pending **link = comm ? gpufi_comm_find_pending(comm, sent->tag) : NULL;
  if (!link || !*link) {
    gpufi_reply_free(sent->reply);
    set_work(bridge);
    return;
  }
  if (sent->reply) { /* else there was no memory for it */
    send_reply(bridge, comm->id, (*link)->header, sent->reply);
  }
  gpufi_endpoint_status(bridge->endpoint, (*link)->header, "idle");
  end_pending(bridge, link);
}

bool gpufi_bridge_is_short(const gpufi_bridge *bridge) {
  return gpufi_dispatcher_is_short(bridge->dispatcher);
}

int64_t gpufi_bridge_released_ns(gpufi_bridge *bridge) {
  const uint64_t count = atomic_load(&bridge->release_count);
  if (!bridge->watched_ns || bridge->watched_release_count != count ||
      !gpufi_bridge_is_short(bridge)) {
    bridge->watched_ns = gpufi_clock_ns();
  }
  bridge->watched_release_count = count;
  return bridge->watched_ns;
}

void gpufi_bridge_hold(gpufi_bridge *bridge) {
  bridge->watched_ns = gpufi_clock_ns();
  bridge->held_until_ns = bridge->watched_ns + RECONNECT_NS;
}

void gpufi_bridge_send_answers(gpufi_bridge *bridge) {
  if (bridge->held_until_ns > gpufi_clock_ns()) {
    return;
  }
  gpufi_answer *first = gpufi_answers_take(&bridge->answers);
  const bool any = first != NULL;
  while (first) {
    gpufi_answer *next = first->next;
    send_answer(bridge, first);
    free(first);
    first = next;
  }
  if (any) {
    reserve_answers(bridge, 0);
  }
}

/* --- Messages of clients ------------------------------------------------------- */

/* Make the dispatcher's client for a new comm; the reply to it is under way then. */
static bool open_client(gpufi_bridge *bridge, gpufi_comm *comm, const gpufi_message *message) {
  gpufi_reply *refusal = NULL;
  gpuf_error err;
  const uint64_t tag = add_pending(bridge, comm, message);
  if (tag == 0) {
    return false;
  }
  const gpuf_status status =
      gpufi_client_open(bridge->dispatcher, message->data.data, message->data.nbytes, tag,
                        &comm->client, &refusal, &err);
  if (refusal) {
    send_reply(bridge, comm->id, message->header, refusal);
  }
  if (status != GPUF_OK) {
    end_pending(bridge, &comm->pending);
  }
  return status == GPUF_OK;
}

/* All comms of a session take turns with those of others as one. */
static void take_owner(gpufi_bridge *bridge, gpufi_comm *comm) {
  const gpufi_comm *other = gpufi_comm_find_session(bridge->open, comm->session);
  comm->owner = other ? other->owner : comm->client;
  gpufi_client_set_owner(bridge->dispatcher, comm->client, comm->owner);
}

bool gpufi_bridge_open(gpufi_bridge *bridge, gpufi_message *message) {
  const char *target = json_string_value(json_object_get(message->content, "target_name"));
  const char *id = gpufi_comm_id_of(message);
  if (!id || *gpufi_comm_find_id(&bridge->open, id)) {
    static const char problem[] =
        "comm_open refused: its comm_id is no text of 1 to 128 printable bytes, or is open";
    gpufi_endpoint_log(bridge->endpoint, problem);
    send_error(bridge, message, problem);
    return false;
  }
  if (message->problem) {
    send_error(bridge, message, message->problem);
  }
  const bool is_ours = target && strcmp(target, GPUFI_COMM_TARGET) == 0 && !message->problem;
  gpufi_comm *comm = is_ours ? gpufi_comm_create(id, message->session) : NULL;
  if (!comm) {
    send_close(bridge, id, message->header);
    return false;
  }
  if (!open_client(bridge, comm, message)) {
    send_close(bridge, id, message->header);
    gpufi_comm_destroy(comm);
    return false;
  }
  take_owner(bridge, comm);
  limit_open(bridge);
  put_first(bridge, comm);
  bridge->open_count++;
  return true;
}

/* The comm of a message. One that is not open is closed once more: its client attached before the
 * server restarted. */
static gpufi_comm *use_comm(gpufi_bridge *bridge, const gpufi_message *message) {
  const char *id = gpufi_comm_id_of(message);
  gpufi_comm **link = id ? gpufi_comm_find_id(&bridge->open, id) : NULL;
  if (!id) {
    send_error(bridge, message,
               message->problem ? message->problem : "comm_msg without a comm_id that is open");
    return NULL;
  }
  if (!*link) {
    send_close(bridge, id, message->header);
    return NULL;
  }
  gpufi_comm *comm = *link;
  *link = comm->next;
  put_first(bridge, comm);
  return comm;
}

bool gpufi_bridge_submit(gpufi_bridge *bridge, gpufi_message *message) {
  gpufi_comm *comm = use_comm(bridge, message);
  const uint64_t tag = comm ? add_pending(bridge, comm, message) : 0;
  if (tag == 0) {
    return false;
  }
  const gpufi_raw data = message->data;
  if (message->problem) {
    gpufi_dispatcher_refuse(bridge->dispatcher, comm->client, data.data, data.nbytes,
                            message->problem, tag);
  } else {
    gpufi_dispatcher_message(bridge->dispatcher, comm->client, data.data, data.nbytes,
                             message->buffer_count, tag);
  }
  set_work(bridge);
  return true;
}

bool gpufi_bridge_close(gpufi_bridge *bridge, gpufi_message *message) {
  const char *id = gpufi_comm_id_of(message);
  gpufi_comm **link = id ? gpufi_comm_find_id(&bridge->open, id) : NULL;
  if (link && *link) {
    drop_comm(bridge, link);
  }
  return false;
}

void gpufi_bridge_close_session(gpufi_bridge *bridge, const gpufi_message *message) {
  gpufi_comm **link = &bridge->open;
  while (*link) {
    if (strcmp((*link)->session, message->session) == 0) {
      send_close(bridge, (*link)->id, message->header);
      drop_comm(bridge, link);
    } else {
      link = &(*link)->next;
    }
  }
}

void gpufi_bridge_close_all(gpufi_bridge *bridge) {
  while (bridge->open) {
    send_close(bridge, bridge->open->id, NULL);
    drop_comm(bridge, &bridge->open);
  }
}

json_t *gpufi_bridge_list(const gpufi_bridge *bridge, const char *target) {
  json_t *list = json_object();
  if (target && strcmp(target, GPUFI_COMM_TARGET) != 0) {
    return list;
  }
  for (const gpufi_comm *comm = bridge->open; comm && list; comm = comm->next) {
    gpufi_json_put(&list, comm->id, json_pack("{ss}", "target_name", GPUFI_COMM_TARGET));
  }
  return list;
}
