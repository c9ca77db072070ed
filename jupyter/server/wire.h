/* The Jupyter wire protocol 5.x without sockets: from frames to messages and back, and signatures.
 *
 * A session belongs to one thread. Frames are untrusted until their signature is checked; no JSON
 * is parsed before that. JSON that is damaged is untrusted but signed: whoever sent it waits for an
 * answer, so that it is a message all the same as long as its header says which one. */
#ifndef GPUFI_SERVER_WIRE_H
#define GPUFI_SERVER_WIRE_H

#include "comm/object.h"

#include <gpufetch/gpufetch.h>

/* Limits. A message beyond one of them is refused as a whole. */
#define GPUFI_WIRE_FRAMES_MAX 64
#define GPUFI_WIRE_FRAME_MAX_NBYTES ((size_t)256 << 10)
#define GPUFI_WIRE_JSON_DEPTH_MAX 32
#define GPUFI_WIRE_ID_MAX_NBYTES 128
/* How many signatures are remembered, so that a message that is sent again is refused; the oldest
 * is forgotten first. */
#define GPUFI_WIRE_REPLAY_COUNT 32768
#define GPUFI_WIRE_KEY_MAX_NBYTES 256
#define GPUFI_WIRE_SIGNATURE_NBYTES 65 /* hex digits and NUL */

typedef struct gpufi_frame {
  const void *data;
  size_t nbytes;
} gpufi_frame;

/* A key, by which messages are signed and checked, and a count of the messages that were made. */
typedef struct gpufi_session gpufi_session;

/* `key` is the connection file's, of 1 to GPUFI_WIRE_KEY_MAX_NBYTES bytes. */
gpuf_status gpufi_session_create(const char *key, gpufi_session **session, gpuf_error *err);
void gpufi_session_destroy(gpufi_session *session); /* NULL is allowed */
/* The text that identifies the session to clients; it lives as long as the session. */
const char *gpufi_session_id(const gpufi_session *session);

/* `count` random bytes as lowercase hex digits and NUL: `text` holds 2 * count + 1. */
gpuf_status gpufi_random_hex(char *text, size_t count, gpuf_error *err);

/* Sign the four sections of a message: header, parent header, metadata, content. */
gpuf_status gpufi_session_sign(gpufi_session *session, const gpufi_frame *sections,
                               char signature[GPUFI_WIRE_SIGNATURE_NBYTES], gpuf_error *err);

/* A received message. It owns the JSON; the frames that it was parsed from must outlive it. */
typedef struct gpufi_message {
  const gpufi_frame *identities; /* where a reply goes */
  size_t identity_count;
  json_t *header, *parent, *metadata, *content; /* objects, of the members that can be read */
  gpufi_raw data;                  /* the content's member `data`, which `content` is without */
  const char *problem;             /* why the message is to be answered by an error; else NULL */
  const char *id, *type, *session; /* of the header; within the limits above */
  const gpufi_frame *buffers;
  size_t buffer_count;
} gpufi_message;

/* Fails with GPUF_ERR_CORRUPT, and the reason, for frames that are no message, are too large, are
 * not signed with the session's key or were received before, for a header that does not say which
 * message it is, and for a message that is no request or was made by a server's session, this one
 * or another. On failure *message holds nothing. Any other damage is the message's `problem`. */
gpuf_status gpufi_message_parse(gpufi_session *session, const gpufi_frame *frames, size_t count,
                                gpufi_message *message, gpuf_error *err);
void gpufi_message_fini(gpufi_message *message);
/* When its sender made the message, in nanoseconds since 1970; false where the header does not say
 * so in UTC. */
bool gpufi_message_time(const gpufi_message *message, int64_t *time_ns);

/* A message to send. Its frames are the identities or the topic, the delimiter, the signature, the
 * sections. */
typedef struct gpufi_packed {
  char signature[GPUFI_WIRE_SIGNATURE_NBYTES];
  gpufi_frame sections[4]; /* owned */
} gpufi_packed;

#define GPUFI_WIRE_DELIMITER "<IDS|MSG>"

/* `parent` is the header of the message that this one answers, or NULL. Takes no reference to it,
 * but takes over `content`, from malloc: the text of a JSON object; NULL is an allocation that
 * failed. On failure *packed holds nothing. */
gpuf_status gpufi_message_pack(gpufi_session *session, const char *type, json_t *parent,
                               char *content, gpufi_packed *packed, gpuf_error *err);
void gpufi_packed_fini(gpufi_packed *packed);

#endif
