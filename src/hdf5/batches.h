/* Transfers of chunks that a device encodes or decodes, a batch at a time: what writing and reading
 * share. */
#ifndef GPUFI_HDF5_BATCHES_H
#define GPUFI_HDF5_BATCHES_H

#include "hdf5/batch.h"
#include "hdf5/transfer.h"

#define GPUFI_H5_BATCH_COUNT 3

/* Used by one thread. Zeroed before gpufi_h5_batches_init, but for what is the caller's. */
typedef struct gpufi_h5_batches {
  /* Ranges of the grid's chunks, one behind the other, that take turns with their batches, each of
   * which has chunks of one range: where each of them ends. NULL: all is one. The caller's. */
  const int64_t *range_ends;
  size_t range_count;
  size_t batch_max_nbytes; /* of raw chunks; 0: what suits the tensor. The caller's */
  /* Encoded chunks go to memory of the caller's, by gpufi_h5_batch_keep or with another `bytes`.
   * The batches have none on the host, and may be larger. The caller's */
  bool has_memory;
  size_t next_range; /* whose turn it is */
  int64_t round;     /* how many full batches of each have been before */

  gpufi_h5_session *session;
  const gpufi_h5_transfer *transfer;
  const gpufi_backend *backend;
  gpufi_chunks chunks;  /* a full batch */
  int64_t in_row_count; /* so many chunks, from the first on, lie in the tensor in a row, whole */
  int64_t total;        /* batches of the grid, or of all ranges */
  int count;            /* in flight at once, at most; batch i is batches[i % count] */
  gpufi_h5_batch batches[GPUFI_H5_BATCH_COUNT];
} gpufi_h5_batches;

/* The three steps that each batch takes; while it takes one, the next batches take those before.
 * `end` counts the chunks that the device left to the calling thread. */
typedef struct gpufi_h5_batch_steps {
  gpuf_status (*begin)(void *by, gpufi_h5_batch *b, gpuf_error *err);
  gpuf_status (*middle)(void *by, gpufi_h5_batch *b, gpuf_error *err);
  gpuf_status (*end)(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err);
} gpufi_h5_batch_steps;

/* Whether a device could encode or decode this; if not, the ring says what is wrong. */
bool gpufi_h5_batches_suit(const gpufi_h5_transfer *transfer);
/* GPUF_ERR_NO_DEVICE_MEMORY or GPUF_ERR_NO_MEMORY where there is too little for it. Work on the
 * batches' streams comes after what is pending on the tensor's stream. Call gpufi_h5_batches_fini
 * even when this fails. */
gpuf_status gpufi_h5_batches_init(gpufi_h5_batches *all, gpufi_h5_session *session,
                                  const gpufi_h5_transfer *transfer, gpuf_error *err);
/* Waits for the device. */
void gpufi_h5_batches_fini(gpufi_h5_batches *all);
/* Let all batches take the steps, unless `status`, that of their preparation, is a failure. Stops
 * early where the device leaves too many chunks of one batch, or has too little memory: chunks
 * [0, *done) have taken all steps, and the others are for the ring. With several ranges, *done says
 * only whether any chunk has. `by` is handed to the steps. */
gpuf_status gpufi_h5_batches_run(gpufi_h5_batches *all, gpuf_status status,
                                 const gpufi_h5_batch_steps *steps, void *by, int64_t *done,
                                 gpuf_error *err);
/* Let the batch's raw chunks be the tensor's own bytes, if it has them as the device takes them:
 * one behind the other, whole, in a row. Else they are at d_raw, to be copied. */
gpuf_status gpufi_h5_batches_find_chunks(const gpufi_h5_batches *all, gpufi_h5_batch *b,
                                         gpuf_error *err);
/* Enqueue a copy between two tensors of one shape on the device, on the batch's stream. */
gpuf_status gpufi_h5_batch_copy(const gpufi_h5_batches *all, const gpufi_h5_batch *b,
                                const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_error *err);

/* Writing, the first of the steps: gather the batch's chunks from the tensor where they do not lie
 * there as they are encoded, and encode them. */
gpuf_status gpufi_h5_batches_encode(const gpufi_h5_batches *all, gpufi_h5_batch *b,
                                    gpuf_error *err);

/* Transfer chunks [0, *done) by the device, which may be none of them. Not entered, before or
 * after. */
gpuf_status gpufi_h5_batches_read(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                  int64_t *done, gpuf_error *err);
gpuf_status gpufi_h5_batches_write(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                   int64_t *done, gpuf_error *err);

#endif
