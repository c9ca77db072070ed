/* Whether the system has what a server is made of, and how many of the program's descriptors it may
 * use. With CurveZMQ, libzmq ends the process when it cannot have a descriptor, a thread or memory,
 * so this is asked before libzmq is called. */
#ifndef GPUFI_SERVER_HEADROOM_H
#define GPUFI_SERVER_HEADROOM_H

#include <gpufetch/gpufetch.h>

/* Fails with GPUF_ERR_IO (descriptors) or GPUF_ERR_NO_MEMORY (threads, memory) and names the limit.
 * What is found is not kept: another thread of the program can still take it before libzmq does. */
gpuf_status gpufi_headroom_check(gpuf_error *err);

/* How many connections a server takes if the options do not say: a quarter of RLIMIT_NOFILE. */
int32_t gpufi_headroom_connections(void);
/* The last eighth of the descriptors is left to the program. A new one is the lowest number that is
 * free: from this one on, fewer are left. */
int64_t gpufi_headroom_first_reserved(void);

#endif
