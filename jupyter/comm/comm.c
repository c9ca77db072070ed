/* Creation, clients and the handing over of replies. */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define IN_FLIGHT_MAX 2 /* requests without a reply that a client may have; docs/protocol.md */

/* --- Creation ---------------------------------------------------------------------------- */

static gpuf_status set_defaults(gpufi_comm_options *options, gpuf_error *err) {
  const struct {
    int32_t *limit, fallback;
  } limits[] = {
      {&options->client_max, 256}, {&options->waiting_max, 4}, {&options->tensor_max, 4096},
      {&options->value_max, 256},  {&options->share_max, 64},
  };
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
    if (*limits[i].limit < 0) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a limit of %" PRId32 "; 0 is the default",
                        *limits[i].limit);
    }
    *limits[i].limit = *limits[i].limit > 0 ? *limits[i].limit : limits[i].fallback;
  }
  if (options->reply_memory_nbytes == 0) {
    options->reply_memory_nbytes = (size_t)64 << 20;
  }
  if (options->reply_memory_nbytes < 2 * GPUFI_COMM_REPLY_MAX_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu bytes for replies; two of them need %zu: allow that at least",
                      options->reply_memory_nbytes, 2 * GPUFI_COMM_REPLY_MAX_NBYTES);
  }
  if (options->step_share == 0) {
    options->step_share = 0.05;
  }
  if (!(options->step_share > 0 && options->step_share <= 1)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "step_share is %g; it must be in (0, 1]",
                      options->step_share);
  }
  if (!options->reply) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the option reply is NULL: it takes the answers");
  }
  return GPUF_OK;
}

static void name_instance(gpufi_comm *comm) {
  uint64_t random;
  if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    random = ((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec) + (uintptr_t)comm;
  }
  snprintf(comm->instance, sizeof(comm->instance), "%016" PRIx64, random);
}

static void init_lock(gpufi_comm *comm) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&comm->lock, NULL);
  pthread_cond_init(&comm->changed, &attributes);
  pthread_condattr_destroy(&attributes);
}

gpuf_status gpufi_comm_create(const gpufi_comm_options *options, gpufi_comm **comm,
                              gpuf_error *err) {
  gpufi_comm_options checked = *options;
  const gpuf_status status = set_defaults(&checked, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_comm *c = calloc(1, sizeof(*c));
  gpufi_comm_budget *budget = calloc(1, sizeof(*budget));
  if (!c || !budget) {
    free(c);
    free(budget);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a dispatcher");
  }
  snprintf(c->server_name, sizeof(c->server_name), "%s",
           options->server_name ? options->server_name : "gpufetch");
  checked.server_name = c->server_name;
  c->options = checked;
  c->budget = budget;
  c->live.tail = &c->live.head;
  c->at_step.tail = &c->at_step.head;
  atomic_init(&budget->reference_count, 1);
  atomic_init(&c->reference_count, 1);
  name_instance(c);
  init_lock(c);
  *comm = c;
  return GPUF_OK;
}

void gpufi_comm_unref(gpufi_comm *comm) {
  if (atomic_fetch_sub(&comm->reference_count, 1) == 1) {
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    gpufi_comm_budget_drop(comm->budget);
    free(comm);
  }
}

gpuf_status gpufi_comm_destroy(gpufi_comm *comm, int64_t timeout_ns, gpuf_error *err) {
  if (!comm) {
    return GPUF_OK;
  }
  gpufi_comm_queue_drop(comm, 0);
  gpufi_comm_shares_withdraw(comm, 0, NULL, NULL);
  const gpuf_status status = gpufi_comm_registry_clear(comm, timeout_ns, err);
  gpufi_comm_values_clear(comm);
  while (comm->clients) {
    gpufi_comm_client *next = comm->clients->next;
    free(comm->clients);
    comm->clients = next;
  }
  gpufi_comm_unref(comm);
  return status;
}

/* --- Clients ------------------------------------------------------------------------------ */

gpufi_comm_client *gpufi_comm_client_find(gpufi_comm *comm, uint64_t id) {
  gpufi_comm_client *client = comm->clients;
  while (client && client->id != id) {
    client = client->next;
  }
  return client;
}

static json_t *limits_json(const gpufi_comm *comm) {
  json_t *limits = json_object();
  json_object_set_new(limits, "reply_nbytes", json_integer(GPUFI_COMM_REPLY_MAX_NBYTES));
  json_object_set_new(limits, "reply_json_nbytes", json_integer(GPUFI_COMM_REPLY_JSON_MAX_NBYTES));
  json_object_set_new(limits, "request_nbytes", json_integer(GPUFI_COMM_REQUEST_MAX_NBYTES));
  json_object_set_new(limits, "name_nbytes", json_integer(GPUFI_COMM_NAME_MAX_NBYTES));
  json_object_set_new(limits, "in_flight", json_integer(IN_FLIGHT_MAX));
  json_object_set_new(limits, "waiting", json_integer(comm->options.waiting_max));
  json_object_set_new(limits, "shares", json_integer(comm->options.share_max));
  json_object_set_new(limits, "bins", json_integer(GPUF_HISTOGRAM_BINS_MAX));
  return limits;
}

static gpufi_comm_reply *hello(gpufi_comm *comm) {
  gpufi_comm_draft draft = {.json = json_object()};
  json_t *operations = json_array();
  for (int op = 1; op <= COMM_OP_MAX; op++) {
    const bool steps = op == COMM_OP_SUBSCRIBE,
               shares = op == COMM_OP_SHARE || op == COMM_OP_UNSHARE;
    if (!(steps && comm->options.no_steps) && !(shares && comm->options.no_share)) {
      json_array_append_new(operations, json_string(gpufi_comm_op_names[op]));
    }
  }
  json_object_set_new(draft.json, "op", json_string("hello"));
  json_object_set_new(draft.json, "protocol", json_integer(GPUFI_COMM_PROTOCOL));
  json_object_set_new(draft.json, "version", json_string(gpuf_version()));
  json_object_set_new(draft.json, "server", gpufi_comm_json_text(comm->server_name));
  json_object_set_new(draft.json, "instance", json_string(comm->instance));
  json_object_set_new(draft.json, "operations", operations);
  json_object_set_new(draft.json, "steps", json_boolean(!comm->options.no_steps));
  json_object_set_new(draft.json, "limits", limits_json(comm));
  gpufi_comm_set_step(comm, draft.json);
  return gpufi_comm_draft_finish(comm, &draft);
}

/* Let a client in, under a new id; 0 if there are too many or there is no memory. */
static uint64_t admit(gpufi_comm *comm) {
  gpufi_comm_client *client = calloc(1, sizeof(*client));
  uint64_t id = 0;
  pthread_mutex_lock(&comm->lock);
  if (client && comm->counts.client_count < comm->options.client_max) {
    id = client->id = ++comm->last_client;
    client->next = comm->clients;
    comm->clients = client;
    comm->counts.client_count++;
    client = NULL;
  } else {
    comm->counts.refused_count++;
  }
  pthread_mutex_unlock(&comm->lock);
  free(client);
  return id;
}

gpuf_status gpufi_comm_client_open(gpufi_comm *comm, const char *data, size_t data_nbytes,
                                   uint64_t tag, uint64_t *client, gpufi_comm_reply **refusal,
                                   gpuf_error *err) {
  const gpufi_comm_request nameless = {.op = COMM_OP_NONE};
  gpuf_error cause = {0};
  gpuf_status status = GPUF_OK;
  uint64_t id = 0;
  *refusal = NULL;
  gpufi_comm_code code = gpufi_comm_open_parse(data, data_nbytes, &cause);
  if (code != COMM_OK) {
    status = GPUF_ERR_INVALID;
  } else if ((id = admit(comm)) == 0) {
    code = COMM_FAIL(&cause, COMM_TOO_MANY_CLIENTS,
                     "%" PRId32 " clients are attached already: close one of them",
                     comm->options.client_max);
    status = GPUF_ERR_STATE;
  }
  if (code != COMM_OK) {
    gpufi_comm_log(comm, code, cause.message);
    *refusal = gpufi_comm_error_reply(comm, &nameless, code, &cause);
    return gpufi_fail(err, status, 0, "%s", cause.message);
  }
  *client = id;
  comm->options.reply(comm->options.arg, id, tag, hello(comm));
  return GPUF_OK;
}

void gpufi_comm_client_close(gpufi_comm *comm, uint64_t id) {
  gpufi_comm_client *client = NULL;
  if (id == 0) {
    return;
  }
  gpufi_comm_queue_drop(comm, id);
  pthread_mutex_lock(&comm->lock);
  for (gpufi_comm_client **link = &comm->clients; *link; link = &(*link)->next) {
    if ((*link)->id == id) {
      client = *link;
      *link = client->next;
      comm->counts.client_count--;
      break;
    }
  }
  pthread_mutex_unlock(&comm->lock);
  if (client) {
    gpufi_comm_shares_withdraw(comm, id, NULL, NULL);
    free(client);
  }
}

/* --- Handing over ---------------------------------------------------------------------------- */

void gpufi_comm_deliver(gpufi_comm *comm, uint64_t client, uint64_t tag, gpufi_comm_reply *reply,
                        gpufi_comm_code code) {
  pthread_mutex_lock(&comm->lock);
  const bool open = gpufi_comm_client_find(comm, client) != NULL;
  comm->counts.error_count += code != COMM_OK;
  pthread_mutex_unlock(&comm->lock);
  if (open) {
    comm->options.reply(comm->options.arg, client, tag, reply);
  } else {
    gpufi_comm_reply_free(reply);
  }
}

void gpufi_comm_log(gpufi_comm *comm, gpufi_comm_code code, const char *text) {
  const uint32_t bit = (uint32_t)1 << code;
  pthread_mutex_lock(&comm->lock);
  const bool first = !(comm->logged & bit);
  comm->logged |= bit;
  pthread_mutex_unlock(&comm->lock);
  if (first && comm->options.log) {
    comm->options.log(comm->options.arg, text);
  }
}

void gpufi_comm_get_counts(gpufi_comm *comm, gpufi_comm_counts *counts) {
  pthread_mutex_lock(&comm->lock);
  *counts = comm->counts;
  pthread_mutex_unlock(&comm->lock);
  counts->reply_nbytes = atomic_load(&comm->budget->used_nbytes);
}
