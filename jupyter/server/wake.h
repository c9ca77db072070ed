/* An eventfd by which other threads wake the server's thread. */
#ifndef GPUFI_SERVER_WAKE_H
#define GPUFI_SERVER_WAKE_H

#include <gpufetch/gpufetch.h>

/* *fd is the caller's to close; -1 after a failure. */
gpuf_status gpufi_wake_open(int *fd, gpuf_error *err);
void gpufi_wake(int fd);       /* from any thread: make it readable */
void gpufi_wake_drain(int fd); /* on the server's thread: make it unreadable again */

#endif
