/* Copies that the device carries out alone: every piece is enqueued at once, and no thread is
 * needed afterwards. Thread-safety: any thread, one at a time for each channel. */
#ifndef GPUFI_CORE_DIRECT_H
#define GPUFI_CORE_DIRECT_H

#include "core/channel.h"
#include "core/plan.h"

#define GPUFI_DIRECT_CHANNELS_MAX 3

/* On one stream; a gather needs the channel's scratch. */
gpuf_status gpufi_direct_enqueue(const gpufi_copy *copy, gpufi_channel *channel, gpuf_stream stream,
                                 gpuf_error *err);
/* A gather from several channels in turns: one packs while another transfers. Takes as many more of
 * them, up to GPUFI_DIRECT_CHANNELS_MAX, as there are pieces and scratch for; *count channels are
 * the caller's afterwards, also on failure. */
gpuf_status gpufi_gather_enqueue(const gpufi_copy *copy, gpufi_channel **channels, int32_t *count,
                                 gpuf_error *err);
/* Enqueue the transfer of bytes [offset, offset + nbytes) (as they travel) between the device side
 * and pinned `staging`, by the copy's route; a gather needs the channel's scratch. */
gpuf_status gpufi_piece_enqueue(const gpufi_copy *copy, gpufi_channel *channel, gpuf_stream stream,
                                size_t offset, size_t nbytes, void *staging, gpuf_error *err);
/* Enqueue packing `count` elements of the device side, cast if need be, at `d_packed`; or, to a
 * device, unpacking them. */
gpuf_status gpufi_repack_enqueue(const gpufi_copy *copy, void *d_packed, gpuf_stream stream,
                                 int64_t first, int64_t count, gpuf_error *err);

#endif
