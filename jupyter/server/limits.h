/* The limits that hold with CurveZMQ and without it. */
#ifndef GPUFI_SERVER_LIMITS_H
#define GPUFI_SERVER_LIMITS_H

/* Messages that wait for one client; those that are published may be large. */
#define GPUFI_CLIENT_QUEUE_COUNT 64
#define GPUFI_SUBSCRIBER_QUEUE_COUNT 256
/* What waits to be sent when the server stops has so long to go. */
#define GPUFI_LINGER_MS 1000
/* A connection that has not said by then who it is, is closed. */
#define GPUFI_HANDSHAKE_MAX_MS 5000
/* Over tcp, a peer that has vanished, or takes nothing that is sent, is taken for dead. */
#define GPUFI_KEEPALIVE_IDLE_S 6
#define GPUFI_KEEPALIVE_INTERVAL_S 1
#define GPUFI_KEEPALIVE_COUNT 3
#define GPUFI_STALL_MAX_MS 6000

#endif
