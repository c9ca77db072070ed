/* The parser of the Jupyter wire protocol: the messages that it accepts, and that it accepts no
 * others. */
#include "server/replay.h"
#include "server/wire.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

#define KEY "5ca1ab1e"
#define HEADER                                                                                     \
  "{\"msg_id\": \"m1\", \"msg_type\": \"kernel_info_request\", \"session\": \"s\", "               \
  "\"username\": \"\", \"date\": \"2026-01-01T00:00:00Z\", \"version\": \"5.3\"}"

static gpufi_session *session;
static gpuf_error err;

/* A message of one identity, delimiter, signature, four sections and one buffer. */
typedef struct wired {
  gpufi_frame frames[8];
  char signature[GPUFI_WIRE_SIGNATURE_NBYTES];
} wired;

static gpufi_frame frame_of(const char *text) {
  return (gpufi_frame){text, strlen(text)};
}

static void wire(wired *w, const char *header, const char *content) {
  const char *texts[8] = {"client", GPUFI_WIRE_DELIMITER, "", header, "{}", "{}", content, "xyz"};
  for (int i = 0; i < 8; i++) {
    w->frames[i] = frame_of(texts[i]);
  }
  CHECK_OK(gpufi_session_sign(session, &w->frames[3], w->signature, &err));
  w->frames[2] = frame_of(w->signature);
}

static void open_session(void) {
  gpufi_session_destroy(session);
  session = NULL;
  CHECK_OK(gpufi_session_create(KEY, &session, &err));
}

#define CHECK_REFUSED(w, count, reason)                                                            \
  do {                                                                                             \
    gpufi_message refused_;                                                                        \
    CHECK_FAILS(gpufi_message_parse(session, (w)->frames, count, &refused_, &err),                 \
                GPUF_ERR_CORRUPT, reason);                                                         \
    CHECK(!refused_.header && !refused_.content);                                                  \
  } while (0)

static void a_signed_message_is_taken_apart(void) {
  wired w;
  gpufi_message message;
  open_session();
  wire(&w, HEADER, "{\"code\": \"1\"}");
  CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
  CHECK(message.identity_count == 1 && message.buffer_count == 1);
  CHECK(memcmp(message.buffers[0].data, "xyz", 3) == 0);
  CHECK(strcmp(message.type, "kernel_info_request") == 0 && strcmp(message.id, "m1") == 0);
  CHECK(strcmp(json_string_value(json_object_get(message.content, "code")), "1") == 0);
  gpufi_message_fini(&message);
}

/* By Python: hmac.new(b"5ca1ab1e", b'{"a":1}{}{}{"b":2}', "sha256").hexdigest() */
static void signatures_are_those_of_jupyter_client(void) {
  const gpufi_frame sections[4] = {frame_of("{\"a\":1}"), frame_of("{}"), frame_of("{}"),
                                   frame_of("{\"b\":2}")};
  char signature[GPUFI_WIRE_SIGNATURE_NBYTES];
  open_session();
  CHECK_OK(gpufi_session_sign(session, sections, signature, &err));
  CHECK(strcmp(signature, "f7d2aa381ddce000750215873f0050cfcdcd64a95fba3e17b5dd5f57b9791271") == 0);
}

static void a_wrong_signature_is_refused(void) {
  wired w;
  open_session();
  wire(&w, HEADER, "{}");
  w.signature[63] = w.signature[63] == '0' ? '1' : '0';
  CHECK_REFUSED(&w, 8, "signature is wrong");
  wire(&w, HEADER, "{}");
  w.frames[2] = frame_of("");
  CHECK_REFUSED(&w, 8, "signature is wrong");
  wire(&w, HEADER, "{}");
  w.frames[2].nbytes--;
  CHECK_REFUSED(&w, 8, "signature is wrong");
}

static void a_section_that_was_changed_is_refused(void) {
  wired w;
  open_session();
  for (int i = 3; i < 7; i++) {
    wire(&w, HEADER, "{}");
    w.frames[i] = frame_of("{\"x\": 1}");
    CHECK_REFUSED(&w, 8, "signature is wrong");
  }
}

static void a_repetition_is_refused(void) {
  wired w;
  gpufi_message message;
  open_session();
  wire(&w, HEADER, "{}");
  CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
  gpufi_message_fini(&message);
  CHECK_REFUSED(&w, 8, "repetition");
}

static void a_refused_signature_takes_no_place_among_the_remembered(void) {
  wired w;
  gpufi_message message;
  open_session();
  wire(&w, HEADER, "{}");
  for (int i = 0; i < 2 * GPUFI_WIRE_REPLAY_COUNT; i++) {
    wired forged = w;
    forged.frames[6] = frame_of("{\"forged\": 1}");
    CHECK_REFUSED(&forged, 8, "signature is wrong");
    if (i == 0) {
      CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
      gpufi_message_fini(&message);
    }
  }
  CHECK_REFUSED(&w, 8, "repetition");
}

static void malformed_frames_are_refused(void) {
  wired w;
  gpufi_frame many[GPUFI_WIRE_FRAMES_MAX + 1];
  open_session();
  wire(&w, HEADER, "{}");
  for (size_t count = 0; count < 7; count++) {
    CHECK_REFUSED(&w, count, "delimiter");
  }
  w.frames[1] = frame_of("<IDS|MSG");
  CHECK_REFUSED(&w, 8, "delimiter");
  wire(&w, HEADER, "{}");
  for (size_t i = 0; i <= GPUFI_WIRE_FRAMES_MAX; i++) {
    many[i] = i < 8 ? w.frames[i] : frame_of("");
  }
  gpufi_message message;
  CHECK_FAILS(gpufi_message_parse(session, many, GPUFI_WIRE_FRAMES_MAX + 1, &message, &err),
              GPUF_ERR_CORRUPT, "too many frames");
  w.frames[7] = (gpufi_frame){"", GPUFI_WIRE_FRAME_MAX_NBYTES + 1};
  CHECK_REFUSED(&w, 8, "too large");
}

/* A message whose header says which one it is, and of which something else cannot be read. */
#define CHECK_DAMAGED(w, reason)                                                                   \
  do {                                                                                             \
    gpufi_message damaged_;                                                                        \
    CHECK_OK(gpufi_message_parse(session, (w)->frames, 8, &damaged_, &err));                       \
    CHECK(damaged_.problem && strstr(damaged_.problem, reason));                                   \
    CHECK(strcmp(damaged_.id, "m1") == 0);                                                         \
    gpufi_message_fini(&damaged_);                                                                 \
  } while (0)

static void json_that_is_damaged_is_a_message_with_a_problem(void) {
  static const struct {
    const char *content, *problem;
  } bad[] = {
      {"", "no JSON object"},
      {"[]", "no JSON object"},
      {"1", "no JSON object"},
      {"{", "no name"},
      {"{\"a\": }", "no value"},
      {"{\"a\": \"x}", "without an end"},
      {"{\"a\": 1 \"b\": 2}", "between its members"},
      {"{}{}", "follows"},
      {"{\"\xff\": 1}", "UTF-8"},
      {"{\"a\": NaN}", "NaN"},
      {"{\"a\": 1000000000000000000000}", "64 bits"},
      {"{\"a\": \"\\u0000\"}", "u0000"},
      {"{\"a\": \"\\udead\"}", "surrogate"},
      {"{\"a\": 1, \"a\": 2}", "twice"},
      {"{\"a\": {\"b\": 1, \"b\": 2}}", "duplicate"},
      {"{\"data\": 1, \"d\\u0061ta\": 2}", "twice"},
  };
  wired w;
  gpufi_message message;
  open_session();
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    wire(&w, HEADER, bad[i].content);
    CHECK_DAMAGED(&w, bad[i].problem);
  }
  wire(&w, HEADER, "{\"comm_id\": \"c\", \"data\": {\"op\": NaN}, \"x\": nan, \"y\": 1}");
  CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
  CHECK(json_object_size(message.content) == 2);
  CHECK(strcmp(json_string_value(json_object_get(message.content, "comm_id")), "c") == 0);
  CHECK(message.data.nbytes == 11 && memcmp(message.data.data, "{\"op\": NaN}", 11) == 0);
  gpufi_message_fini(&message);
}

static void a_header_with_an_odd_member_is_answered_without_it(void) {
  wired w;
  gpufi_message message;
  open_session();
  wire(&w,
       "{\"msg_id\": \"m1\", \"username\": \"\\udc80\", \"msg_type\": \"t_request\", \"session\": "
       "\"s\"}",
       "{}");
  CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
  CHECK(message.problem && json_object_size(message.header) == 3);
  gpufi_message_fini(&message);
}

static void json_that_nests_too_deep_is_refused_before_it_is_parsed(void) {
  static char text[GPUFI_WIRE_FRAME_MAX_NBYTES];
  wired w;
  gpufi_message message;
  open_session();
  memset(text, '[', sizeof(text) - 1);
  wire(&w, HEADER, text);
  CHECK_DAMAGED(&w, "no JSON object");
  memcpy(text, "{\"a\":", 5);
  wire(&w, HEADER, text);
  CHECK_DAMAGED(&w, "without an end");
  memset(text + 5 + 40, ']', 40);
  strcpy(text + 5 + 80, "}");
  wire(&w, HEADER, text);
  CHECK_DAMAGED(&w, "nests too deep");
  wire(&w, HEADER, "{\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\": [[[[]]]]}");
  CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
  gpufi_message_fini(&message);
}

static void the_time_of_a_message_is_that_of_its_header(void) {
  static const struct {
    const char *date;
    int64_t time_ns; /* 0: not told */
  } cases[] = {
      {"\"2026-11-22T08:30:00.250000Z\"", 1795336200250000000},
      {"\"2026-11-22T08:30:00Z\"", 1795336200000000000},
      {"\"2026-11-22T08:30:00.000000001999+00:00\"", 1795336200000000001},
      {"\"2026-11-22T08:30:00.25\"", 0},
      {"\"2026-11-22T08:30:00+01:00\"", 0},
      {"\"9999-11-22T08:30:00Z\"", 0},
      {"\"now\"", 0},
      {"7", 0},
  };
  wired w;
  open_session();
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char header[256];
    int64_t time_ns = 0;
    gpufi_message message;
    snprintf(header, sizeof(header),
             "{\"msg_id\": \"m\", \"msg_type\": \"t_request\", \"session\": \"s\", \"date\": %s}",
             cases[i].date);
    wire(&w, header, "{}");
    CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
    CHECK(gpufi_message_time(&message, &time_ns) == (cases[i].time_ns != 0));
    CHECK(cases[i].time_ns == 0 || time_ns == cases[i].time_ns);
    gpufi_message_fini(&message);
  }
}

static void headers_that_lack_something_are_refused(void) {
  static const char *const bad[] = {
      "{}",
      "{\"msg_id\": \"\", \"msg_type\": \"t\", \"session\": \"s\"}",
      "{\"msg_id\": \"m\", \"msg_type\": 1, \"session\": \"s\"}",
      "{\"msg_id\": \"m\", \"msg_type\": \"t\", \"session\": {}}",
  };
  wired w;
  open_session();
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    wire(&w, bad[i], "{}");
    CHECK_REFUSED(&w, 8, "header lacks");
  }
  wire(
      &w,
      "{\"msg_id\": \"m1\", \"msg_type\": \"t_request\", \"session\": \"s\", \"version\": \"4.1\"}",
      "{}");
  CHECK_DAMAGED(&w, "version");
}

static json_t *section_of(const gpufi_packed *packed, int index) {
  return json_loadb(packed->sections[index].data, packed->sections[index].nbytes, 0, NULL);
}

static void what_is_packed_is_signed_and_holds_what_was_given(void) {
  gpufi_packed packed;
  gpufi_session *other = NULL;
  char signature[GPUFI_WIRE_SIGNATURE_NBYTES];
  open_session();
  CHECK_OK(gpufi_session_create(KEY, &other, &err));
  json_t *parent = json_pack("{ss}", "msg_id", "before");
  CHECK_OK(gpufi_message_pack(session, "status", parent, strdup("{\"x\":1}"), &packed, &err));
  CHECK_OK(gpufi_session_sign(other, packed.sections, signature, &err));
  CHECK(strcmp(packed.signature, signature) == 0);
  json_t *header = section_of(&packed, 0), *sent_parent = section_of(&packed, 1);
  json_t *content = section_of(&packed, 3);
  CHECK(strcmp(json_string_value(json_object_get(header, "msg_type")), "status") == 0);
  CHECK(json_equal(sent_parent, parent));
  CHECK(json_integer_value(json_object_get(content, "x")) == 1);
  json_decref(header);
  json_decref(sent_parent);
  json_decref(content);
  gpufi_packed_fini(&packed);
  gpufi_session_destroy(other);
  json_decref(parent);
}

/* Pack a message of a server's, and refuse it as `receiver` gets it back. */
static void check_sent_back(gpufi_session *receiver, const char *type, const char *reason) {
  gpufi_packed packed;
  gpufi_message message;
  gpufi_frame frames[6];
  CHECK_OK(gpufi_message_pack(session, type, NULL, strdup("{}"), &packed, &err));
  frames[0] = frame_of(GPUFI_WIRE_DELIMITER);
  frames[1] = frame_of(packed.signature);
  memcpy(frames + 2, packed.sections, sizeof(packed.sections));
  CHECK_FAILS(gpufi_message_parse(receiver, frames, 6, &message, &err), GPUF_ERR_CORRUPT, reason);
  CHECK(!message.header && !message.content);
  gpufi_packed_fini(&packed);
}

static void a_servers_message_that_is_sent_back_is_refused(void) {
  static const char *const types[] = {"comm_msg", "comm_close", "shutdown_request", "status"};
  gpufi_session *restarted = NULL;
  open_session();
  CHECK_OK(gpufi_session_create(KEY, &restarted, &err));
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
    check_sent_back(session, types[i], "own message");
    check_sent_back(restarted, types[i], "own message");
  }
  gpufi_session_destroy(restarted);
}

static void a_servers_message_takes_no_place_among_the_remembered(void) {
  wired w;
  gpufi_message message;
  open_session();
  wire(&w, HEADER, "{}");
  CHECK_OK(gpufi_message_parse(session, w.frames, 8, &message, &err));
  gpufi_message_fini(&message);
  for (int i = 0; i <= GPUFI_WIRE_REPLAY_COUNT; i++) {
    check_sent_back(session, "comm_msg", "own message");
  }
  CHECK_REFUSED(&w, 8, "repetition");
}

static void a_message_that_is_no_request_is_refused(void) {
  static const char *const types[] = {"status",        "stream",  "execute_input", "shutdown_reply",
                                      "iopub_welcome", "request", "comm_message",  "_requests"};
  char header[128];
  wired w;
  open_session();
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
    snprintf(header, sizeof(header),
             "{\"msg_id\": \"m\", \"msg_type\": \"%s\", \"session\": \"s\"}", types[i]);
    wire(&w, header, "{}");
    CHECK_REFUSED(&w, 8, "not that of a request");
  }
}

static void keys_that_sign_nothing_are_refused(void) {
  static char longer[GPUFI_WIRE_KEY_MAX_NBYTES + 2];
  gpufi_session *none = NULL;
  memset(longer, 'k', sizeof(longer) - 1);
  CHECK_FAILS(gpufi_session_create("", &none, &err), GPUF_ERR_INVALID, "0 bytes");
  CHECK_FAILS(gpufi_session_create(longer, &none, &err), GPUF_ERR_INVALID, "257 bytes");
}

static void the_oldest_digest_is_forgotten_and_no_other(void) {
  gpufi_replay replay;
  uint8_t digest[GPUFI_DIGEST_NBYTES] = {0};
  CHECK_OK(gpufi_replay_init(&replay, 8, &err));
  for (uint8_t i = 0; i < 50; i++) {
    digest[0] = i & 1; /* two chains */
    digest[31] = i;
    CHECK(gpufi_replay_note(&replay, digest));
    for (uint8_t known = i < 7 ? 0 : i - 7; known <= i; known++) {
      digest[0] = known & 1;
      digest[31] = known;
      CHECK(!gpufi_replay_note(&replay, digest));
    }
  }
  digest[0] = 0;
  digest[31] = 42 - 2;
  CHECK(gpufi_replay_note(&replay, digest));
  gpufi_replay_fini(&replay);
}

int main(void) {
  TEST(a_signed_message_is_taken_apart);
  TEST(signatures_are_those_of_jupyter_client);
  TEST(a_wrong_signature_is_refused);
  TEST(a_section_that_was_changed_is_refused);
  TEST(a_repetition_is_refused);
  TEST(a_refused_signature_takes_no_place_among_the_remembered);
  TEST(malformed_frames_are_refused);
  TEST(json_that_is_damaged_is_a_message_with_a_problem);
  TEST(a_header_with_an_odd_member_is_answered_without_it);
  TEST(json_that_nests_too_deep_is_refused_before_it_is_parsed);
  TEST(the_time_of_a_message_is_that_of_its_header);
  TEST(headers_that_lack_something_are_refused);
  TEST(what_is_packed_is_signed_and_holds_what_was_given);
  TEST(a_servers_message_that_is_sent_back_is_refused);
  TEST(a_servers_message_takes_no_place_among_the_remembered);
  TEST(a_message_that_is_no_request_is_refused);
  TEST(keys_that_sign_nothing_are_refused);
  TEST(the_oldest_digest_is_forgotten_and_no_other);
  gpufi_session_destroy(session);
  return test_finish();
}
