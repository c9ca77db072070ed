/* The exporter's service: one thread that answers importers over an abstract Unix socket. It never
 * waits for an importer: one that does not read its replies is dropped. An importer's references
 * live as long as its connection: when it dies, the kernel closes the connection and the service
 * gives them back. A forked child closes the sockets, which would otherwise hold the references of
 * a process that has died. */
#ifndef GPUFI_SHARE_SERVICE_H
#define GPUFI_SHARE_SERVICE_H

#include "share/handle.h"

/* Start the service, once for each process, and fill what handles say of the process: process_id,
 * start_time and service. Any thread. */
gpuf_status gpufi_share_service_start(gpufi_share_fields *fields, gpuf_error *err);

#endif
