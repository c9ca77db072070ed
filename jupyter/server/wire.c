#include "server/wire.h"

#include "base/error.h"
#include "base/system.h"
#include "comm/json.h"
#include "server/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DIGEST_NBYTES GPUFI_DIGEST_NBYTES
#define PROTOCOL_VERSION "5.4"
/* How the session of every server's messages begins. */
#define SESSION_PREFIX "gpufetch-"

struct gpufi_session {
  EVP_MAC *mac;
  EVP_MAC_CTX *keyed; /* copied for each message */
  char id[sizeof(SESSION_PREFIX) + 32];
  uint64_t sent_count;
  gpufi_replay replay;
};

static gpuf_status refuse(gpuf_error *err, const char *reason) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "message refused: %s", reason);
}

static gpuf_status no_memory(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a message");
}

/* --- Session ------------------------------------------------------------------- */

gpuf_status gpufi_random_hex(char *text, size_t count, gpuf_error *err) {
  static const char digits[] = "0123456789abcdef";
  uint8_t bytes[64] = {0};
  if (count > sizeof(bytes) || !gpufi_random_bytes(bytes, count)) {
    return gpufi_fail(err, GPUF_ERR_IO, errno, "getrandom: %s", strerror(errno));
  }
  for (size_t i = 0; i < count; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  text[2 * count] = '\0';
  return GPUF_OK;
}

static bool key_mac(gpufi_session *session, const char *key) {
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string("digest", digest, 0),
      OSSL_PARAM_construct_end(),
  };
  session->mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
  session->keyed = session->mac ? EVP_MAC_CTX_new(session->mac) : NULL;
  return session->keyed &&
         EVP_MAC_init(session->keyed, (const unsigned char *)key, strlen(key), parameters) == 1;
}

gpuf_status gpufi_session_create(const char *key, gpufi_session **session, gpuf_error *err) {
  const size_t key_nbytes = strlen(key);
  if (key_nbytes == 0 || key_nbytes > GPUFI_WIRE_KEY_MAX_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the key has %zu bytes: 1 to %d are allowed",
                      key_nbytes, GPUFI_WIRE_KEY_MAX_NBYTES);
  }
  gpufi_session *created = calloc(1, sizeof(*created));
  if (!created) {
    return no_memory(err);
  }
  memcpy(created->id, SESSION_PREFIX, sizeof(SESSION_PREFIX));
  gpuf_status status = gpufi_random_hex(created->id + strlen(SESSION_PREFIX), 16, err);
  if (status == GPUF_OK) {
    status = gpufi_replay_init(&created->replay, GPUFI_WIRE_REPLAY_COUNT, err);
  }
  if (status == GPUF_OK && !key_mac(created, key)) {
    status = gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "this libcrypto offers no HMAC-SHA256, by which Jupyter's messages are "
                        "signed: is it restricted by a policy?");
  }
  if (status != GPUF_OK) {
    gpufi_session_destroy(created);
    return status;
  }
  *session = created;
  return GPUF_OK;
}

void gpufi_session_destroy(gpufi_session *session) {
  if (session) {
    EVP_MAC_CTX_free(session->keyed);
    EVP_MAC_free(session->mac);
    gpufi_replay_fini(&session->replay);
    free(session);
  }
}

const char *gpufi_session_id(const gpufi_session *session) {
  return session->id;
}

static gpuf_status digest_of(gpufi_session *session, const gpufi_frame *sections,
                             uint8_t digest[DIGEST_NBYTES], gpuf_error *err) {
  size_t nbytes = 0;
  EVP_MAC_CTX *mac = EVP_MAC_CTX_dup(session->keyed);
  bool done = mac != NULL;
  for (int i = 0; i < 4 && done; i++) {
    done = EVP_MAC_update(mac, sections[i].data, sections[i].nbytes) == 1;
  }
  done = done && EVP_MAC_final(mac, digest, &nbytes, DIGEST_NBYTES) == 1;
  EVP_MAC_CTX_free(mac);
  return done && nbytes == DIGEST_NBYTES ? GPUF_OK : no_memory(err);
}

static void digest_to_text(const uint8_t digest[DIGEST_NBYTES], char *text) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < DIGEST_NBYTES; i++) {
    *text++ = digits[digest[i] >> 4];
    *text++ = digits[digest[i] & 15];
  }
  *text = '\0';
}

gpuf_status gpufi_session_sign(gpufi_session *session, const gpufi_frame *sections,
                               char signature[GPUFI_WIRE_SIGNATURE_NBYTES], gpuf_error *err) {
  uint8_t digest[DIGEST_NBYTES] = {0};
  const gpuf_status status = digest_of(session, sections, digest, err);
  if (status == GPUF_OK) {
    digest_to_text(digest, signature);
  }
  return status;
}

/* --- Receiving ----------------------------------------------------------------- */

/* Parse the members of a section, but for one of the name `raw_name`, whose text goes to *raw.
 * What cannot be read is left out, and said in message->problem. */
static gpuf_status load_object(gpufi_message *message, const gpufi_frame *frame, json_t **object,
                               const char *raw_name, gpufi_raw *raw, gpuf_error *err) {
  gpufi_object split;
  gpufi_object_split((gpufi_raw){frame->data, frame->nbytes}, &split);
  message->problem = message->problem ? message->problem : split.problem;
  *object = json_object();
  if (!*object) {
    return no_memory(err);
  }
  for (size_t i = 0; i < split.count; i++) {
    if (raw_name && gpufi_raw_is_name(split.names[i], raw_name)) {
      *raw = split.values[i];
      continue;
    }
    const char *problem = NULL;
    json_t *name = gpufi_raw_parse(split.names[i], 0, &problem);
    json_t *value = gpufi_raw_parse(split.values[i], GPUFI_WIRE_JSON_DEPTH_MAX, &problem);
    const bool lost =
        name && value && json_object_set(*object, json_string_value(name), value) != 0;
    message->problem = message->problem ? message->problem : problem;
    json_decref(name);
    json_decref(value);
    if (lost) {
      return no_memory(err);
    }
  }
  return GPUF_OK;
}

/* A string of 1 to `max_nbytes` bytes, or NULL. */
static const char *header_text(const json_t *header, const char *name, size_t max_nbytes) {
  const json_t *value = json_object_get(header, name);
  const size_t nbytes = json_string_length(value); /* 0 if it is no string */
  return nbytes > 0 && nbytes <= max_nbytes ? json_string_value(value) : NULL;
}

/* Requests end in "_request"; a client's comm messages are of the same types as the server's. */
static bool is_request(const char *type) {
  static const char *const comm_types[] = {"comm_open", "comm_msg", "comm_close"};
  static const char suffix[] = "_request";
  const size_t nbytes = strlen(type), suffix_nbytes = sizeof(suffix) - 1;
  for (size_t i = 0; i < sizeof(comm_types) / sizeof(comm_types[0]); i++) {
    if (strcmp(type, comm_types[i]) == 0) {
      return true;
    }
  }
  return nbytes >= suffix_nbytes && strcmp(type + nbytes - suffix_nbytes, suffix) == 0;
}

/* What a server publishes is signed with the same key as requests, and everyone who subscribes
 * has it: sent back, it must not pass for a request. This holds for the messages of an earlier
 * server too, which a kernel manager may have given the same key. */
static gpuf_status check_sender(const gpufi_message *message, gpuf_error *err) {
  if (strncmp(message->session, SESSION_PREFIX, strlen(SESSION_PREFIX)) == 0) {
    return refuse(err, "it is a server's own message, sent back");
  }
  return is_request(message->type) ? GPUF_OK : refuse(err, "its msg_type is not that of a request");
}

static gpuf_status read_header(gpufi_message *message, gpuf_error *err) {
  const json_t *header = message->header;
  const json_t *version = json_object_get(header, "version");
  message->id = header_text(header, "msg_id", GPUFI_WIRE_ID_MAX_NBYTES);
  message->type = header_text(header, "msg_type", GPUFI_WIRE_ID_MAX_NBYTES);
  message->session = header_text(header, "session", GPUFI_WIRE_ID_MAX_NBYTES);
  if (!message->id || !message->type || !message->session) {
    return refuse(err, "its header lacks a msg_id, msg_type or session of 1 to 128 bytes");
  }
  if (version && (!json_is_string(version) || strncmp(json_string_value(version), "5.", 2) != 0)) {
    message->problem = "its protocol version is not 5.x";
  }
  return check_sender(message, err);
}

/* Index of the delimiter, or `count`. */
static size_t find_delimiter(const gpufi_frame *frames, size_t count) {
  const size_t nbytes = strlen(GPUFI_WIRE_DELIMITER);
  size_t i = 0;
  while (i < count && (frames[i].nbytes != nbytes ||
                       memcmp(frames[i].data, GPUFI_WIRE_DELIMITER, nbytes) != 0)) {
    i++;
  }
  return i;
}

static gpuf_status check_frames(const gpufi_frame *frames, size_t count, size_t *delimiter,
                                gpuf_error *err) {
  if (count > GPUFI_WIRE_FRAMES_MAX) {
    return refuse(err, "it has too many frames");
  }
  for (size_t i = 0; i < count; i++) {
    if (frames[i].nbytes > GPUFI_WIRE_FRAME_MAX_NBYTES) {
      return refuse(err, "one of its frames is too large");
    }
  }
  *delimiter = find_delimiter(frames, count);
  if (count - *delimiter < 6) {
    return refuse(err, "it is not a delimiter, a signature and four sections");
  }
  return GPUF_OK;
}

static gpuf_status check_signature(gpufi_session *session, const gpufi_frame *signature,
                                   uint8_t digest[DIGEST_NBYTES], gpuf_error *err) {
  char expected[GPUFI_WIRE_SIGNATURE_NBYTES];
  const gpuf_status status = digest_of(session, signature + 1, digest, err);
  if (status != GPUF_OK) {
    return status;
  }
  digest_to_text(digest, expected);
  if (signature->nbytes != sizeof(expected) - 1 ||
      CRYPTO_memcmp(signature->data, expected, sizeof(expected) - 1) != 0) {
    return refuse(err,
                  "its signature is wrong: it was signed with another key, as by a client of an "
                  "earlier server at this address, or altered");
  }
  return GPUF_OK;
}

gpuf_status gpufi_message_parse(gpufi_session *session, const gpufi_frame *frames, size_t count,
                                gpufi_message *message, gpuf_error *err) {
  uint8_t digest[DIGEST_NBYTES] = {0};
  size_t delimiter = 0;
  memset(message, 0, sizeof(*message));
  gpuf_status status = check_frames(frames, count, &delimiter, err);
  if (status != GPUF_OK) {
    return status;
  }
  const gpufi_frame *sections = frames + delimiter + 2;
  json_t **objects[] = {&message->header, &message->parent, &message->metadata, &message->content};
  status = check_signature(session, sections - 1, digest, err);
  for (int i = 0; i < 4 && status == GPUF_OK; i++) {
    status =
        load_object(message, &sections[i], objects[i], i == 3 ? "data" : NULL, &message->data, err);
  }
  if (status == GPUF_OK) {
    status = read_header(message, err);
  }
  /* Only clients with the key get this far, so that nobody else can fill the memory. */
  if (status == GPUF_OK && !gpufi_replay_note(&session->replay, digest)) {
    status = refuse(err, "its signature is a repetition");
  }
  if (status != GPUF_OK) {
    gpufi_message_fini(message);
    return status;
  }
  message->identities = frames;
  message->identity_count = delimiter;
  message->buffers = sections + 4;
  message->buffer_count = count - delimiter - 6;
  return GPUF_OK;
}

void gpufi_message_fini(gpufi_message *message) {
  json_decref(message->header);
  json_decref(message->parent);
  json_decref(message->metadata);
  json_decref(message->content);
  memset(message, 0, sizeof(*message));
}

/* The fraction of a second at the start of a text, in nanoseconds; *end is what follows. */
static int64_t fraction_ns(const char *text, const char **end) {
  int64_t ns = 0, unit_ns = 100000000;
  if (*text == '.') {
    for (text++; *text >= '0' && *text <= '9'; text++) {
      ns += (*text - '0') * unit_ns;
      unit_ns /= 10;
    }
  }
  *end = text;
  return ns;
}

bool gpufi_message_time(const gpufi_message *message, int64_t *time_ns) {
  const char *text = json_string_value(json_object_get(message->header, "date"));
  struct tm utc = {0};
  const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) : NULL;
  if (!end || utc.tm_year < 70 || utc.tm_year > 300) { /* 64 bits hold these in nanoseconds */
    return false;
  }
  const int64_t fraction = fraction_ns(end, &end);
  *time_ns = (int64_t)timegm(&utc) * 1000000000 + fraction;
  return strcmp(end, "Z") == 0 || strcmp(end, "+00:00") == 0;
}

/* --- Sending ------------------------------------------------------------------- */

static json_t *make_header(gpufi_session *session, const char *type) {
  char id[96], date[64];
  struct timespec now;
  struct tm utc;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  const size_t used = strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(date + used, sizeof(date) - used, ".%06ldZ", now.tv_nsec / 1000);
  snprintf(id, sizeof(id), "%s_%ld_%" PRIu64, session->id, (long)getpid(), session->sent_count++);
  return json_pack("{ss ss ss ss ss ss}", "msg_id", id, "msg_type", type, "username", "gpufetch",
                   "session", session->id, "date", date, "version", PROTOCOL_VERSION);
}

static void set_section(gpufi_frame *section, char *text) {
  *section = (gpufi_frame){text, text ? strlen(text) : 0};
}

gpuf_status gpufi_message_pack(gpufi_session *session, const char *type, json_t *parent,
                               char *content, gpufi_packed *packed, gpuf_error *err) {
  json_t *header = make_header(session, type);
  gpuf_status status = GPUF_OK;
  set_section(&packed->sections[0], gpufi_json_dump(header, JSON_COMPACT));
  set_section(&packed->sections[1], parent ? gpufi_json_dump(parent, JSON_COMPACT) : strdup("{}"));
  set_section(&packed->sections[2], strdup("{}"));
  set_section(&packed->sections[3], content);
  json_decref(header);
  for (int i = 0; i < 4 && status == GPUF_OK; i++) {
    status = packed->sections[i].data ? GPUF_OK : no_memory(err);
  }
  if (status == GPUF_OK) {
    status = gpufi_session_sign(session, packed->sections, packed->signature, err);
  }
  if (status != GPUF_OK) {
    gpufi_packed_fini(packed);
  }
  return status;
}

void gpufi_packed_fini(gpufi_packed *packed) {
  for (int i = 0; i < 4; i++) {
    free((void *)packed->sections[i].data);
  }
  memset(packed, 0, sizeof(*packed));
}
