#include "server/zap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINT "inproc://zeromq.zap.01" /* the protocol's */
#define VERSION "1.0"
#define DOMAIN "gpufetch"

void *gpufi_zap_open(void *context) {
  void *zap = zmq_socket(context, ZMQ_REP);
  if (zap && zmq_bind(zap, ENDPOINT) != 0) {
    const int code = zmq_errno();
    zmq_close(zap);
    errno = code;
    return NULL;
  }
  return zap;
}

bool gpufi_zap_require(void *socket) {
  return zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, DOMAIN, strlen(DOMAIN)) == 0;
}

/* Receive a question, and keep its second frame, the question's id. */
static bool receive_question(void *zap, zmq_msg_t *id) {
  bool more = true;
  for (int i = 0; more; i++) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, zap, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&frame);
      return false;
    }
    more = zmq_msg_more(&frame);
    if (i == 1) {
      zmq_msg_move(id, &frame);
    }
    zmq_msg_close(&frame);
  }
  return true;
}

static bool send_text(void *zap, const char *text, int flags) {
  return zmq_send(zap, text, strlen(text), ZMQ_DONTWAIT | flags) >= 0;
}

bool gpufi_zap_answer(void *zap, gpufi_peers *peers) {
  char number[24];
  zmq_msg_t id;
  zmq_msg_init(&id);
  const bool asked = receive_question(zap, &id);
  if (asked) {
    gpufi_peers_refresh(peers); /* ZeroMQ tells that a connection came before it asks about it */
    snprintf(number, sizeof(number), "%" PRIu64, peers->next_number++);
    /* What does not arrive ends the handshake, for want of time. */
    (void)(send_text(zap, VERSION, ZMQ_SNDMORE) && zmq_msg_send(&id, zap, ZMQ_SNDMORE) >= 0 &&
           send_text(zap, "200", ZMQ_SNDMORE) && send_text(zap, "OK", ZMQ_SNDMORE) &&
           send_text(zap, number, ZMQ_SNDMORE) && send_text(zap, "", 0));
  }
  zmq_msg_close(&id);
  return asked;
}

uint64_t gpufi_zap_number(zmq_msg_t *frame) {
  const char *number = zmq_msg_gets(frame, "User-Id");
  return number ? strtoull(number, NULL, 10) : 0;
}
