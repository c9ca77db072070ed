/* A batch of chunks on its way between pinned memory and a device, which encodes or decodes it. A
 * transfer uses a few gpufi_h5_batch in turn, each for one batch after another, which are its
 * rounds: while one is coded, another crosses the link. */
#ifndef GPUFI_HDF5_BATCH_H
#define GPUFI_HDF5_BATCH_H

#include "core/channel.h"

#define GPUFI_H5_BATCH_FILL_NBYTES 16

/* Used by one thread at a time. Its memory is the channel's workspace on the device and a pinned
 * buffer on the host. */
typedef struct gpufi_h5_batch {
  gpufi_channel *channel; /* its stream orders the batch's work; NULL while empty */
  /* Of this round; set by the caller. */
  gpufi_chunks chunks;
  int64_t first;         /* index of the first chunk in the grid */
  size_t encoded_nbytes; /* to decode: of `bytes`, in use */
  uint8_t *d_chunks;     /* the raw chunks: at d_raw, or where the tensor has them */
  /* On the device, each aligned to 256 bytes. */
  uint8_t *d_raw;   /* room for the raw chunks: the caller's to fill before encoding and to take
                       away after decoding */
  uint8_t *d_spare; /* one raw chunk, for the caller to use */
  uint8_t *d_fill;  /* GPUFI_H5_BATCH_FILL_NBYTES, set by gpufi_h5_batch_set_fill */
  gpufi_chunk_place *d_places;
  uint8_t *d_encoded;
  uint32_t *d_verdicts;
  uint8_t *d_scratch;
  /* Pinned. Chunk i crosses at bytes + places[i].offset. If places[i].nbytes is 0, it is raw, and
   * chunks.raw_nbytes long: its encoding is left to the CPU, or it was never encoded. `places` and
   * `bytes` lie as d_places and d_encoded do, so that one copy takes both to the device. */
  void *pinned;
  uint32_t *verdicts;
  gpufi_chunk_place *places;
  uint8_t *bytes; /* gpufi_chunks_encoded_nbytes() */
} gpufi_h5_batch;

/* What memory a batch has. */
typedef struct gpufi_h5_batch_use {
  bool encodes;   /* or decodes */
  bool has_raw;   /* room for raw chunks at d_raw; else they lie elsewhere on the device */
  bool has_bytes; /* pinned room for encoded chunks at `bytes` */
} gpufi_h5_batch_use;

/* Allocate memory for rounds of at most `chunks`. The pinned buffer may go over the pool's cap. The
 * batch, which is zeroed before, must be ended with gpufi_h5_batch_fini
 * even if this fails. */
gpuf_status gpufi_h5_batch_init(gpufi_h5_batch *batch, const gpufi_backend *backend,
                                gpuf_device device, const gpufi_chunks *chunks,
                                const gpufi_h5_batch_use *use, gpuf_error *err);
/* Waits for the batch's work. A zeroed batch is allowed. */
void gpufi_h5_batch_fini(gpufi_h5_batch *batch);

/* Enqueue the transfer of an element to `d_fill`, before the first round of a batch that encodes.
 */
gpuf_status gpufi_h5_batch_set_fill(const gpufi_h5_batch *batch, const void *element,
                                    gpuf_error *err);

/* Encode, first step: enqueue encoding the chunks at `d_chunks`, behind the work on the channel's
 * stream. They must stay unchanged until the round has ended. */
gpuf_status gpufi_h5_batch_encode(const gpufi_h5_batch *batch, gpuf_error *err);
/* Second step: wait for the encoding, and enqueue the transfer to `bytes`. */
gpuf_status gpufi_h5_batch_send(const gpufi_h5_batch *batch, gpuf_error *err);
/* Once the encoding is done: how many of `bytes` the second step takes. */
size_t gpufi_h5_batch_sent_nbytes(const gpufi_h5_batch *batch);
/* Instead of it: enqueue a copy to `d_dst`, on the device and aligned to 16 bytes. The places
 * become those from `d_dst` on. */
gpuf_status gpufi_h5_batch_keep(const gpufi_h5_batch *batch, uint8_t *d_dst, gpuf_error *err);

/* Decode: enqueue the transfer of `places` and of the `encoded_nbytes` that they point into;
 * decoding to `d_chunks`; and the transfer of the verdicts. The caller may enqueue more on the
 * channel's stream; gpufi_h5_batch_mark ends the round. */
gpuf_status gpufi_h5_batch_decode(const gpufi_h5_batch *batch, gpuf_error *err);
gpuf_status gpufi_h5_batch_mark(const gpufi_h5_batch *batch, gpuf_error *err);

/* Wait for the work that was enqueued by the step before. */
gpuf_status gpufi_h5_batch_wait(const gpufi_h5_batch *batch, gpuf_error *err);

#endif
