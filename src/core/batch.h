/* A batch of chunks on its way from a device: encoded there, then carried into pinned memory. With
 * a few of them in turns, one is encoded while another crosses the link. */
#ifndef GPUFI_CORE_BATCH_H
#define GPUFI_CORE_BATCH_H

#include "core/lane.h"

/* Used by one thread at a time. */
typedef struct gpufi_batch {
  gpufi_lane *lane;     /* its stream has the batch's work in order; NULL while empty */
  gpufi_chunks chunks;  /* of this round */
  const uint8_t *d_raw; /* of this round */
  uint8_t *d_room;      /* for the caller to gather raw chunks in, aligned to 256 bytes */
  uint8_t *d_encoded;
  uint8_t *d_scratch;
  gpufi_chunk_place *d_places;
  uint8_t *own_bytes; /* pinned, as are the next two */
  /* Chunk i is at bytes + places[i].offset; where places[i].nbytes is 0 it came as it is,
   * chunks.raw_nbytes of it, since the encoder leaves its form to the CPU. */
  uint8_t *bytes;
  gpufi_chunk_place *places;
  size_t nbytes; /* that are there in all, rounded up to 16 */
} gpufi_batch;

/* Memory for rounds of at most `chunks`, and a room of `room_nbytes`. Its pinned part may go over
 * the pool's cap. End it with gpufi_batch_fini even when this fails. */
gpuf_status gpufi_batch_init(gpufi_batch *batch, const gpufi_backend *backend, gpuf_device device,
                             const gpufi_chunks *chunks, size_t room_nbytes, gpuf_error *err);
/* Waits for the batch's work. A zeroed batch is allowed. */
void gpufi_batch_fini(gpufi_batch *batch);

/* Enqueue the encoding of `chunks` at `d_raw`, behind the work on the lane's stream. Both stay as
 * they are until the round has ended. */
gpuf_status gpufi_batch_encode(gpufi_batch *batch, const gpufi_chunks *chunks, const void *d_raw,
                               gpuf_error *err);
/* Once it is encoded, which this waits for: enqueue the transfer to pinned memory of
 * gpufi_chunks_encoded_nbytes() at `bytes`, or, NULL, of the batch's own. Sets `nbytes`. */
gpuf_status gpufi_batch_send(gpufi_batch *batch, uint8_t *bytes, gpuf_error *err);
/* Wait for that: `bytes` and `places` hold the batch. */
gpuf_status gpufi_batch_wait(const gpufi_batch *batch, gpuf_error *err);
/* Whether gpufi_batch_send, then gpufi_batch_wait, would find the device done. */
gpuf_status gpufi_batch_ready(const gpufi_batch *batch, bool *ready, gpuf_error *err);

#endif
