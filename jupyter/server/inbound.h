/* What the client of a link sends: the handshake, messages, subscriptions, pings. */
#ifndef GPUFI_SERVER_INBOUND_H
#define GPUFI_SERVER_INBOUND_H

#include "server/events.h"
#include "server/links.h"

/* Take what one read has brought. NULL, or why the connection cannot go on; it may have ended. */
const char *gpufi_inbound_take(gpufi_links *links, gpufi_link *link, const uint8_t *data,
                               size_t nbytes, const gpufi_events *events);

#endif
