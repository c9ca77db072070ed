#include "backend.h"

#include "backend/cuda/codec/codec.h"
#include "backend/host/host.h"
#include "base/error.h"

typedef struct part {
  void *d_ptr;
  size_t nbytes;
} part;

enum { RAW, ENCODED, PLACES, VERDICTS, SCRATCH, PART_COUNT };

typedef struct job {
  gpufi_chunks chunks;
  part parts[PART_COUNT];
} job;

/* The parts' bytes as the stream's thread may touch them. */
static gpuf_status resolve(const job *j, void *bytes[PART_COUNT], gpuf_error *err) {
  for (int i = 0; i < PART_COUNT; i++) {
    const part p = j->parts[i];
    bytes[i] = p.nbytes ? gpufi_host_alias(p.d_ptr, p.nbytes) : NULL;
    if (p.nbytes && !bytes[i]) {
      return gpufi_fail(err, GPUF_ERR_DEVICE, 0, "part %d is not inside a live allocation", i);
    }
  }
  return GPUF_OK;
}

static gpuf_status encode_work(const void *args, gpuf_error *err) {
  const job *const j = args;
  void *bytes[PART_COUNT];
  const gpuf_status status = resolve(j, bytes, err);
  if (status == GPUF_OK) {
    gpufi_cuda_encode(&j->chunks, bytes[RAW], bytes[ENCODED], bytes[PLACES], bytes[SCRATCH], NULL);
  }
  return status;
}

static gpuf_status decode_work(const void *args, gpuf_error *err) {
  const job *const j = args;
  void *bytes[PART_COUNT];
  const gpuf_status status = resolve(j, bytes, err);
  if (status == GPUF_OK) {
    gpufi_cuda_decode(&j->chunks, bytes[ENCODED], j->parts[ENCODED].nbytes, bytes[PLACES],
                      bytes[RAW], bytes[VERDICTS], bytes[SCRATCH], NULL);
  }
  return status;
}

static size_t raw_nbytes(const gpufi_chunks *chunks) {
  return chunks->count * chunks->raw_pitch_nbytes;
}

static gpuf_status encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                          void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                          gpuf_stream stream, gpuf_error *err) {
  const job j = {
      *chunks,
      {[RAW] = {(void *)d_raw, raw_nbytes(chunks)},
       [ENCODED] = {d_encoded, gpufi_chunks_encoded_nbytes(chunks)},
       [PLACES] = {d_places, GPUFI_CHUNKS_PLACE_COUNT(chunks->count) * sizeof(*d_places)},
       [SCRATCH] = {d_scratch, gpufi_cuda_encode_scratch_nbytes(chunks)}}};
  return gpufi_host_enqueue(device, stream, encode_work, &j, sizeof(j), err);
}

static gpuf_status decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                          size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                          uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                          gpuf_error *err) {
  const job j = {*chunks,
                 {[RAW] = {d_raw, raw_nbytes(chunks)},
                  [ENCODED] = {(void *)d_encoded, encoded_nbytes},
                  [PLACES] = {(void *)d_places, chunks->count * sizeof(*d_places)},
                  [VERDICTS] = {d_verdicts, chunks->count * sizeof(*d_verdicts)},
                  [SCRATCH] = {d_scratch, gpufi_cuda_decode_scratch_nbytes(chunks)}}};
  return gpufi_host_enqueue(device, stream, decode_work, &j, sizeof(j), err);
}

const gpufi_backend *simt_backend(void) {
  static gpufi_backend backend;
  backend = gpufi_backend_host;
  backend.encode_scratch_nbytes = gpufi_cuda_encode_scratch_nbytes;
  backend.decode_scratch_nbytes = gpufi_cuda_decode_scratch_nbytes;
  backend.encode = encode;
  backend.decode = decode;
  return &backend;
}
