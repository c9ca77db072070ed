/* A dispatcher with a transport that keeps the replies, for the tests of the comm. */
#ifndef GPUFI_TEST_COMM_FIXTURE_H
#define GPUFI_TEST_COMM_FIXTURE_H

#include "comm/dispatcher.h"
#include "devices.h"

#include <gpufetch/reduce.h>
#include <gpufetch/share.h>
#include <jansson.h>
#include <pthread.h>

#define REPLIES_MAX 4096

static gpuf_error err;

typedef struct answer {
  uint64_t client, tag;
  gpufi_reply *reply;
} answer;

/* The replies that were delivered, in order; guarded by the lock. */
static struct {
  pthread_mutex_t lock;
  answer answers[REPLIES_MAX];
  int count, taken;
  int log_count;
} outbox = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void take_reply(void *arg, uint64_t client, uint64_t tag, gpufi_reply *reply) {
  pthread_mutex_lock(&outbox.lock);
  if (outbox.count == REPLIES_MAX) {
    abort();
  }
  outbox.answers[outbox.count++] = (answer){client, tag, reply};
  pthread_mutex_unlock(&outbox.lock);
}

static void take_log(void *arg, const char *text) {
  pthread_mutex_lock(&outbox.lock);
  outbox.log_count += text[0] != '\0';
  pthread_mutex_unlock(&outbox.lock);
}

/* --- Replies ------------------------------------------------------------------- */

static int pending_replies(void) {
  pthread_mutex_lock(&outbox.lock);
  const int count = outbox.count - outbox.taken;
  pthread_mutex_unlock(&outbox.lock);
  return count;
}

/* The oldest reply that was not taken; the caller frees it. */
static answer next_answer(void) {
  answer a = {0};
  pthread_mutex_lock(&outbox.lock);
  if (outbox.taken < outbox.count) {
    a = outbox.answers[outbox.taken++];
  }
  if (outbox.taken == outbox.count) {
    outbox.taken = outbox.count = 0;
  }
  pthread_mutex_unlock(&outbox.lock);
  CHECK(a.reply != NULL);
  CHECK(strlen(a.reply->json) == a.reply->json_nbytes);
  CHECK(a.reply->json_nbytes <= GPUFI_REPLY_JSON_MAX_NBYTES);
  CHECK(a.reply->buffer_nbytes[0] + a.reply->buffer_nbytes[1] <= GPUFI_REPLY_MAX_NBYTES);
  return a;
}

static json_t *json_of(const answer *a) {
  json_t *json = json_loads(a->reply->json, 0, NULL);
  CHECK(json_is_object(json));
  return json;
}

static inline int64_t int_of(const json_t *json, const char *key) {
  CHECK(json_is_integer(json_object_get(json, key)));
  return json_integer_value(json_object_get(json, key));
}

static inline bool text_is(const json_t *json, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(json, key));
  return value && strcmp(value, text) == 0;
}

/* Take a reply and compare the code of its error; "" = none. */
static void check_code(const char *code) {
  answer a = next_answer();
  json_t *json = json_of(&a);
  const json_t *error = json_object_get(json, "error");
  const char *found = error ? json_string_value(json_object_get(error, "code")) : "";
  if (strcmp(found, code) != 0) {
    printf("# expected \"%s\": %s\n", code, a.reply->json);
  }
  CHECK(strcmp(found, code) == 0);
  if (error) {
    CHECK(json_string_length(json_object_get(error, "message")) > 10);
    CHECK(a.reply->buffer_count == 0);
  }
  json_decref(json);
  gpufi_reply_free(a.reply);
}

/* --- Dispatchers --------------------------------------------------------------- */

static gpufi_dispatcher *dispatcher;
static uint64_t client;

static void open_client(uint64_t *id) {
  gpufi_reply *refusal = NULL;
  CHECK_OK(gpufi_client_open(dispatcher, "", 0, 0, id, &refusal, &err));
  check_code("");
}

static void start(gpufi_dispatcher_options options) {
  options.reply = take_reply;
  options.log = take_log;
  CHECK_OK(gpufi_dispatcher_create(&options, &dispatcher, &err));
  outbox.log_count = 0;
  open_client(&client);
}

static void finish(void) {
  gpufi_dispatcher_counts counts;
  while (pending_replies() > 0) {
    gpufi_reply_free(next_answer().reply);
  }
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.reply_nbytes == 0);
  CHECK_OK(gpufi_dispatcher_destroy(dispatcher, 0, &err));
  dispatcher = NULL;
}

static void send_as(uint64_t id, const char *json, uint64_t tag) {
  CHECK(gpufi_dispatcher_message(dispatcher, id, json, strlen(json), 0, tag));
}

static void send(const char *json) {
  send_as(client, json, 0);
}

/* Send a request, run all that wait, and take the one reply. */
static inline answer ask(const char *json) {
  send(json);
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  CHECK(pending_replies() == 1);
  return next_answer();
}

static inline void ask_code(const char *json, const char *code) {
  send(json);
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  CHECK(pending_replies() == 1);
  check_code(code);
}

/* --- Tensors ------------------------------------------------------------------- */

/* A tensor on test_device with the given bytes. */
static gpuf_tensor put(const void *bytes, gpuf_dtype dtype, int32_t ndim, const int64_t *shape) {
  gpuf_tensor tensor, source;
  void *d_ptr;
  CHECK_OK(gpuf_tensor_init(&source, (void *)bytes, cpu_device, dtype, ndim, shape, &err));
  CHECK_OK(gpuf_alloc(test_device, gpuf_tensor_nbytes(&source), &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&tensor, d_ptr, test_device, dtype, ndim, shape, &err));
  CHECK_OK(gpuf_copy(&tensor, &source, NULL, &err));
  return tensor;
}

static void drop(const gpuf_tensor *tensor) {
  CHECK_OK(gpuf_free(test_device, tensor->data, &err));
}

#endif
