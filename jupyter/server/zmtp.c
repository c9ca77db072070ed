#include "server/zmtp.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4, FLAGS = 7 };
#define SHORT_HEADER_NBYTES 2
#define SHORT_MAX_NBYTES 255
#define MECHANISM_NBYTES 20
#define PING_CONTEXT_MAX_NBYTES 16
#define KEPT_MAX_NBYTES 4096 /* of the memory for a frame, until the next one comes */

const uint8_t gpufi_zmtp_greeting[GPUFI_ZMTP_GREETING_NBYTES] = {
    [0] = 0xff, [9] = 0x7f, 3, 1, 'N', 'U', 'L', 'L',
};

size_t gpufi_zmtp_ready(uint8_t ready[GPUFI_ZMTP_READY_MAX_NBYTES], gpufi_zmtp_role role) {
  static const char publisher[] = "\4\x1a\5READY\13Socket-Type\0\0\0\4XPUB";
  static const char router[] = "\4\x1c\5READY\13Socket-Type\0\0\0\6ROUTER";
  const bool publishes = role == GPUFI_ZMTP_PUBLISHER;
  const size_t nbytes = (publishes ? sizeof(publisher) : sizeof(router)) - 1;
  memcpy(ready, publishes ? publisher : router, nbytes);
  return nbytes;
}

/* A body or a part of it. */
typedef struct bytes {
  const uint8_t *data;
  size_t nbytes;
} bytes;

static uint64_t read_be(const uint8_t *data, size_t nbytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < nbytes; i++) {
    value = value << 8 | data[i];
  }
  return value;
}

static bool starts_with(bytes body, const char *text) {
  const size_t nbytes = strlen(text);
  return body.nbytes >= nbytes && memcmp(body.data, text, nbytes) == 0;
}

/* Take a name or a value off the front, before which its size stands in `size_nbytes` bytes. */
static bool take_sized(bytes *rest, size_t size_nbytes, bytes *taken) {
  if (rest->nbytes < size_nbytes) {
    return false;
  }
  const uint64_t nbytes = read_be(rest->data, size_nbytes);
  if (nbytes > rest->nbytes - size_nbytes) {
    return false;
  }
  *taken = (bytes){rest->data + size_nbytes, (size_t)nbytes};
  *rest = (bytes){taken->data + nbytes, rest->nbytes - size_nbytes - (size_t)nbytes};
  return true;
}

static bool is_text(bytes value, const char *text) {
  return value.nbytes == strlen(text) && memcmp(value.data, text, value.nbytes) == 0;
}

static bool is_name(bytes name, const char *text) {
  return name.nbytes == strlen(text) &&
         strncasecmp((const char *)name.data, text, name.nbytes) == 0;
}

/* Whether sockets of a type connect to one of this role. */
static bool fits_type(gpufi_zmtp_role role, bytes type) {
  return role == GPUFI_ZMTP_PUBLISHER
             ? is_text(type, "SUB") || is_text(type, "XSUB")
             : is_text(type, "DEALER") || is_text(type, "REQ") || is_text(type, "ROUTER");
}

/* Whether a body is the command by which a client of this role's ends the handshake. An identity
 * that begins with 0 is the server's to give. */
static bool take_ready(gpufi_zmtp_role role, bytes body, bytes *identity) {
  bytes name, value;
  bool fits = false;
  *identity = (bytes){body.data, 0};
  if (!take_sized(&body, 1, &name) || !is_text(name, "READY")) {
    return false;
  }
  while (body.nbytes > 0) {
    if (!take_sized(&body, 1, &name) || !take_sized(&body, 4, &value)) {
      return false;
    }
    if (is_name(name, "Socket-Type")) {
      fits = fits_type(role, value);
    } else if (is_name(name, "Identity")) {
      *identity = value;
    }
  }
  return fits && identity->nbytes <= GPUFI_ZMTP_IDENTITY_MAX_NBYTES &&
         (identity->nbytes == 0 || identity->data[0] != 0);
}

static bool is_greeting(const uint8_t *data) {
  const size_t mechanism = 12; /* where its name is */
  return data[0] == 0xff && data[9] == 0x7f && data[10] >= 3 &&
         memcmp(data + mechanism, gpufi_zmtp_greeting + mechanism, MECHANISM_NBYTES) == 0;
}

static size_t max_nbytes(const gpufi_zmtp_reader *reader) {
  const bool is_small = reader->role == GPUFI_ZMTP_PUBLISHER ||
                        reader->state != GPUFI_ZMTP_AT_FRAMES || (reader->held[0] & FLAG_COMMAND);
  return is_small ? GPUFI_ZMTP_SMALL_MAX_NBYTES : reader->frame_max_nbytes;
}

/* How much of a greeting or a frame is needed to go on, as far as is known by now; 0 if the frame
 * is damaged or too large. */
static size_t needed_nbytes(const gpufi_zmtp_reader *reader) {
  const uint8_t *held = reader->held;
  if (reader->state == GPUFI_ZMTP_AT_GREETING) {
    return GPUFI_ZMTP_GREETING_NBYTES;
  }
  if (reader->held_nbytes < SHORT_HEADER_NBYTES) {
    return SHORT_HEADER_NBYTES;
  }
  const bool is_long = held[0] & FLAG_LONG;
  const size_t header_nbytes = is_long ? GPUFI_ZMTP_HEADER_MAX_NBYTES : SHORT_HEADER_NBYTES;
  if (held[0] & ~FLAGS) {
    return 0;
  }
  if (reader->held_nbytes < header_nbytes) {
    return header_nbytes;
  }
  const uint64_t nbytes = read_be(held + 1, header_nbytes - 1);
  return nbytes <= max_nbytes(reader) ? header_nbytes + (size_t)nbytes : 0;
}

static gpufi_zmtp_event command_event(gpufi_zmtp_role role, bytes body) {
  static const char subscribe[] = "\11SUBSCRIBE", cancel[] = "\6CANCEL", ping[] = "\4PING";
  gpufi_zmtp_event event = {GPUFI_ZMTP_OTHER, false, body.data, body.nbytes};
  const bool publishes = role == GPUFI_ZMTP_PUBLISHER;
  size_t name_nbytes = 0;
  if (publishes && starts_with(body, subscribe)) {
    event.kind = GPUFI_ZMTP_SUBSCRIBE;
    name_nbytes = sizeof(subscribe) - 1;
  } else if (publishes && starts_with(body, cancel)) {
    event.kind = GPUFI_ZMTP_CANCEL;
    name_nbytes = sizeof(cancel) - 1;
  } else if (starts_with(body, ping) && body.nbytes >= sizeof(ping) - 1 + 2) {
    event.kind = GPUFI_ZMTP_PING;
    name_nbytes = sizeof(ping) - 1 + 2; /* and for how long the client waits */
  }
  event.data += name_nbytes;
  event.nbytes -= name_nbytes;
  return event;
}

/* Until 3.1 subscriptions are messages. */
static gpufi_zmtp_event publishers_event(bytes body) {
  if (body.nbytes == 0 || body.data[0] > 1) {
    return (gpufi_zmtp_event){GPUFI_ZMTP_OTHER, false, body.data, body.nbytes};
  }
  return (gpufi_zmtp_event){body.data[0] == 1 ? GPUFI_ZMTP_SUBSCRIBE : GPUFI_ZMTP_CANCEL, false,
                            body.data + 1, body.nbytes - 1};
}

/* Tell what is held: a whole greeting or frame. */
static bool tell(gpufi_zmtp_reader *reader, gpufi_zmtp_event *event) {
  if (reader->state == GPUFI_ZMTP_AT_GREETING) {
    reader->state = GPUFI_ZMTP_AT_READY;
    event->kind = GPUFI_ZMTP_GREETING;
    return is_greeting(reader->held);
  }
  const bool is_command = reader->held[0] & FLAG_COMMAND;
  const size_t header_nbytes =
      reader->held[0] & FLAG_LONG ? GPUFI_ZMTP_HEADER_MAX_NBYTES : SHORT_HEADER_NBYTES;
  const bytes body = {reader->held + header_nbytes, reader->held_nbytes - header_nbytes};
  if (reader->state == GPUFI_ZMTP_AT_READY) {
    bytes identity;
    const bool is_ready = is_command && take_ready(reader->role, body, &identity);
    reader->state = GPUFI_ZMTP_AT_FRAMES;
    if (is_ready) {
      *event = (gpufi_zmtp_event){GPUFI_ZMTP_READY, false, identity.data, identity.nbytes};
    }
    return is_ready;
  }
  if (is_command) {
    *event = command_event(reader->role, body);
  } else if (reader->role == GPUFI_ZMTP_PUBLISHER) {
    *event = publishers_event(body);
  } else {
    *event =
        (gpufi_zmtp_event){GPUFI_ZMTP_FRAME, reader->held[0] & FLAG_MORE, body.data, body.nbytes};
  }
  return true;
}

/* Make room for `nbytes` in all, of which most have come. */
static bool reserve(gpufi_zmtp_reader *reader, size_t nbytes) {
  if (nbytes <= reader->capacity) {
    return true;
  }
  const size_t capacity = nbytes < GPUFI_ZMTP_GREETING_NBYTES ? GPUFI_ZMTP_GREETING_NBYTES : nbytes;
  uint8_t *grown = realloc(reader->held, capacity);
  if (grown) {
    reader->held = grown;
    reader->capacity = capacity;
  }
  return grown != NULL;
}

void gpufi_zmtp_reader_fini(gpufi_zmtp_reader *reader) {
  free(reader->held);
  reader->held = NULL;
  reader->capacity = reader->held_nbytes = 0;
}

/* Forget what was told. */
static void begin_next(gpufi_zmtp_reader *reader) {
  if (reader->capacity > KEPT_MAX_NBYTES) {
    gpufi_zmtp_reader_fini(reader);
  }
  reader->is_whole = false;
  reader->held_nbytes = 0;
}

/* Take bytes until `needed` are held, or all. False without memory. */
static bool hold(gpufi_zmtp_reader *reader, size_t needed, const uint8_t **data, size_t *nbytes) {
  const size_t missing = needed - reader->held_nbytes;
  const size_t taken = *nbytes < missing ? *nbytes : missing;
  if (taken == 0) {
    return true;
  }
  const size_t least = reader->held_nbytes + taken;
  const size_t most = 2 * least < needed ? 2 * least : needed; /* seldom anew, and never far more */
  if (!reserve(reader, least <= reader->capacity ? least : most)) {
    return false;
  }
  memcpy(reader->held + reader->held_nbytes, *data, taken);
  reader->held_nbytes += taken;
  *data += taken;
  *nbytes -= taken;
  return true;
}

bool gpufi_zmtp_read(gpufi_zmtp_reader *reader, const uint8_t **data, size_t *nbytes,
                     gpufi_zmtp_event *event) {
  *event = (gpufi_zmtp_event){.kind = GPUFI_ZMTP_NOTHING};
  while (event->kind == GPUFI_ZMTP_NOTHING) {
    if (reader->is_whole) {
      begin_next(reader);
    }
    const size_t needed = needed_nbytes(reader);
    if (needed == 0 || !hold(reader, needed, data, nbytes)) {
      return false;
    }
    if (reader->held_nbytes < needed) {
      return true;
    }
    if (needed_nbytes(reader) == needed) { /* else the header was made whole, no more */
      reader->is_whole = true;
      if (!tell(reader, event)) {
        return false;
      }
    }
  }
  return true;
}

size_t gpufi_zmtp_header(uint8_t header[GPUFI_ZMTP_HEADER_MAX_NBYTES], uint64_t nbytes, bool more) {
  header[0] = more ? FLAG_MORE : 0;
  if (nbytes <= SHORT_MAX_NBYTES) {
    header[1] = (uint8_t)nbytes;
    return SHORT_HEADER_NBYTES;
  }
  header[0] |= FLAG_LONG;
  for (int i = 0; i < 8; i++) {
    header[1 + i] = (uint8_t)(nbytes >> (56 - 8 * i));
  }
  return GPUFI_ZMTP_HEADER_MAX_NBYTES;
}

size_t gpufi_zmtp_pong(uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES], const gpufi_zmtp_event *ping) {
  static const char name[] = "\4PONG";
  const size_t name_nbytes = sizeof(name) - 1;
  const size_t context_nbytes =
      ping->nbytes < PING_CONTEXT_MAX_NBYTES ? ping->nbytes : PING_CONTEXT_MAX_NBYTES;
  pong[0] = FLAG_COMMAND;
  pong[1] = (uint8_t)(name_nbytes + context_nbytes);
  memcpy(pong + SHORT_HEADER_NBYTES, name, name_nbytes);
  memcpy(pong + SHORT_HEADER_NBYTES + name_nbytes, ping->data, context_nbytes);
  return SHORT_HEADER_NBYTES + name_nbytes + context_nbytes;
}
