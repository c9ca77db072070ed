/* The dispatcher and the server with the n-th call of a kind failing, for every n: every request is
 * answered once, by what was asked for or by an error that says why; what is reported as published
 * is there; nothing is left, and the next attempt works. */
#include "comm/dispatcher.h"

#include <gpufetch/serve.h>
#include <jansson.h>
#include <pthread.h>

#include "fault_tensors.h"

/* --- A transport that keeps the replies ---------------------------------------------------- */

#define TAGS 2 /* of the hello and of the request */

/* Guarded by the lock. */
static struct {
  pthread_mutex_t lock;
  int counts[TAGS];
  gpufi_reply *replies[TAGS];
} inbox = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void take_reply(void *arg, uint64_t client, uint64_t tag, gpufi_reply *reply) {
  pthread_mutex_lock(&inbox.lock);
  if (inbox.counts[tag]++ == 0) {
    inbox.replies[tag] = reply;
  } else {
    gpufi_reply_free(reply);
  }
  pthread_mutex_unlock(&inbox.lock);
}

/* What the reply says of its own failure: GPUF_OK if there is none. */
static gpuf_status outcome_of(const gpufi_reply *reply, json_t **json) {
  *json = NULL;
  memset(&err, 0, sizeof(err));
  if (!reply) {
    err.status = GPUF_ERR_NO_MEMORY;
    snprintf(err.message, sizeof(err.message), "no memory even for an error");
    return err.status;
  }
  *json = json_loads(reply->json, 0, NULL);
  CHECK(json_is_object(*json));
  const json_t *const error = json_object_get(*json, "error");
  if (error) {
    err.status = GPUF_ERR_STATE;
    snprintf(err.message, sizeof(err.message), "%s",
             json_string_value(json_object_get(error, "message")));
  }
  return err.status;
}

/* --- Operations ------------------------------------------------------------------------------ */

/* Whether the reply to a request is right. */
typedef bool judge(const gpufi_reply *reply, const json_t *json);

/* The caller sets tags and replies free. */
static gpuf_status ask(gpufi_dispatcher *dispatcher, const char *request, judge *is_right,
                       bool *right) {
  uint64_t client;
  gpufi_reply *refusal = NULL;
  gpuf_status status = gpufi_client_open(dispatcher, "", 0, 0, &client, &refusal, &err);
  gpufi_reply_free(refusal);
  if (status != GPUF_OK) {
    return status;
  }
  CHECK(gpufi_dispatcher_message(dispatcher, client, request, strlen(request), 0, 1));
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  faults_disarm();
  CHECK(inbox.counts[0] == 1 && inbox.counts[1] == 1); /* each is answered, once */
  json_t *json;
  status = outcome_of(inbox.replies[1], &json);
  *right = status == GPUF_OK && is_right(inbox.replies[1], json);
  json_decref(json);
  return status;
}

static gpuf_status publish_and_ask(const char *request, judge *is_right, bool *right) {
  const gpufi_dispatcher_options options = {.reply = take_reply};
  gpufi_dispatcher *dispatcher = NULL;
  gpuf_error ended;
  memset(inbox.counts, 0, sizeof(inbox.counts));
  gpuf_status status = gpufi_dispatcher_create(&options, &dispatcher, &err);
  if (status == GPUF_OK) {
    status = gpufi_dispatcher_publish(dispatcher, "x", &d_source, NULL, &err);
  }
  if (status == GPUF_OK) {
    status = gpufi_dispatcher_publish_int64(dispatcher, "step", 7, &err);
  }
  if (status == GPUF_OK) {
    status = gpufi_dispatcher_publish_text(dispatcher, "file", "a.h5", &err);
  }
  if (status == GPUF_OK) {
    status = ask(dispatcher, request, is_right, right);
  }
  CHECK_OK(gpufi_dispatcher_destroy(dispatcher, 0, &ended));
  for (int tag = 0; tag < TAGS; tag++) {
    gpufi_reply_free(inbox.replies[tag]);
    inbox.replies[tag] = NULL;
  }
  return status;
}

static bool lists_all(const gpufi_reply *reply, const json_t *json) {
  return strstr(reply->json, "\"x\"") && strstr(reply->json, "\"step\"") &&
         strstr(reply->json, "\"a.h5\"");
}

static gpuf_status list(bool *right) {
  return publish_and_ask("{\"op\": \"list\"}", lists_all, right);
}

static bool is_rows(const gpufi_reply *reply, const json_t *json) {
  return reply->buffer_count == 1 && reply->buffer_nbytes[0] == 10 * COLUMNS * sizeof(float) &&
         memcmp(reply->buffers[0], values + (size_t)5 * COLUMNS, reply->buffer_nbytes[0]) == 0;
}

static gpuf_status read_some(bool *right) {
  return publish_and_ask("{\"op\": \"read\", \"name\": \"x\", \"slices\": [[5, 15, 1]]}", is_rows,
                         right);
}

static bool is_overview(const gpufi_reply *reply, const json_t *json) {
  const float *const cells = reply->buffers[0];
  bool right = reply->buffer_count == 1 && reply->buffer_nbytes[0] == ROWS * 10 * sizeof(float);
  for (size_t i = 0; i < (size_t)ROWS * 10 && right; i++) {
    right = cells[i] == values[i * (COLUMNS / 10)];
  }
  return right;
}

static gpuf_status overview(bool *right) {
  return publish_and_ask("{\"op\": \"overview\", \"name\": \"x\", \"method\": \"first\", "
                         "\"shape\": [96, 10]}",
                         is_overview, right);
}

static bool counts_all(const gpufi_reply *reply, const json_t *json) {
  return json_integer_value(json_object_get(json, "finite_count")) == (json_int_t)COUNT;
}

static gpuf_status statistics(bool *right) {
  return publish_and_ask("{\"op\": \"stats\", \"name\": \"x\"}", counts_all, right);
}

static bool bins_hold_all(const gpufi_reply *reply, const json_t *json) {
  const uint64_t *const bins = reply->buffers[0];
  uint64_t total = 0;
  for (int i = 0; i < 16 && reply->buffer_count > 0; i++) {
    total += bins[i];
  }
  return total == COUNT;
}

static gpuf_status histogram(bool *right) {
  return publish_and_ask("{\"op\": \"histogram\", \"name\": \"x\", \"bins\": 16}", bins_hold_all,
                         right);
}

static int release_count;

static void count_release(void *arg) {
  __atomic_add_fetch(&release_count, 1, __ATOMIC_SEQ_CST);
}

/* A program's calls on a server, as far as they go; what was published is released once. */
static gpuf_status publish_on(gpuf_server *server, int *published) {
  const gpuf_publish_options options = {.struct_nbytes = sizeof(gpuf_publish_options),
                                        .release = count_release};
  gpuf_status status = gpuf_server_publish(server, "x", &d_source, &options, &err);
  *published = status == GPUF_OK;
  if (status == GPUF_OK) {
    status = gpuf_server_publish(server, "y", &d_target, &options, &err);
    *published += status == GPUF_OK;
  }
  if (status == GPUF_OK) {
    status = gpuf_server_publish_float64(server, "energy", 0.5, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_server_publish_text(server, "file", "a.h5", &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_server_publish_step(server, 3, 0.25, &err);
  }
  return status == GPUF_OK ? gpuf_server_unpublish(server, "x", 0, &err) : status;
}

static gpuf_status serve(bool *right) {
  gpuf_server *server = NULL;
  gpuf_error ended;
  int published = 0;
  release_count = 0;
  gpuf_status status = gpuf_server_start(NULL, &server, &err);
  CHECK((server != NULL) == (status == GPUF_OK));
  if (status == GPUF_OK) {
    status = publish_on(server, &published);
  }
  CHECK_OK(gpuf_server_stop(server, &ended));
  CHECK(release_count == published);
  *right = published == 2;
  return status;
}

static const operation operations[] = {
    {"list", list, false},          {"read", read_some, false},
    {"overview", overview, true},   {"statistics", statistics, true},
    {"histogram", histogram, true}, {"a server and what it publishes", serve, false},
};

static char folder[] = "/tmp/gpufetch-test-XXXXXX";

int main(void) {
  fill_values();
  json_set_alloc_funcs(malloc, free); /* those that fail on demand */
  if (!mkdtemp(folder) || setenv("JUPYTER_RUNTIME_DIR", folder, 1) != 0) {
    return 1;
  }
  const int failed =
      run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare_tensors);
  rmdir(folder);
  return failed;
}
