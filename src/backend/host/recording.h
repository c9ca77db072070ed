/* What an event of the host backend records: that the work on a stream up to some item has ended.
 */
#ifndef GPUFI_BACKEND_HOST_RECORDING_H
#define GPUFI_BACKEND_HOST_RECORDING_H

#include <gpufetch/gpufetch.h>

typedef struct gpufi_host_recording gpufi_host_recording;

/* One that is not done, which the caller holds; NULL without memory. It is freed when the event,
 * the item that records it and those who wait for it let go. */
gpufi_host_recording *gpufi_host_recording_create(void);
void gpufi_host_recording_hold(gpufi_host_recording *r);
void gpufi_host_recording_release(gpufi_host_recording *r);

/* The work before it has ended, with this error or none. */
void gpufi_host_recording_complete(gpufi_host_recording *r, const gpuf_error *error);
bool gpufi_host_recording_is_done(gpufi_host_recording *r);
/* Wait until it is done; the error of the work before it. */
gpuf_error gpufi_host_recording_await(gpufi_host_recording *r);

#endif
