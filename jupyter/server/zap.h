/* ZeroMQ's authentication protocol (ZAP, RFC 27): in each handshake ZeroMQ asks whether the peer
 * may connect. Here all may, as far as CurveZMQ lets them; what matters is the answer's user id, a
 * number that no other connection has, which ZeroMQ then gives with each message of the connection.
 * A descriptor does not tell connections apart: messages of one that has ended may still wait when
 * the next one has its descriptor. Belongs to the server's thread. */
#ifndef GPUFI_SERVER_ZAP_H
#define GPUFI_SERVER_ZAP_H

#include "server/peers.h"

#include <stdbool.h>
#include <zmq.h>

/* Make the socket on which ZeroMQ asks, before any socket of the context is bound; NULL and a
 * ZeroMQ errno value where that fails. The caller closes it. */
void *gpufi_zap_open(void *context);
/* Have ZeroMQ ask at the handshakes of a socket's peers, without CurveZMQ, too. */
bool gpufi_zap_require(void *socket);
/* Answer one question; false if there is none. */
bool gpufi_zap_answer(void *zap, gpufi_peers *peers);
/* The number of the connection that a frame has come on; 0 if it has none. */
uint64_t gpufi_zap_number(zmq_msg_t *frame);

#endif
