/* What the core asks of a kind of device. One table, two implementations: cuda and host.
 *
 * Thread-safety: every entry may be called from any thread. Streams order the work given to them;
 * two threads that share a stream order their calls themselves.
 * Errors: a failure names the device call that failed. Failures of asynchronous work surface at
 * event_wait or stream_synchronize. */
#ifndef GPUFI_BACKEND_BACKEND_H
#define GPUFI_BACKEND_BACKEND_H

#include "backend/codec.h"
#include "backend/gather.h"
#include "backend/packing.h"
#include "backend/reduce.h"

typedef struct gpufi_event gpufi_event;

typedef enum gpufi_direction { GPUFI_TO_HOST, GPUFI_TO_DEVICE } gpufi_direction;

/* Rows of one length at a pitch of their own on either side, each pitch >= row_nbytes > 0. */
typedef struct gpufi_rows {
  void *dst;
  const void *src;
  size_t dst_pitch_nbytes;
  size_t src_pitch_nbytes;
  size_t row_nbytes;
  size_t row_count;
} gpufi_rows;

#define GPUFI_IPC_NAME_NBYTES 64
#define GPUFI_IPC_IDENTITY_NBYTES 16

/* An allocation as another process can open it. Every byte is defined, because handles carry it. */
typedef struct gpufi_ipc_allocation {
  void *d_base;                        /* exporter's address of the allocation's start */
  size_t nbytes;                       /* of the allocation */
  uint8_t name[GPUFI_IPC_NAME_NBYTES]; /* which the other process opens it by */
} gpufi_ipc_allocation;

typedef struct gpufi_backend {
  gpuf_device_kind kind;
  /* Whether all later calls fail once asynchronous work has failed. If not, stream_synchronize
   * gives a stream's failure to whoever calls it first, and clears it. */
  bool fails_for_good;

  /* Number of devices (> 0), or GPUF_ERR_NO_DEVICE and why. Cheap after the first call. */
  gpuf_status (*device_count)(int32_t *count, gpuf_error *err);
  /* *info is all zeros before; struct_nbytes is the caller's. */
  gpuf_status (*device_info)(int32_t device, gpuf_device_info *info, gpuf_error *err);
  /* The device whose memory `ptr` points into; GPUF_ERR_INVALID if it is none's. */
  gpuf_status (*device_of)(const void *ptr, int32_t *device, gpuf_error *err);

  /* nbytes > 0 and d_ptr != NULL here; the core handles the rest. */
  gpuf_status (*alloc)(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err);
  gpuf_status (*free)(int32_t device, void *d_ptr, gpuf_error *err);
  /* Wait for what is on the device's streams, those among them that are being destroyed: it may use
   * memory that is to be freed. NULL if `free` waits by itself. */
  void (*synchronize)(int32_t device);
  /* Give freed memory that is kept for reuse back to the driver. NULL if none is ever kept. */
  void (*trim)(void);

  /* Whether [ptr, ptr + nbytes) lies in one page-locked range, whoever locked it: a framework's
   * pinned memory, for example. NULL if only the pool page-locks. */
  bool (*is_pinned)(int32_t device, const void *ptr, size_t nbytes);
  /* Page-lock [ptr, ptr + nbytes) for every device of this kind; `device` is one that is in use
   * anyway, so that no other is woken for it. */
  gpuf_status (*pin)(int32_t device, void *ptr, size_t nbytes, gpuf_error *err);
  void (*unpin)(int32_t device, void *ptr);

  /* The work of an `is_urgent` stream comes before that of others which waits for the same
   * processors. */
  gpuf_status (*stream_create)(int32_t device, bool is_urgent, gpuf_stream *stream,
                               gpuf_error *err);
  /* Waits for its work. The failure of it is returned, and the stream is destroyed all the same. */
  gpuf_status (*stream_destroy)(int32_t device, gpuf_stream stream, gpuf_error *err);
  gpuf_status (*stream_synchronize)(int32_t device, gpuf_stream stream, gpuf_error *err);
  /* Wait for its work, and leave the failure of it to whoever synchronizes. */
  void (*stream_drain)(int32_t device, gpuf_stream stream);

  gpuf_status (*event_create)(int32_t device, gpufi_event **event, gpuf_error *err);
  void (*event_destroy)(int32_t device, gpufi_event *event);
  gpuf_status (*event_record)(int32_t device, gpufi_event *event, gpuf_stream stream,
                              gpuf_error *err);
  /* An event that was never recorded is done. */
  gpuf_status (*event_wait)(int32_t device, gpufi_event *event, gpuf_error *err);
  gpuf_status (*event_query)(int32_t device, gpufi_event *event, bool *done, gpuf_error *err);
  /* If `inherits`, work before the event that fails has failed for the stream, too. */
  gpuf_status (*stream_wait_event)(int32_t device, gpuf_stream stream, gpufi_event *event,
                                   bool inherits, gpuf_error *err);

  /* Asynchronous from here on. The host side of a copy is pinned. */
  gpuf_status (*copy)(int32_t device, void *dst, const void *src, size_t nbytes,
                      gpufi_direction direction, gpuf_stream stream, gpuf_error *err);
  gpuf_status (*copy_2d)(int32_t device, const gpufi_rows *rows, gpufi_direction direction,
                         gpuf_stream stream, gpuf_error *err);
  /* All bytes to 0. */
  gpuf_status (*clear)(int32_t device, void *d_ptr, size_t nbytes, gpuf_stream stream,
                       gpuf_error *err);
  gpuf_status (*pack)(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                      gpuf_error *err);
  gpuf_status (*unpack)(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                        gpuf_error *err);
  /* Copies within the device, none of which overlaps another's destination. `copies` is not needed
   * after the call. */
  gpuf_status (*gather)(int32_t device, const gpufi_flat_copy *copies, size_t count,
                        gpuf_stream stream, gpuf_error *err);

  /* Between processes (ipc.c). The identity is the same in every process of the machine. */
  gpuf_status (*ipc_identity)(int32_t device, uint8_t *identity, gpuf_error *err);
  /* The allocation that `d_ptr` lies in; GPUF_ERR_UNSUPPORTED and the remedy if it cannot be
   * passed on. */
  gpuf_status (*ipc_export)(int32_t device, const void *d_ptr, gpufi_ipc_allocation *allocation,
                            gpuf_error *err);
  /* A descriptor that an importer needs besides the name, or -1. The backend keeps it. */
  int (*ipc_descriptor)(void);
  /* Open another process's allocation, by name and nbytes, both checked here, as is `descriptor`
   * (the caller's, or -1). A process does not open its own allocations. */
  gpuf_status (*ipc_open)(int32_t device, const gpufi_ipc_allocation *allocation, int descriptor,
                          void **d_base, gpuf_error *err);
  /* Waits for the device's work first. */
  gpuf_status (*ipc_close)(int32_t device, void *d_base, gpuf_error *err);

  /* The scratch that a reduction needs. */
  size_t (*reduce_scratch_nbytes)(const gpufi_reduce *job, const void *d_base);
  /* Fill the result at `d_result` (backend/reduce.h says what is in it); it and `d_scratch`
   * are aligned to 64 bytes. The job stays valid until the work is done. */
  gpuf_status (*reduce)(int32_t device, const gpufi_reduce *job, const void *d_base, void *d_result,
                        void *d_scratch, gpuf_stream stream, gpuf_error *err);

  /* Batches of chunks (backend/codec.h). The scratch that encoding and decoding need; its address
   * is a multiple of 64, as are those of the raw and the encoded chunks. */
  size_t (*encode_scratch_nbytes)(const gpufi_chunks *chunks);
  size_t (*decode_scratch_nbytes)(const gpufi_chunks *chunks);
  /* Encode into gpufi_chunks_encoded_nbytes() bytes. Fills in GPUFI_CHUNKS_PLACE_COUNT places; a
   * place of 0 bytes means that the chunk is left to gpufi_codec_encode. GPUF_ERR_UNSUPPORTED
   * where the device has too little shared memory for it. */
  gpuf_status (*encode)(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                        void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                        gpuf_stream stream, gpuf_error *err);
  /* Decode `count` chunks and set the verdict on each, GPUFI_CHUNK_...: the chunks and their places
   * are untrusted input. The raw bytes of a chunk that is not done are indeterminate.
   * GPUF_ERR_UNSUPPORTED where the device has too little shared memory for it. */
  gpuf_status (*decode)(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                        size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                        uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream, gpuf_error *err);
} gpufi_backend;

extern const gpufi_backend gpufi_backend_cuda; /* a stub in a build without CUDA */
extern const gpufi_backend gpufi_backend_host;

#endif
