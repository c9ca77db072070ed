#include "server/comms.h"

#include "base/clock.h"
#include "base/error.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COMM_ID_MAX_NBYTES 128
#define TOPIC_NBYTES (COMM_ID_MAX_NBYTES + 8)
/* How long gpuf_server_stop waits for other processes that use shared memory. */
#define IMPORTERS_WAIT_NS 5000000000
/* Longer than sockets.c waits for one subscriber that takes nothing. */
#define STUCK_NS 8000000000
/* In which subscribers connect anew after all were dropped: replies wait for them. */
#define RECONNECT_NS 1000000000

_Static_assert(GPUF_PUBLISH_NAME_MAX_NBYTES == GPUFI_COMM_NAME_MAX_NBYTES &&
                   GPUF_PUBLISH_TEXT_MAX_NBYTES == GPUFI_COMM_TEXT_MAX_NBYTES,
               "serve.h says what the dispatcher takes");

/* A message that waits for its reply. */
typedef struct request {
  struct request *next;
  uint64_t tag;
  json_t *header; /* of the message */
} request;

typedef struct gpufi_open_comm {
  struct gpufi_open_comm *next;
  char id[COMM_ID_MAX_NBYTES + 1];
  char session[GPUFI_WIRE_ID_MAX_NBYTES + 1]; /* whose it is */
  uint64_t client;                            /* the dispatcher's name for it */
  request *requests;
} open_comm;

typedef struct gpufi_answer {
  struct gpufi_answer *next;
  uint64_t client, tag;
  gpufi_comm_reply *reply;
} answer;

/* --- From the dispatcher -------------------------------------------------------------- */

static void set_work(gpufi_comms *comms) {
  pthread_mutex_lock(&comms->lock);
  comms->has_work = true;
  pthread_cond_signal(&comms->changed);
  pthread_mutex_unlock(&comms->lock);
}

static void take_answer(void *arg, uint64_t client, uint64_t tag, gpufi_comm_reply *reply) {
  gpufi_comms *comms = arg;
  answer *taken = malloc(sizeof(*taken));
  if (!taken) {
    gpufi_comm_reply_free(reply);
    return;
  }
  *taken = (answer){NULL, client, tag, reply};
  pthread_mutex_lock(&comms->lock);
  *comms->answers_end = taken;
  comms->answers_end = &taken->next;
  pthread_mutex_unlock(&comms->lock);
  gpufi_server_wake(comms->server);
}

static void take_log(void *arg, const char *text) {
  const gpufi_comms *comms = arg;
  if (comms->server->log) {
    comms->server->log(comms->server->log_arg, text);
  }
}

/* --- The worker ------------------------------------------------------------------------- */

static void *worker_main(void *arg) {
  gpufi_comms *comms = arg;
  pthread_mutex_lock(&comms->lock);
  while (!comms->is_stopping) {
    if (!comms->has_work) {
      pthread_cond_wait(&comms->changed, &comms->lock);
      continue;
    }
    comms->has_work = false;
    pthread_mutex_unlock(&comms->lock);
    const bool more = gpufi_comm_run(comms->dispatcher);
    pthread_mutex_lock(&comms->lock);
    comms->has_work = comms->has_work || more;
  }
  pthread_mutex_unlock(&comms->lock);
  return NULL;
}

gpuf_status gpufi_comms_init(gpufi_comms *comms, struct gpuf_server *server,
                             const gpufi_comm_options *options, gpuf_error *err) {
  gpufi_comm_options own = *options;
  comms->server = server;
  comms->answers_end = &comms->answers;
  comms->open_max = options->client_max;
  comms->full_nbytes = options->reply_memory_nbytes - 2 * GPUFI_COMM_REPLY_MAX_NBYTES;
  pthread_mutex_init(&comms->lock, NULL);
  pthread_cond_init(&comms->changed, NULL);
  own.reply = take_answer;
  own.log = take_log;
  own.arg = comms;
  return gpufi_comm_create(&own, &comms->dispatcher, err);
}

gpuf_status gpufi_comms_start(gpufi_comms *comms, gpuf_error *err) {
  const int code = pthread_create(&comms->worker, NULL, worker_main, comms);
  if (code != 0) {
    return gpufi_fail(err, GPUF_ERR_IO, code, "no thread for the server: %s", strerror(code));
  }
  pthread_setname_np(comms->worker, "gpufetch-reads");
  comms->is_running = true;
  return GPUF_OK;
}

void gpufi_comms_stop(gpufi_comms *comms) {
  if (comms->is_running) {
    pthread_mutex_lock(&comms->lock);
    comms->is_stopping = true;
    pthread_cond_signal(&comms->changed);
    pthread_mutex_unlock(&comms->lock);
    pthread_join(comms->worker, NULL);
    comms->is_running = false;
  }
}

gpuf_status gpufi_comms_fini(gpufi_comms *comms, gpuf_error *err) {
  if (!comms->server) {
    return GPUF_OK; /* it was never made */
  }
  const gpuf_status status = gpufi_comm_destroy(comms->dispatcher, IMPORTERS_WAIT_NS, err);
  while (comms->answers) {
    answer *next = comms->answers->next;
    gpufi_comm_reply_free(comms->answers->reply);
    free(comms->answers);
    comms->answers = next;
  }
  pthread_cond_destroy(&comms->changed);
  pthread_mutex_destroy(&comms->lock);
  return status;
}

/* --- Open comms --------------------------------------------------------------------------- */

/* The link that leads to a comm of that id, or to NULL. */
static open_comm **find_id(gpufi_comms *comms, const char *id) {
  open_comm **link = &comms->open;
  while (*link && strcmp((*link)->id, id) != 0) {
    link = &(*link)->next;
  }
  return link;
}

static open_comm *find_client(gpufi_comms *comms, uint64_t client) {
  open_comm *comm = comms->open;
  while (comm && comm->client != client) {
    comm = comm->next;
  }
  return comm;
}

/* In JSON as it is, and no more than a topic needs. NULL if it is none. */
static const char *checked_id(const gpufi_message *message) {
  const json_t *value = json_object_get(message->content, "comm_id");
  const char *id = json_string_value(value);
  const size_t nbytes = json_string_length(value);
  if (!id || nbytes == 0 || nbytes > COMM_ID_MAX_NBYTES) {
    return NULL;
  }
  for (size_t i = 0; i < nbytes; i++) {
    if (id[i] <= ' ' || id[i] > '~' || id[i] == '"' || id[i] == '\\') {
      return NULL;
    }
  }
  return id;
}

static void topic_of(const char *id, char topic[TOPIC_NBYTES]) {
  snprintf(topic, TOPIC_NBYTES, "comm-%s", id);
}

static void send_close(gpufi_comms *comms, const char *id, json_t *parent) {
  char topic[TOPIC_NBYTES];
  topic_of(id, topic);
  gpufi_server_publish(comms->server, topic, "comm_close", parent,
                       json_pack("{ss s{}}", "comm_id", id, "data"));
}

/* Take the request at *link out of its list and free it. */
static void end_request(gpufi_comms *comms, request **link) {
  request *ended = *link;
  *link = ended->next;
  comms->request_count--;
  json_decref(ended->header);
  free(ended);
}

/* What waits gets no reply any more, but its idle. */
static void drop_comm(gpufi_comms *comms, open_comm **link) {
  open_comm *comm = *link;
  *link = comm->next;
  comms->open_count--;
  gpufi_comm_client_close(comms->dispatcher, comm->client);
  while (comm->requests) {
    gpufi_server_status(comms->server, comm->requests->header, "idle");
    end_request(comms, &comm->requests);
  }
  free(comm);
}

/* A client that vanishes leaves its comm behind: the one that was used least recently makes room.
 */
static void make_room(gpufi_comms *comms) {
  open_comm **link = &comms->open;
  if (comms->open_count < comms->open_max) {
    return;
  }
  while ((*link)->next) {
    link = &(*link)->next;
  }
  gpufi_server_log(comms->server, "more comms than comms_max: the longest unused was closed");
  send_close(comms, (*link)->id, NULL);
  drop_comm(comms, link);
}

static request *add_request(gpufi_comms *comms, open_comm *comm, json_t *header) {
  request *added = malloc(sizeof(*added));
  if (added) {
    *added = (request){comm->requests, ++comms->tag_count, json_incref(header)};
    comm->requests = added;
    comms->request_count++;
  }
  return added;
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* A reply whose buffers ZeroMQ holds. */
typedef struct holder {
  gpufi_comm_reply *reply;
  gpufi_comms *comms;
  atomic_size_t buffer_count; /* not released yet */
} holder;

static void release_buffer(void *data, void *arg) {
  holder *held = arg;
  if (atomic_fetch_sub(&held->buffer_count, 1) == 1) {
    gpufi_comms *comms = held->comms;
    gpufi_comm_reply_free(held->reply);
    atomic_fetch_add(&comms->release_count, 1);
    free(held);
    set_work(comms); /* it may have waited for the memory */
  }
}

/* {"comm_id": ID, "data": REPLY}; the reply is JSON already. */
static char *content_of(const char *id, const gpufi_comm_reply *reply) {
  char *text = NULL;
  return asprintf(&text, "{\"comm_id\":\"%s\",\"data\":%.*s}", id, (int)reply->json_nbytes,
                  reply->json) >= 0
             ? text
             : NULL;
}

/* Takes over the reply. */
static void send_reply(gpufi_comms *comms, const char *id, json_t *parent,
                       gpufi_comm_reply *reply) {
  char topic[TOPIC_NBYTES];
  gpufi_packed packed;
  gpufi_payload payloads[GPUFI_COMM_BUFFERS_MAX];
  const size_t count = reply->buffer_count;
  char *content = content_of(id, reply);
  holder *held = malloc(sizeof(*held));
  gpuf_error err;
  if (gpufi_message_pack(comms->server->session, "comm_msg", parent, content, &packed, &err) !=
      GPUF_OK) {
    gpufi_server_log(comms->server, err.message);
    free(held);
    held = NULL;
  } else if (!held) {
    gpufi_packed_fini(&packed);
  }
  if (!held) {
    gpufi_comm_reply_free(reply);
    return;
  }
  held->reply = reply;
  held->comms = comms;
  atomic_init(&held->buffer_count, count + 1);
  for (size_t i = 0; i < count; i++) {
    payloads[i] =
        (gpufi_payload){(void *)reply->buffers[i], reply->buffer_nbytes[i], release_buffer, held};
  }
  topic_of(id, topic);
  const gpufi_frame frame = {topic, strlen(topic)};
  gpufi_sockets_send(comms->server->sockets.sockets[GPUFI_IOPUB], &frame, 1, &packed, payloads,
                     count);
  release_buffer(NULL, held);
}

static void send_answer(gpufi_comms *comms, const answer *sent) {
  open_comm *comm = find_client(comms, sent->client);
  request **link = comm ? &comm->requests : NULL;
  while (link && *link && (*link)->tag != sent->tag) {
    link = &(*link)->next;
  }
  if (!link || !*link) {
    gpufi_comm_reply_free(sent->reply);
    set_work(comms);
    return;
  }
  send_reply(comms, comm->id, (*link)->header, sent->reply);
  gpufi_server_status(comms->server, (*link)->header, "idle");
  end_request(comms, link);
}

bool gpufi_comms_are_stuck(gpufi_comms *comms) {
  const uint64_t count = atomic_load(&comms->release_count);
  const int64_t now_ns = gpufi_clock_ns();
  gpufi_comm_counts counts;
  gpufi_comm_get_counts(comms->dispatcher, &counts);
  if (counts.reply_nbytes < comms->full_nbytes || comms->watched_release_count != count) {
    comms->watched_ns = 0;
  }
  comms->watched_release_count = count;
  comms->watched_ns = comms->watched_ns ? comms->watched_ns : now_ns;
  const bool stuck = now_ns - comms->watched_ns > STUCK_NS;
  if (stuck) {
    comms->watched_ns = now_ns;
    comms->held_until_ns = now_ns + RECONNECT_NS;
  }
  return stuck;
}

void gpufi_comms_send_answers(gpufi_comms *comms) {
  if (comms->held_until_ns > gpufi_clock_ns()) {
    return;
  }
  pthread_mutex_lock(&comms->lock);
  answer *first = comms->answers;
  comms->answers = NULL;
  comms->answers_end = &comms->answers;
  pthread_mutex_unlock(&comms->lock);
  while (first) {
    answer *next = first->next;
    send_answer(comms, first);
    free(first);
    first = next;
  }
}

/* --- Messages of clients ------------------------------------------------------------------------
 */

/* The member `data` as the text that the dispatcher parses; "" if there is none. */
static char *data_text(const gpufi_message *message) {
  const json_t *data = json_object_get(message->content, "data");
  return data ? json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("");
}

/* The dispatcher's client for a new comm; the reply to it is under way then. */
static bool open_client(gpufi_comms *comms, open_comm *comm, const gpufi_message *message) {
  gpufi_comm_reply *refusal = NULL;
  gpuf_error err;
  const request *opening = add_request(comms, comm, message->header);
  char *data = data_text(message);
  if (!opening || !data) {
    free(data);
    return false;
  }
  const gpuf_status status = gpufi_comm_client_open(comms->dispatcher, data, strlen(data),
                                                    opening->tag, &comm->client, &refusal, &err);
  free(data);
  if (refusal) {
    send_reply(comms, comm->id, message->header, refusal);
  }
  return status == GPUF_OK;
}

bool gpufi_comms_open(gpufi_comms *comms, gpufi_message *message) {
  const char *target = json_string_value(json_object_get(message->content, "target_name"));
  const char *id = checked_id(message);
  if (!id || *find_id(comms, id)) {
    gpufi_server_log(comms->server, "comm_open refused: its comm_id is no text of 1 to 128 "
                                    "printable bytes, or is open");
    return false;
  }
  open_comm *comm =
      target && strcmp(target, GPUFI_COMM_TARGET) == 0 ? calloc(1, sizeof(*comm)) : NULL;
  if (!comm) {
    send_close(comms, id, message->header);
    return false;
  }
  make_room(comms);
  snprintf(comm->id, sizeof(comm->id), "%s", id);
  snprintf(comm->session, sizeof(comm->session), "%s", message->session);
  if (!open_client(comms, comm, message)) {
    send_close(comms, id, message->header);
    while (comm->requests) {
      end_request(comms, &comm->requests);
    }
    free(comm);
    return false;
  }
  comm->next = comms->open;
  comms->open = comm;
  comms->open_count++;
  return true;
}

/* A comm that is not open is closed once more: its client attached before the server restarted. */
static open_comm *use_comm(gpufi_comms *comms, const gpufi_message *message) {
  const char *id = checked_id(message);
  open_comm **link = id ? find_id(comms, id) : NULL;
  if (!link || !*link) {
    if (id) {
      send_close(comms, id, message->header);
    }
    return NULL;
  }
  open_comm *comm = *link;
  *link = comm->next;
  comm->next = comms->open;
  comms->open = comm;
  return comm;
}

bool gpufi_comms_submit(gpufi_comms *comms, gpufi_message *message) {
  open_comm *comm = use_comm(comms, message);
  request *submitted = comm ? add_request(comms, comm, message->header) : NULL;
  char *data = submitted ? data_text(message) : NULL;
  if (!data) {
    if (submitted) {
      end_request(comms, &comm->requests);
    }
    return false;
  }
  gpufi_comm_message(comms->dispatcher, comm->client, data, strlen(data), message->buffer_count,
                     submitted->tag);
  free(data);
  set_work(comms);
  return true;
}

bool gpufi_comms_close(gpufi_comms *comms, gpufi_message *message) {
  const char *id = checked_id(message);
  open_comm **link = id ? find_id(comms, id) : NULL;
  if (link && *link) {
    drop_comm(comms, link);
  }
  return false;
}

void gpufi_comms_close_session(gpufi_comms *comms, const gpufi_message *message) {
  open_comm **link = &comms->open;
  while (*link) {
    if (strcmp((*link)->session, message->session) == 0) {
      send_close(comms, (*link)->id, message->header);
      drop_comm(comms, link);
    } else {
      link = &(*link)->next;
    }
  }
}

void gpufi_comms_close_all(gpufi_comms *comms) {
  while (comms->open) {
    send_close(comms, comms->open->id, NULL);
    drop_comm(comms, &comms->open);
  }
}

json_t *gpufi_comms_list(const gpufi_comms *comms, const char *target) {
  json_t *list = json_object();
  if (target && strcmp(target, GPUFI_COMM_TARGET) != 0) {
    return list;
  }
  for (const open_comm *comm = comms->open; comm && list; comm = comm->next) {
    json_object_set_new(list, comm->id, json_pack("{ss}", "target_name", GPUFI_COMM_TARGET));
  }
  return list;
}
