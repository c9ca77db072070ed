/* Any bytes into what reads a client's connection, a subscriber's and one to a router: after the
 * handshake and without it, at once and in pieces, which must tell the same. */
#include "server/zmtp.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#define FRAME_MAX_NBYTES 4096 /* of a message to a router */

typedef struct outcome {
  size_t count;
  uint64_t events; /* their kinds, sizes and bytes, mixed */
  bool is_refused;
} outcome;

static void note(outcome *told, const gpufi_zmtp_event *event) {
  uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES];
  if (event->nbytes > FRAME_MAX_NBYTES ||
      (event->kind == GPUFI_ZMTP_PING && gpufi_zmtp_pong(pong, event) > sizeof(pong))) {
    abort();
  }
  told->count++;
  told->events = told->events * 31 + event->kind;
  told->events = told->events * 31 + event->more;
  told->events = told->events * 31 + event->nbytes;
  for (size_t i = 0; i < event->nbytes; i++) {
    told->events = told->events * 31 + event->data[i];
  }
}

static void read_piece(gpufi_zmtp_reader *reader, const uint8_t *data, size_t nbytes,
                       outcome *told) {
  gpufi_zmtp_event event = {.kind = GPUFI_ZMTP_OTHER};
  while (!told->is_refused && event.kind != GPUFI_ZMTP_NOTHING) {
    told->is_refused = !gpufi_zmtp_read(reader, &data, &nbytes, &event);
    if (!told->is_refused && event.kind != GPUFI_ZMTP_NOTHING) {
      note(told, &event);
    }
  }
  if (!told->is_refused && nbytes > 0) {
    abort();
  }
}

static outcome read_in_pieces(gpufi_zmtp_role role, const uint8_t *data, size_t nbytes,
                              size_t piece_nbytes, bool is_ready) {
  static const char *const ready[] = {"\4\x19\5READY\13Socket-Type\0\0\0\3SUB",
                                      "\4\x19\5READY\13Socket-Type\0\0\0\3REQ"};
  outcome told = {0};
  gpufi_zmtp_reader reader = {.role = role, .frame_max_nbytes = FRAME_MAX_NBYTES};
  if (is_ready) {
    read_piece(&reader, gpufi_zmtp_greeting, GPUFI_ZMTP_GREETING_NBYTES, &told);
    read_piece(&reader, (const uint8_t *)ready[role], 27, &told);
  }
  for (size_t at = 0; at < nbytes && !told.is_refused; at += piece_nbytes) {
    read_piece(&reader, data + at, nbytes - at < piece_nbytes ? nbytes - at : piece_nbytes, &told);
    if (reader.capacity > 2 * (GPUFI_ZMTP_GREETING_NBYTES + nbytes)) {
      abort(); /* more memory than what has come asks for */
    }
  }
  gpufi_zmtp_reader_fini(&reader);
  return told;
}

static void check_role(gpufi_zmtp_role role, const uint8_t *data, size_t nbytes, bool is_ready) {
  const outcome whole = read_in_pieces(role, data, nbytes, nbytes, is_ready);
  for (size_t piece_nbytes = 1; piece_nbytes < 12; piece_nbytes += 5) {
    const outcome pieces = read_in_pieces(role, data, nbytes, piece_nbytes, is_ready);
    if (pieces.count != whole.count || pieces.events != whole.events ||
        pieces.is_refused != whole.is_refused) {
      abort();
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  for (int is_ready = 0; is_ready < 2; is_ready++) {
    check_role(GPUFI_ZMTP_PUBLISHER, data, nbytes, is_ready);
    check_role(GPUFI_ZMTP_ROUTER, data, nbytes, is_ready);
  }
  return 0;
}
