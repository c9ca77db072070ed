#include "core/coded_plan.h"

#include "base/arithmetic.h"
#include "base/system.h"

#define CHUNK_NBYTES ((size_t)1 << 20)
#define CHUNK_NBYTES_MAX ((size_t)32 << 20) /* the batches of longer ones would fill the device */
#define BATCH_NBYTES ((size_t)16 << 20)
#define BATCH_CHUNKS_MAX                                                                           \
  4096 /* of smaller chunks, places and verdicts would take too much memory */
/* A small tensor is cut into this many batches at least, so that encoding, transfer and decoding
 * overlap. */
#define BATCH_COUNT_MIN 8

/* The least number of rows after which the next one begins at a multiple of 16 bytes. */
static size_t align_rows(size_t row_nbytes) {
  size_t rows = 1;
  while (rows * row_nbytes % GPUFI_CODED_ALIGN_NBYTES != 0) {
    rows *= 2;
  }
  return rows;
}

/* A row holds as many of the innermost axes as fit a chunk; the axes outside of them count as one.
 * A chunk is a number of rows, and only the last chunk has fewer. */
gpuf_status gpufi_coded_plan(gpufi_copy *copy, const gpuf_tensor *host_side,
                             const gpuf_copy_options *options, gpuf_error *err) {
  const size_t asked = options->piece_nbytes ? options->piece_nbytes : CHUNK_NBYTES;
  const size_t target = gpufi_min_nbytes(asked, CHUNK_NBYTES_MAX);
  uint32_t inner[GPUFI_CODEC_NDIM_MAX];
  gpufi_chunk_shape shape = {.dtype = copy->host_dtype, .ndim = 1};
  size_t row_nbytes = copy->host_layout.element_nbytes;
  int32_t axis = host_side->ndim - 1;
  for (; axis >= 0 && shape.ndim < GPUFI_CODEC_NDIM_MAX; axis--) {
    const size_t length = (size_t)host_side->shape[axis];
    if (length > target / row_nbytes ||
        length * row_nbytes * align_rows(length * row_nbytes) > target) {
      break;
    }
    if (length > 1) {
      inner[shape.ndim++] = (uint32_t)length;
      row_nbytes *= length;
    }
  }
  const size_t step = align_rows(row_nbytes), row_count = copy->nbytes / row_nbytes;
  const size_t rows = target / row_nbytes / step * step;
  shape.dims[0] = (uint32_t)gpufi_min_nbytes(rows > 0 ? rows : step, row_count);
  for (int32_t i = 1; i < shape.ndim; i++) {
    shape.dims[i] = inner[shape.ndim - i];
  }
  const gpuf_status status = gpufi_chunks_init(&copy->chunks, &shape, 1, err);
  if (status == GPUF_OK) {
    const size_t chunk_count = (copy->nbytes - 1) / copy->chunks.raw_nbytes + 1;
    const size_t fitting =
        gpufi_min_nbytes(BATCH_NBYTES / copy->chunks.raw_nbytes, BATCH_CHUNKS_MAX);
    const size_t wanted = (chunk_count - 1) / BATCH_COUNT_MIN + 1;
    copy->chunks.count = fitting > 1 ? gpufi_min_nbytes(wanted, fitting) : 1;
    copy->thread_count = options->thread_count ? options->thread_count : gpufi_cpu_count();
    copy->thread_count = (int32_t)gpufi_min_nbytes(
        (size_t)copy->thread_count, gpufi_min_nbytes(chunk_count, GPUFI_COPY_THREADS_MAX));
  }
  return status;
}
