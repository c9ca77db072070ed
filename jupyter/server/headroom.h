/* Whether the system has what a server is made of. libzmq ends the process when it cannot have a
 * descriptor, a thread or memory, so this is asked before libzmq is called. */
#ifndef GPUFI_SERVER_HEADROOM_H
#define GPUFI_SERVER_HEADROOM_H

#include <gpufetch/gpufetch.h>

/* Fails with GPUF_ERR_IO (descriptors) or GPUF_ERR_NO_MEMORY (threads, memory) and names the limit.
 * What is found is not kept: another thread of the program can still take it before libzmq does. */
gpuf_status gpufi_headroom_check(gpuf_error *err);

#endif
