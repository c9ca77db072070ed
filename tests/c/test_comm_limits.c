/* The dispatcher's limits: untrusted requests, clients that ask too much, steps, threads. */
#include "comm_fixture.h"

#include <stdatomic.h>
#include <unistd.h>

static float values[600];
static const int64_t shape[2] = {20, 30};
static gpuf_tensor tensor;

static void start_with_tensor(gpufi_dispatcher_options options) {
  start(options);
  fill_random(values, sizeof(values), 5);
  tensor = put(values, GPUF_DTYPE_FLOAT32, 2, shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "x", &tensor, NULL, &err));
}

static void finish_with_tensor(void) {
  finish();
  drop(&tensor);
}

/* --- Untrusted requests -------------------------------------------------------- */

static void what_is_no_request_is_answered_by_an_error(void) {
  static const struct {
    const char *json, *code;
  } cases[] = {
      {"", "bad_request"},
      {"null", "bad_request"},
      {"[]", "bad_request"},
      {"{", "bad_request"},
      {"{\"op\": \"list\"} x", "bad_request"},
      {"{\"op\": \"list\", \"op\": \"read\"}", "bad_request"},
      {"{\"op\": \"\\u0000\"}", "bad_request"},
      {"{\"op\": \"\xff\xfe\"}", "bad_request"},
      {"{}", "unknown_op"},
      {"{\"op\": 7}", "unknown_op"},
      {"{\"op\": \"eval\"}", "unknown_op"},
      {"{\"op\": \"list\", \"id\": 1.5}", "bad_request"},
      {"{\"op\": \"list\", \"id\": \"\"}", "bad_request"},
      {"{\"op\": \"list\", \"id\": \"\\u00e9\"}", "bad_request"},
      {"{\"op\": \"list\", \"id\": 99999999999999999999}", "bad_request"},
      {"{\"op\": \"list\", \"slices\": []}", "bad_request"},
      {"{\"op\": \"list\", \"skip\": -1}", "bad_request"},
      {"{\"op\": \"read\"}", "bad_request"},
      {"{\"op\": \"read\", \"name\": 3}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"\"}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"a\\nb\"}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"x.__class__\"}", "unknown_name"},
      {"{\"op\": \"read\", \"name\": \"X\"}", "unknown_name"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": {}}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [true]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [[0, 1]]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [[0, 1, 0]]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [[0, 1, 1.0]]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [20]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [-21]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [-9223372036854775808]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"slices\": [0, 0, 0]}", "bad_slice"},
      {"{\"op\": \"read\", \"name\": \"x\", \"fragment\": 1}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"x\", \"fragment\": -1}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"x\", \"at\": \"once\"}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"x\", \"dtype\": \"float31\"}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"x\", \"dtype\": \"float8_e8m0fnu\"}", "unsupported"},
      {"{\"op\": \"read\", \"name\": \"x\", \"generation\": 0}", "bad_request"},
      {"{\"op\": \"read\", \"name\": \"x\", \"generation\": 2}", "stale"},
      {"{\"op\": \"read\", \"name\": \"x\", \"method\": \"mean\"}", "bad_request"},
      {"{\"op\": \"overview\", \"name\": \"x\"}", "bad_request"},
      {"{\"op\": \"overview\", \"name\": \"x\", \"shape\": [2]}", "bad_request"},
      {"{\"op\": \"overview\", \"name\": \"x\", \"shape\": [0, 2]}", "bad_request"},
      {"{\"op\": \"overview\", \"name\": \"x\", \"shape\": [2, 2], \"method\": \"sum\"}",
       "bad_request"},
      {"{\"op\": \"histogram\", \"name\": \"x\", \"bins\": 0}", "bad_request"},
      {"{\"op\": \"histogram\", \"name\": \"x\", \"bins\": 65537}", "bad_request"},
      {"{\"op\": \"histogram\", \"name\": \"x\", \"range\": [1]}", "bad_request"},
      {"{\"op\": \"histogram\", \"name\": \"x\", \"range\": [\"nan\", 1]}", "bad_request"},
      {"{\"op\": \"cancel\"}", "bad_request"},
      {"{\"op\": NaN}", "bad_request"},
      {"{\"op\": \"list\", \"id\": \"\\ud800\"}", "bad_request"},
      {"{\"op\": \"list\", \"skip\": 1e999}", "bad_request"},
      {"{\"op\": \"list\", \"\\u0000\": 1}", "bad_request"},
      {"{\"op\": \"list\", \"\\u006fp\": \"list\"}", "bad_request"},
      {"{\"op\": \"list\", \"skip\": {\"a\": 1, \"a\": 2}}", "bad_request"},
      {"{\"op\": \"histogram\", \"name\": \"x\", \"bins\": 1000000000000000000000000000000}",
       "bad_request"},
      {"{\"\\u006f\\u0070\": \"list\"}", ""},
  };
  start_with_tensor((gpufi_dispatcher_options){0});
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    ask_code(cases[i].json, cases[i].code);
  }
  CHECK(gpufi_dispatcher_message(dispatcher, client, NULL, 0, 0, 0));
  check_code("bad_request");
  ask_code("{\"op\": \"read\", \"name\": \"x\"}", "");
  CHECK(outbox.log_count >= 5 && outbox.log_count <= 10); /* once for each code */
  finish_with_tensor();
}

static void an_error_names_the_id_and_the_value(void) {
  start_with_tensor((gpufi_dispatcher_options){0});
  answer a = ask("{\"id\": 41, \"op\": \"read\", \"name\": \"x\", \"slices\": [[0, 1, 0]]}");
  json_t *json = json_of(&a);
  CHECK(int_of(json, "id") == 41 && text_is(json, "op", "read"));
  CHECK(text_is(json_object_get(json, "error"), "message", "slices[0] [0,1,0] has step 0"));
  json_decref(json);
  gpufi_reply_free(a.reply);
  finish_with_tensor();
}

/* Ask what cannot be read as a whole, and check that the error tells the request by op and id. */
static void ask_damaged(const char *json, const char *message) {
  answer a = ask(json);
  json_t *reply = json_of(&a);
  const char *text = json_string_value(json_object_get(json_object_get(reply, "error"), "message"));
  CHECK(int_of(reply, "id") == 41 && text_is(reply, "op", "histogram"));
  CHECK(text && strstr(text, message));
  json_decref(reply);
  gpufi_reply_free(a.reply);
}

static void an_error_tells_the_request_and_the_value_that_cannot_be_read(void) {
  start_with_tensor((gpufi_dispatcher_options){0});
  ask_damaged("{\"bins\": 1000000000000000000000000000000, \"op\": \"histogram\", \"id\": 41, "
              "\"name\": \"x\"}",
              "bins 1000000000000000000000000000000 cannot be read");
  ask_damaged("{\"name\": \"\\ud800\", \"op\": \"histogram\", \"id\": 41}",
              "name \"\\ud800\" cannot");
  ask_damaged("{\"name\": \"\xff\", \"op\": \"histogram\", \"id\": 41}", "name \"?\" cannot");
  ask_damaged("{\"range\": [NaN, 1], \"op\": \"histogram\", \"id\": 41}", "range [NaN, 1] cannot");
  ask_damaged("{\"op\": \"histogram\", \"id\": 41, \"name\": \"x\", \"name\": \"x\"}", "twice");
  ask_damaged("{\"op\": \"histogram\", \"id\": 41, \"name\": \"x", "without an end");
  ask_damaged("{\"op\": \"histogram\", \"id\": 41} {}", "follows");
  const char *data = "{\"op\": \"histogram\", \"id\": 41}";
  CHECK(gpufi_dispatcher_refuse(dispatcher, client, data, strlen(data), "half of it is gone", 0));
  answer a = next_answer();
  json_t *reply = json_of(&a);
  CHECK(int_of(reply, "id") == 41);
  CHECK(strstr(a.reply->json, "half of it is gone") && strstr(a.reply->json, "bad_request"));
  json_decref(reply);
  gpufi_reply_free(a.reply);
  finish_with_tensor();
}

/* `item` many times, between two texts. */
static char *repeated(const char *before, const char *item, size_t count, const char *after) {
  const size_t nbytes = strlen(item);
  char *text = malloc(strlen(before) + nbytes * count + strlen(after) + 1), *end = text;
  end = stpcpy(end, before);
  for (size_t i = 0; i < count; i++) {
    end = stpcpy(end, item);
  }
  strcpy(end, after);
  return text;
}

static void bombs_are_refused_before_they_are_parsed(void) {
  start_with_tensor((gpufi_dispatcher_options){0});
  char *bombs[] = {
      repeated("", "[", 16000, ""),
      repeated("{\"op\": ", "{\"op\": ", 2000, ""),
      repeated("{\"op\": \"", "a", 1000000, "\"}"),
      repeated("{\"op\": \"read\", \"name\": \"x\", \"slices\": [", "0,", 5000, "0]}"),
      repeated("{\"op\": \"read\", \"name\": \"", "n", 5000, "\"}"),
      repeated("{\"op\": \"overview\", \"name\": \"x\", \"shape\": [", "1,", 5000, "1]}"),
      repeated("{\"op\": \"list\", \"skip\": ", "[", 4, "]]]]}"),
      repeated("{\"op\": \"list\", \"skip\": {\"a\": ", "[", 100, "]"),
  };
  for (size_t i = 0; i < sizeof(bombs) / sizeof(bombs[0]); i++) {
    send(bombs[i]);
    check_code(i == 3 ? "bad_slice" : "bad_request");
    free(bombs[i]);
  }
  finish_with_tensor();
}

static void requests_have_no_buffers(void) {
  const char *json = "{\"op\": \"list\"}";
  start_with_tensor((gpufi_dispatcher_options){0});
  CHECK(gpufi_dispatcher_message(dispatcher, client, json, strlen(json), 1, 0));
  check_code("bad_request");
  CHECK(!gpufi_dispatcher_message(dispatcher, client + 1, json, strlen(json), 0, 0));
  CHECK(pending_replies() == 0);
  finish_with_tensor();
}

static void another_protocol_and_one_client_too_many_are_refused(void) {
  gpufi_reply *refusal;
  uint64_t other = 99;
  const char *data = "{\"protocol\": 2}";
  start((gpufi_dispatcher_options){.client_max = 1});
  CHECK_FAILS(gpufi_client_open(dispatcher, data, strlen(data), 0, &other, &refusal, &err),
              GPUF_ERR_INVALID, "protocol 2");
  CHECK(strstr(refusal->json, "unsupported_protocol") != NULL);
  gpufi_reply_free(refusal);
  CHECK_FAILS(gpufi_client_open(dispatcher, "[", 1, 0, &other, &refusal, &err), GPUF_ERR_INVALID,
              "no JSON object");
  gpufi_reply_free(refusal);
  CHECK_FAILS(gpufi_client_open(dispatcher, "", 0, 0, &other, &refusal, &err), GPUF_ERR_STATE,
              "1 clients");
  CHECK(strstr(refusal->json, "too_many_clients") != NULL);
  gpufi_reply_free(refusal);
  CHECK(other == 99 && pending_replies() == 0);
  gpufi_client_close(dispatcher, client);
  open_client(&other);
  CHECK(other != client);
  finish();
}

static void options_and_names_of_the_program_are_checked(void) {
  const gpufi_dispatcher_options no_reply = {0};
  gpufi_dispatcher_options small = {.reply = take_reply, .reply_memory_nbytes = 1000};
  gpufi_dispatcher *none = NULL;
  CHECK_FAILS(gpufi_dispatcher_create(&no_reply, &none, &err), GPUF_ERR_INVALID, "reply");
  CHECK_FAILS(gpufi_dispatcher_create(&small, &none, &err), GPUF_ERR_INVALID, "1000 bytes");
  start_with_tensor((gpufi_dispatcher_options){.tensor_max = 2, .value_max = 1});
  CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "", &tensor, NULL, &err), GPUF_ERR_INVALID,
              "0 bytes");
  CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "a\tb", &tensor, NULL, &err), GPUF_ERR_INVALID,
              "control");
  CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "\xc3", &tensor, NULL, &err), GPUF_ERR_INVALID,
              "UTF-8");
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "y", &tensor, NULL, &err));
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "y", &tensor, NULL, &err));
  CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "z", &tensor, NULL, &err), GPUF_ERR_STATE,
              "2 tensors");
  CHECK_OK(gpufi_dispatcher_publish_int64(dispatcher, "n", 1, &err));
  CHECK_FAILS(gpufi_dispatcher_publish_int64(dispatcher, "m", 1, &err), GPUF_ERR_STATE, "1 values");
  CHECK_FAILS(gpufi_dispatcher_publish_text(dispatcher, "n", "\xff", &err), GPUF_ERR_INVALID,
              "UTF-8");
  CHECK_FAILS(gpufi_dispatcher_unpublish(dispatcher, "q", 0, &err), GPUF_ERR_INVALID, "nothing");
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "y", 0, &err));
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "n", 0, &err));
  finish_with_tensor();
}

/* --- Waiting requests ---------------------------------------------------------- */

static void a_client_has_few_requests_waiting(void) {
  uint64_t other;
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 2});
  open_client(&other);
  for (int i = 0; i < 3; i++) {
    send("{\"op\": \"stats\", \"name\": \"x\"}");
  }
  check_code("busy");
  send_as(other, "{\"op\": \"stats\", \"name\": \"x\"}", 0);
  CHECK(pending_replies() == 0);
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  CHECK(pending_replies() == 3);
  finish_with_tensor();
}

/* The tags of the answers, in the order in which requests were run. */
static void check_order(const char *expected) {
  char order[32] = "";
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  for (size_t i = 0; pending_replies() > 0; i++) {
    const answer a = next_answer();
    CHECK(i + 1 < sizeof(order));
    order[i] = (char)a.tag;
    gpufi_reply_free(a.reply);
  }
  if (strcmp(order, expected) != 0) {
    printf("# expected %s: %s\n", expected, order);
  }
  CHECK(strcmp(order, expected) == 0);
}

static const char live[] = "{\"op\": \"stats\", \"name\": \"x\"}";
static const char at_step[] = "{\"op\": \"stats\", \"name\": \"x\", \"at\": \"step\"}";

static void send_each(uint64_t from, const char *request, const char *tags) {
  for (; *tags; tags++) {
    send_as(from, request, (uint64_t)*tags);
  }
}

static void clients_take_turns(void) {
  uint64_t other, third;
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 8});
  open_client(&other);
  open_client(&third);
  send_each(client, live, "abcd");
  send_each(other, live, "AB");
  send_each(third, live, "1");
  check_order("aA1bBcd");
  finish_with_tensor();
}

/* Nor does one with many requests wait for ever on one that asks again at each reply. */
static void a_client_that_always_asks_holds_up_nobody(void) {
  uint64_t other;
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 8});
  open_client(&other);
  send_each(client, live, "abcd");
  gpufi_dispatcher_run(dispatcher);
  for (const char *tag = "ABC"; *tag; tag++) {
    send_as(other, live, (uint64_t)*tag);
    gpufi_dispatcher_run(dispatcher);
    gpufi_dispatcher_run(dispatcher);
  }
  check_order("abAcBdC");
  finish_with_tensor();
}

static void clients_of_one_owner_take_turns_as_one(void) {
  uint64_t second, other;
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 8});
  open_client(&second);
  open_client(&other);
  CHECK(gpufi_client_set_owner(dispatcher, second, client));
  CHECK(!gpufi_client_set_owner(dispatcher, 999, client));
  send_each(client, live, "ab");
  send_each(second, live, "AB");
  send_each(other, live, "12");
  check_order("a1b2AB");
  finish_with_tensor();
}

static void clients_take_turns_at_a_step(void) {
  uint64_t other;
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 8, .step_share = 1});
  open_client(&other);
  send_each(client, at_step, "ab");
  send_each(other, at_step, "A");
  for (int i = 1; i < 10000 && pending_replies() < 3; i++) {
    gpufi_dispatcher_step(dispatcher, i, 0.5);
    usleep(1000);
  }
  check_order("aAb");
  finish_with_tensor();
}

static void *publish_on_the_threads_stream(void *arg) {
  gpuf_tensor *const y = arg;
  y->stream = GPUF_STREAM_PER_THREAD;
  return gpufi_dispatcher_publish(dispatcher, "y", y, NULL, NULL) == GPUF_OK ? arg : NULL;
}

/* GPUF_STREAM_PER_THREAD names another stream in each thread. */
static void a_step_is_not_read_behind_another_threads_stream(void) {
  static const char y_at_step[] = "{\"op\": \"stats\", \"name\": \"y\", \"at\": \"step\"}";
  pthread_t thread;
  void *result = NULL;
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 8, .step_share = 1});
  gpuf_tensor y = put(values, GPUF_DTYPE_FLOAT32, 2, shape);
  CHECK(pthread_create(&thread, NULL, publish_on_the_threads_stream, &y) == 0);
  pthread_join(thread, &result);
  CHECK(result == &y);
  send_as(client, y_at_step, 1);
  gpufi_dispatcher_step(dispatcher, 1, 0.5);
  check_code("unreadable");
  CHECK(publish_on_the_threads_stream(&y));
  send_as(client, y_at_step, 2);
  gpufi_dispatcher_step(dispatcher, 2, 0.5);
  check_code("");
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "y", -1, &err));
  y.stream = GPUF_STREAM_NONE;
  drop(&y);
  finish_with_tensor();
}

static void the_newest_request_wins(void) {
  start_with_tensor((gpufi_dispatcher_options){.waiting_max = 2});
  send_as(client, "{\"op\": \"stats\", \"name\": \"x\", \"supersede\": \"view\"}", 1);
  send_as(client, "{\"op\": \"stats\", \"name\": \"x\", \"supersede\": \"other\"}", 2);
  send_as(client, "{\"op\": \"stats\", \"name\": \"x\", \"supersede\": \"view\"}", 3);
  CHECK(outbox.answers[outbox.taken].tag == 1);
  check_code("superseded");
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  CHECK(outbox.answers[outbox.taken].tag == 2);
  check_code("");
  CHECK(outbox.answers[outbox.taken].tag == 3);
  check_code("");
  finish_with_tensor();
}

static void a_waiting_request_can_be_cancelled(void) {
  start_with_tensor((gpufi_dispatcher_options){0});
  send_as(client, "{\"op\": \"stats\", \"name\": \"x\", \"id\": \"a\"}", 1);
  send_as(client, "{\"op\": \"stats\", \"name\": \"x\", \"id\": 1, \"at\": \"step\"}", 2);
  send_as(client, "{\"op\": \"cancel\", \"request\": \"a\"}", 3);
  CHECK(outbox.answers[outbox.taken].tag == 1);
  check_code("cancelled");
  answer a = next_answer();
  json_t *json = json_of(&a);
  CHECK(int_of(json, "cancelled") == 1);
  json_decref(json);
  gpufi_reply_free(a.reply);
  send_as(client, "{\"op\": \"cancel\", \"request\": 1}", 4);
  check_code("cancelled");
  check_code("");
  a = ask("{\"op\": \"cancel\", \"request\": \"a\"}");
  CHECK(strstr(a.reply->json, "\"cancelled\":0") != NULL);
  gpufi_reply_free(a.reply);
  finish_with_tensor();
}

static void what_waits_is_dropped_with_its_client(void) {
  gpufi_dispatcher_counts counts;
  start_with_tensor((gpufi_dispatcher_options){0});
  send("{\"op\": \"stats\", \"name\": \"x\"}");
  send("{\"op\": \"stats\", \"name\": \"x\", \"at\": \"step\"}");
  gpufi_client_close(dispatcher, client);
  CHECK(!gpufi_dispatcher_run(dispatcher));
  gpufi_dispatcher_step(dispatcher, 1, 0.5);
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.waiting_count == 0 && counts.client_count == 0 && pending_replies() == 0);
  finish_with_tensor();
}

static void replies_that_are_not_freed_hold_back_more(void) {
  const int64_t count = (4 << 20) / 4;
  gpufi_dispatcher_counts counts;
  int ran = 0;
  start((gpufi_dispatcher_options){
      .reply_memory_nbytes = (size_t)16 << 20, .waiting_max = 100, .step_share = 1});
  float *large = calloc((size_t)count, sizeof(float));
  gpuf_tensor d_large = put(large, GPUF_DTYPE_FLOAT32, 1, &count);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "large", &d_large, NULL, &err));
  for (int i = 0; i < 3; i++) {
    send("{\"op\": \"read\", \"name\": \"large\"}");
  }
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  CHECK(pending_replies() == 3 && !gpufi_dispatcher_is_short(dispatcher)); /* nobody waits */
  for (int i = 3; i < 10; i++) {
    send("{\"op\": \"read\", \"name\": \"large\"}");
  }
  CHECK(!gpufi_dispatcher_run(dispatcher));
  CHECK(pending_replies() == 3 && gpufi_dispatcher_is_short(dispatcher));
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.reply_nbytes <= (size_t)16 << 20 && counts.waiting_count == 7);
  for (; pending_replies() > 0; ran++) {
    gpufi_reply_free(next_answer().reply);
    gpufi_dispatcher_run(dispatcher);
  }
  CHECK(ran == 10 && !gpufi_dispatcher_is_short(dispatcher));
  for (int i = 0; i < 4; i++) {
    send("{\"op\": \"read\", \"name\": \"large\", \"at\": \"step\"}");
  }
  CHECK(!gpufi_dispatcher_run(dispatcher) && !gpufi_dispatcher_is_short(dispatcher));
  for (int step = 1; step <= 4; step++) {
    gpufi_dispatcher_step(dispatcher, step, 0.5);
  }
  CHECK(pending_replies() == 3 && gpufi_dispatcher_is_short(dispatcher));
  gpufi_reply_free(next_answer().reply);
  gpufi_dispatcher_step(dispatcher, 5, 0.5);
  CHECK(pending_replies() == 3 && !gpufi_dispatcher_is_short(dispatcher));
  while (pending_replies() > 0) {
    gpufi_reply_free(next_answer().reply);
  }
  free(large);
  finish();
  drop(&d_large);
}

static void replies_outlive_the_dispatcher(void) {
  start_with_tensor((gpufi_dispatcher_options){0});
  answer a = ask("{\"op\": \"read\", \"name\": \"x\"}");
  CHECK_OK(gpufi_dispatcher_destroy(dispatcher, 0, &err));
  CHECK(memcmp(a.reply->buffers[0], values, sizeof(values)) == 0);
  gpufi_reply_free(a.reply);
  drop(&tensor);
}

static void requests_can_run_inside_the_message(void) {
  start_with_tensor(
      (gpufi_dispatcher_options){.run_in_message = true, .no_steps = true, .no_share = true});
  send("{\"op\": \"stats\", \"name\": \"x\"}");
  check_code("");
  CHECK(!gpufi_dispatcher_run(dispatcher));
  send("{\"op\": \"stats\", \"name\": \"x\", \"at\": \"step\"}");
  check_code("unsupported");
  send("{\"op\": \"subscribe\"}");
  check_code("unsupported");
  send("{\"op\": \"share\", \"name\": \"x\"}");
  check_code("unsupported");
  finish_with_tensor();
}

/* --- Steps --------------------------------------------------------------------- */

static void a_read_at_a_step_waits_for_it(void) {
  start_with_tensor((gpufi_dispatcher_options){.step_share = 1});
  gpufi_dispatcher_step(dispatcher, 1, 0.25);
  send("{\"op\": \"read\", \"name\": \"x\", \"at\": \"step\"}");
  CHECK(!gpufi_dispatcher_run(dispatcher) && pending_replies() == 0);
  gpufi_dispatcher_step(dispatcher, 2, 0.5);
  CHECK(pending_replies() == 1);
  answer a = next_answer();
  json_t *json = json_of(&a);
  CHECK(int_of(json, "step") == 2 && json_real_value(json_object_get(json, "time")) == 0.5);
  CHECK(memcmp(a.reply->buffers[0], values, sizeof(values)) == 0);
  json_decref(json);
  gpufi_reply_free(a.reply);
  finish_with_tensor();
}

static void a_subscription_is_answered_once_by_the_next_step(void) {
  start_with_tensor((gpufi_dispatcher_options){.step_share = 1});
  send("{\"op\": \"subscribe\"}");
  CHECK(pending_replies() == 0);
  gpufi_dispatcher_step(dispatcher, 10, 1.0);
  check_code("");
  gpufi_dispatcher_step(dispatcher, 11, 1.1);
  CHECK(pending_replies() == 0);
  send("{\"op\": \"subscribe\", \"after\": 10}"); /* which is not the last complete step */
  answer a = next_answer();
  CHECK(strstr(a.reply->json, "\"step\":11") != NULL);
  gpufi_reply_free(a.reply);
  send("{\"op\": \"subscribe\", \"after\": 11}");
  CHECK(pending_replies() == 0);
  gpufi_dispatcher_step(dispatcher, 12, 1.2);
  check_code("");
  finish_with_tensor();
}

/* Whatever clients ask, the stepping thread serves them for a share of its time only. */
static void serve_steps_by_share(double step_share) {
  int served = 0;
  start_with_tensor((gpufi_dispatcher_options){.step_share = step_share});
  for (int step = 0; step < 50; step++) {
    send("{\"op\": \"stats\", \"name\": \"x\", \"at\": \"step\", \"supersede\": \"s\"}");
    gpufi_dispatcher_step(dispatcher, step, 0);
    while (pending_replies() > 0) {
      answer a = next_answer();
      served += strstr(a.reply->json, "\"error\"") == NULL;
      gpufi_reply_free(a.reply);
    }
  }
  CHECK(served == 1);
  finish_with_tensor();
}

static void serving_takes_no_more_than_its_share_of_the_steps(void) {
  serve_steps_by_share(1e-6);
  serve_steps_by_share(1e-300);
  serve_steps_by_share(5e-324);
}

/* --- Threads ------------------------------------------------------------------- */

static atomic_bool stop;

static void *run_requests(void *arg) {
  while (!atomic_load(&stop)) {
    if (!gpufi_dispatcher_run(dispatcher)) {
      sched_yield();
    }
  }
  return NULL;
}

static void *step_on(void *arg) {
  for (int64_t step = 0; !atomic_load(&stop); step++) {
    gpufi_dispatcher_step(dispatcher, step, (double)step);
    sched_yield();
  }
  return NULL;
}

static void *publish_again_and_again(void *arg) {
  gpuf_error error;
  while (!atomic_load(&stop)) {
    gpuf_tensor mine = tensor;
    mine.shape[0] = 10;
    gpufi_dispatcher_publish(dispatcher, "y", &mine, NULL, &error);
    gpufi_dispatcher_publish(dispatcher, "y", &tensor, NULL, &error);
    gpufi_dispatcher_publish_float64(dispatcher, "v", 0.5, &error);
    gpufi_dispatcher_unpublish(dispatcher, "y", -1, &error);
  }
  return NULL;
}

/* Every message has one reply, whoever runs it, while tensors come and go. */
static void threads_answer_every_message_once(void) {
  static const char *const requests[] = {
      "{\"op\": \"read\", \"name\": \"y\"}",
      "{\"op\": \"stats\", \"name\": \"x\", \"at\": \"step\"}",
      "{\"op\": \"subscribe\"}",
      "{\"op\": \"list\"}",
      "{\"op\": \"share\", \"name\": \"y\"}",
      "{\"op\": \"overview\", \"name\": \"y\", \"shape\": [2, 2], \"at\": \"step\"}",
  };
  void *(*const bodies[4])(void *) = {run_requests, run_requests, step_on, publish_again_and_again};
  enum { CLIENTS = 4, ROUNDS = 120 };
  uint64_t clients[CLIENTS];
  pthread_t threads[4];
  int replies = 0;
  start_with_tensor((gpufi_dispatcher_options){.step_share = 1});
  atomic_store(&stop, false);
  for (int i = 0; i < CLIENTS; i++) {
    open_client(&clients[i]);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0);
  }
  for (int round = 0; round < ROUNDS; round++) {
    send_as(clients[round % CLIENTS], requests[round % 6], (uint64_t)round);
  }
  while (replies < ROUNDS) {
    if (pending_replies() > 0) {
      gpufi_reply_free(next_answer().reply);
      replies++;
    } else {
      sched_yield();
    }
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK(pending_replies() == 0);
  finish_with_tensor();
}

static _Atomic uint64_t leaving; /* the client that is about to be closed */

static void *send_as_the_leaving(void *arg) {
  static const char *const requests[] = {
      "{\"op\": \"share\", \"name\": \"y\"}",
      "{\"op\": \"subscribe\"}",
      "{\"op\": \"stats\", \"name\": \"x\"}",
  };
  for (int i = 0; !atomic_load(&stop); i = (i + 1) % 3) {
    gpufi_dispatcher_message(dispatcher, atomic_load(&leaving), requests[i], strlen(requests[i]), 0,
                             0);
    sched_yield();
  }
  return NULL;
}

/* Requests and shares that a client makes while it is closed are dropped too. */
static void a_client_that_is_closed_while_it_asks_leaves_nothing(void) {
  void *(*const bodies[3])(void *) = {run_requests, publish_again_and_again, send_as_the_leaving};
  gpufi_dispatcher_counts counts;
  pthread_t threads[3];
  start_with_tensor((gpufi_dispatcher_options){0});
  atomic_store(&stop, false);
  atomic_store(&leaving, client);
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0);
  }
  for (int round = 0; round < 200; round++) {
    uint64_t next;
    gpufi_reply *refusal;
    CHECK_OK(gpufi_client_open(dispatcher, "", 0, 0, &next, &refusal, &err));
    gpufi_client_close(dispatcher, atomic_exchange(&leaving, next));
    while (pending_replies() > 0) {
      gpufi_reply_free(next_answer().reply);
    }
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
  }
  gpufi_client_close(dispatcher, atomic_load(&leaving));
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.client_count == 0 && counts.waiting_count == 0 && counts.share_count == 0);
  finish_with_tensor();
}

int main(void) {
  TEST_ON_DEVICES(what_is_no_request_is_answered_by_an_error);
  TEST_ON_DEVICES(an_error_names_the_id_and_the_value);
  TEST_ON_DEVICES(an_error_tells_the_request_and_the_value_that_cannot_be_read);
  TEST_ON_DEVICES(bombs_are_refused_before_they_are_parsed);
  TEST_ON_DEVICES(requests_have_no_buffers);
  TEST_ON_DEVICES(another_protocol_and_one_client_too_many_are_refused);
  TEST_ON_DEVICES(options_and_names_of_the_program_are_checked);
  TEST_ON_DEVICES(a_client_has_few_requests_waiting);
  TEST_ON_DEVICES(clients_take_turns);
  TEST_ON_DEVICES(a_client_that_always_asks_holds_up_nobody);
  TEST_ON_DEVICES(clients_of_one_owner_take_turns_as_one);
  TEST_ON_DEVICES(clients_take_turns_at_a_step);
  TEST_ON_DEVICES(a_step_is_not_read_behind_another_threads_stream);
  TEST_ON_DEVICES(the_newest_request_wins);
  TEST_ON_DEVICES(a_waiting_request_can_be_cancelled);
  TEST_ON_DEVICES(what_waits_is_dropped_with_its_client);
  TEST_ON_DEVICES(replies_that_are_not_freed_hold_back_more);
  TEST_ON_DEVICES(replies_outlive_the_dispatcher);
  TEST_ON_DEVICES(requests_can_run_inside_the_message);
  TEST_ON_DEVICES(a_read_at_a_step_waits_for_it);
  TEST_ON_DEVICES(a_subscription_is_answered_once_by_the_next_step);
  TEST_ON_DEVICES(serving_takes_no_more_than_its_share_of_the_steps);
  TEST_ON_DEVICES(threads_answer_every_message_once);
  TEST_ON_DEVICES(a_client_that_is_closed_while_it_asks_leaves_nothing);
  return test_finish();
}
