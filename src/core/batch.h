/* A batch of chunks on its way between a device, which encodes or decodes it, and pinned memory. A
 * caller uses a few gpufi_batch in turn, each for one batch after another, which are its rounds:
 * while one is coded, another crosses the link. */
#ifndef GPUFI_CORE_BATCH_H
#define GPUFI_CORE_BATCH_H

#include "core/channel.h"

/* Used by one thread at a time. Its memory is the channel's workspace on the device and a pinned
 * buffer on the host. */
typedef struct gpufi_batch {
  gpufi_channel *channel; /* its stream orders the batch's work; NULL while empty */
  gpufi_chunks chunks;    /* of this round; set by the caller */
  uint8_t *d_chunks;      /* memory for the caller's raw chunks; aligned to 256 bytes */
  const uint8_t *d_raw;   /* the raw chunks that are encoded in this round */
  gpufi_chunk_place *d_places;
  uint8_t *d_encoded;
  uint32_t *d_verdicts;
  uint8_t *d_scratch;
  /* Pinned. `places` and `own_bytes` lie as d_places and d_encoded do, so that one copy takes both
   * to the device. */
  void *pinned;
  uint32_t *verdicts;
  gpufi_chunk_place *places;
  uint8_t *own_bytes;
  /* The result of gpufi_batch_send: chunk i is at bytes + places[i].offset. If places[i].nbytes is
   * 0, it is raw, and chunks.raw_nbytes long: the device leaves its encoding to the CPU. */
  uint8_t *bytes;
  size_t nbytes; /* at `bytes` in all, rounded up to 16 */
} gpufi_batch;

/* Allocate memory for rounds of at most `chunks`, to encode or to decode, and `d_chunks_nbytes` at
 * d_chunks. The pinned buffer may go over the pool's cap. The batch must be ended with
 * gpufi_batch_fini even if this fails. */
gpuf_status gpufi_batch_init(gpufi_batch *batch, const gpufi_backend *backend, gpuf_device device,
                             const gpufi_chunks *chunks, bool encodes, size_t d_chunks_nbytes,
                             gpuf_error *err);
/* Waits for the batch's work. A zeroed batch is allowed. */
void gpufi_batch_fini(gpufi_batch *batch);

/* Encode, first step: enqueue encoding the chunks at `d_raw`, behind the work on the channel's
 * stream. The chunks must stay unchanged until the round has ended. */
gpuf_status gpufi_batch_encode(gpufi_batch *batch, const void *d_raw, gpuf_error *err);
/* Second step: wait for the encoding, and enqueue the transfer to `bytes`, which is pinned memory
 * of gpufi_chunks_encoded_nbytes(); NULL means the batch's own. */
gpuf_status gpufi_batch_send(gpufi_batch *batch, uint8_t *bytes, gpuf_error *err);

/* Decode: enqueue the transfer of `places` and of the `nbytes` encoded bytes that they point into,
 * which are pinned and may be the batch's own_bytes; decoding to `d_raw`; and the transfer of the
 * verdicts. The caller may enqueue more on the channel's stream; gpufi_batch_mark ends the round.
 */
gpuf_status gpufi_batch_decode(gpufi_batch *batch, const uint8_t *bytes, size_t nbytes, void *d_raw,
                               gpuf_error *err);
gpuf_status gpufi_batch_mark(const gpufi_batch *batch, gpuf_error *err);

/* Wait for the work that was enqueued by the step before. */
gpuf_status gpufi_batch_wait(const gpufi_batch *batch, gpuf_error *err);
/* Whether that work is done, so that gpufi_batch_send and gpufi_batch_wait need not wait. */
gpuf_status gpufi_batch_ready(const gpufi_batch *batch, bool *ready, gpuf_error *err);

#endif
