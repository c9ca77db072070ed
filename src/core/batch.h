/* A batch of chunks between a device, which encodes or decodes them, and pinned memory. With a few
 * batches in turns, one is coded while another crosses the link. */
#ifndef GPUFI_CORE_BATCH_H
#define GPUFI_CORE_BATCH_H

#include "core/channel.h"

/* Used by one thread at a time. Its memory is the channel's workspace on the device and a pinned
 * block on the host. */
typedef struct gpufi_batch {
  gpufi_channel *channel; /* its stream has the batch's work in order; NULL while empty */
  gpufi_chunks chunks;    /* of this round; the caller's to set */
  uint8_t *d_chunks;      /* for the caller's raw chunks, say; aligned to 256 bytes */
  const uint8_t *d_raw;   /* encoding: of this round */
  gpufi_chunk_place *d_places;
  uint8_t *d_encoded;
  uint32_t *d_verdicts;
  uint8_t *d_scratch;
  /* Pinned; places and own_bytes lie as d_places and d_encoded do, so that one copy takes both to
   * the device. */
  void *pinned;
  uint32_t *verdicts;
  gpufi_chunk_place *places;
  uint8_t *own_bytes;
  /* What gpufi_batch_send has brought: chunk i is at bytes + places[i].offset; where
   * places[i].nbytes is 0 it came as it is, chunks.raw_nbytes of it, since the encoder leaves its
   * form to the CPU. */
  uint8_t *bytes;
  size_t nbytes; /* in all, rounded up to 16 */
} gpufi_batch;

/* Memory for rounds of at most `chunks`, to encode or to decode, and `d_chunks_nbytes` at d_chunks.
 * Its pinned part may go over the pool's cap. End it with gpufi_batch_fini even when this fails. */
gpuf_status gpufi_batch_init(gpufi_batch *batch, const gpufi_backend *backend, gpuf_device device,
                             const gpufi_chunks *chunks, bool encodes, size_t d_chunks_nbytes,
                             gpuf_error *err);
/* Waits for the batch's work. A zeroed batch is allowed. */
void gpufi_batch_fini(gpufi_batch *batch);

/* Encoding. Enqueue it, of the chunks at `d_raw`, behind the work on the channel's stream. They
 * stay as they are until the round has ended. */
gpuf_status gpufi_batch_encode(gpufi_batch *batch, const void *d_raw, gpuf_error *err);
/* Once that is done, which this waits for: enqueue the transfer to pinned memory of
 * gpufi_chunks_encoded_nbytes() at `bytes`, or, NULL, of the batch's own. */
gpuf_status gpufi_batch_send(gpufi_batch *batch, uint8_t *bytes, gpuf_error *err);

/* Decoding. Enqueue the transfer of `places` and of the `nbytes` at `bytes`, pinned, that they are
 * in (own_bytes, say, or a caller's), decoding to `d_raw`, and the transfer of the verdicts. More
 * work may follow on the channel's stream; gpufi_batch_mark ends the round. */
gpuf_status gpufi_batch_decode(gpufi_batch *batch, const uint8_t *bytes, size_t nbytes, void *d_raw,
                               gpuf_error *err);
gpuf_status gpufi_batch_mark(const gpufi_batch *batch, gpuf_error *err);

/* Wait for what was enqueued last. */
gpuf_status gpufi_batch_wait(const gpufi_batch *batch, gpuf_error *err);
/* Whether gpufi_batch_send and gpufi_batch_wait would find the device done. */
gpuf_status gpufi_batch_ready(const gpufi_batch *batch, bool *ready, gpuf_error *err);

#endif
