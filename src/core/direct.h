/* Copies that the device carries out alone: every piece is enqueued at once, and no thread is
 * needed afterwards. Thread-safety: any thread, one at a time for each channel. */
#ifndef GPUFI_CORE_DIRECT_H
#define GPUFI_CORE_DIRECT_H

#include "core/channel.h"
#include "core/plan.h"

#define GPUFI_DIRECT_CHANNELS_MAX 3

/* Enqueue the whole copy on one stream, and record channel->finished behind it. A gather needs the
 * channel's scratch. */
gpuf_status gpufi_direct_enqueue(const gpufi_copy *copy, gpufi_channel *channel, gpuf_stream stream,
                                 gpuf_error *err);
/* Enqueue a gather on several channels in turn, so that one packs while another transfers.
 * channels[0] may be the caller's; as many more are acquired, up to GPUFI_DIRECT_CHANNELS_MAX in
 * all, as there are pieces and scratch for. The *count channels are the caller's afterwards, also
 * after a failure. */
gpuf_status gpufi_gather_enqueue(const gpufi_copy *copy, gpufi_channel **channels, int32_t *count,
                                 gpuf_error *err);
/* Enqueue the transfer of one piece, bytes [offset, offset + nbytes) as they travel, between the
 * device side and pinned `staging`, by the copy's route. A gather needs the channel's scratch. */
gpuf_status gpufi_piece_enqueue(const gpufi_copy *copy, gpufi_channel *channel, gpuf_stream stream,
                                size_t offset, size_t nbytes, void *staging, gpuf_error *err);

#endif
