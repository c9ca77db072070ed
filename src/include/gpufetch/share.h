/* gpufetch: device memory shared between processes.
 *
 * The conventions are those of gpufetch.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef GPUFETCH_SHARE_H
#define GPUFETCH_SHARE_H

#include <gpufetch/gpufetch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Give device memory to other processes of the same user on the same machine, without a copy. The
 * exporter calls gpuf_share and passes the handle on, as bytes or as text, by any way that only
 * its user can read; the importer calls gpuf_attach. The first share of a process starts a thread
 * that serves importers over an abstract Unix socket; nothing waits for it.
 *
 * Lifetime: a share counts its importers. The memory must stay allocated until the share is
 * withdrawn (gpuf_unshare) and the last importer has detached or died, which gpuf_unshare and the
 * release callback tell; gpuf_free refuses a block before that. An exporter that ends, for
 * whatever reason, ends its shares: gpuf_attach and gpuf_attachment_check fail from then on.
 * Work that the exporter puts on the memory later is not ordered with the importer's. */

#define GPUF_SHARE_HANDLE_MAX_NBYTES 688
#define GPUF_SHARE_TEXT_MAX_NBYTES 1024 /* with the terminating NUL */

/* Names a share. A plain value; `bytes` are defined up to `nbytes` and the same on every machine
 * (docs/sharing.md). Whoever has it and runs as the same user can attach. */
typedef struct gpuf_share_handle {
  uint32_t nbytes;
  uint8_t bytes[GPUF_SHARE_HANDLE_MAX_NBYTES];
} gpuf_share_handle;

/* What a handle says of itself. Nothing of it is proven before gpuf_attach. */
typedef struct gpuf_share_info {
  size_t struct_nbytes;
  gpuf_tensor tensor;       /* data is NULL; device.index is the exporter's numbering */
  size_t allocation_nbytes; /* of the block that the elements lie in */
  size_t offset_nbytes;     /* of element [0, ..., 0] in that block */
  uint64_t generation;      /* counts the exporter's shares, from 1 */
  int64_t process_id;       /* the exporter's, in its own PID namespace */
  bool readonly;            /* the exporter asks for no writes; nothing enforces it */
} gpuf_share_info;

/* clang-format off */
#define GPUF_SHARE_INFO_INIT \
  {sizeof(gpuf_share_info), \
   {NULL, {GPUF_DEVICE_CPU, 0}, (gpuf_dtype)0, 0, {0}, {0}, GPUF_STREAM_NONE}, 0, 0, 0, 0, false}
/* clang-format on */

typedef struct gpuf_share_options {
  size_t struct_nbytes;
  bool readonly; /* for gpuf_share_info */
  /* Share a copy in C order, made on the device in memory that the share owns. The tensor's own
   * memory is needed no longer than the call, and may be of any kind that the device reads. */
  bool copy;
  /* Called once when nobody uses the memory any more, on any thread, with no lock held. It may
   * free the memory but not wait for another share. NULL for none. */
  void (*release)(void *release_arg);
  void *release_arg;
} gpuf_share_options;

#define GPUF_SHARE_OPTIONS_INIT {sizeof(gpuf_share_options), false, false, NULL, NULL}

/* Share the elements that `tensor` describes, in any layout, after waiting for the work that is
 * pending on tensor->stream. The whole block that holds them becomes readable and writable for
 * importers. `options` may be NULL. GPUF_ERR_UNSUPPORTED, naming the remedy, for memory that CUDA
 * cannot pass on: managed, from cudaMallocAsync or another memory pool, from the virtual memory
 * API (cuMemMap), and for memory that is itself attached; options->copy makes all of it fit. On
 * failure release is not called. */
GPUF_API gpuf_status gpuf_share(const gpuf_tensor *tensor, const gpuf_share_options *options,
                                gpuf_share_handle *handle, gpuf_error *err);

/* Withdraw a share of this process: later attempts to attach fail. Then wait until the last
 * importer is gone: GPUF_OK when nobody uses the memory, GPUF_ERR_TIMEOUT after `timeout_ns` (0 =
 * at once, < 0 = wait for ever) while importers are left, in *importer_count (nullable). The share
 * stays withdrawn, and the call may be repeated, also after the end. */
GPUF_API gpuf_status gpuf_unshare(const gpuf_share_handle *handle, int64_t timeout_ns,
                                  int32_t *importer_count, gpuf_error *err);

/* Attachments to a share of this process that exist now. GPUF_ERR_STATE for one that has ended. */
GPUF_API gpuf_status gpuf_share_importer_count(const gpuf_share_handle *handle,
                                               int32_t *importer_count, gpuf_error *err);

/* A use of another process's share. Calls on one attachment may run at the same time, but
 * gpuf_detach must be the last. */
typedef struct gpuf_attachment gpuf_attachment;

/* Open a share: *tensor describes the exporter's memory, on the same device under this process's
 * numbering, with stream NONE. In the exporting process itself it is the original memory. A block
 * is opened once per process, however many shares lie in it. Fails with
 *   GPUF_ERR_CORRUPT      the handle is truncated, altered, forged or of another version
 *   GPUF_ERR_STATE        the exporting process is gone, or has withdrawn the share
 *   GPUF_ERR_NO_DEVICE    the GPU is not visible to this process
 *   GPUF_ERR_UNSUPPORTED  the exporter runs as another user or in another network namespace
 *   GPUF_ERR_TIMEOUT      the exporter is stopped: it did not answer within 10 seconds */
GPUF_API gpuf_status gpuf_attach(const gpuf_share_handle *handle, gpuf_attachment **attachment,
                                 gpuf_tensor *tensor, gpuf_error *err);

/* Give the memory back, after the work in flight on its device; frees the attachment whatever is
 * returned, but in a forked child, where it stays as it is. NULL is allowed. */
GPUF_API gpuf_status gpuf_detach(gpuf_attachment *attachment, gpuf_error *err);

/* GPUF_ERR_STATE once the exporting process is gone. The addresses stay mapped then, so that a
 * read is no fault, but the contents mean nothing any more. Costs a system call. */
GPUF_API gpuf_status gpuf_attachment_check(gpuf_attachment *attachment, gpuf_error *err);

/* The handle as text, "gpufetch-share:1:" and base64url, to be copied between notebooks. `text`
 * holds GPUF_SHARE_TEXT_MAX_NBYTES. */
GPUF_API gpuf_status gpuf_share_to_text(const gpuf_share_handle *handle, char *text,
                                        gpuf_error *err);
/* Back, with white space around it allowed; checks what gpuf_share_describe checks. */
GPUF_API gpuf_status gpuf_share_from_text(const char *text, gpuf_share_handle *handle,
                                          gpuf_error *err);
/* Check that the handle is well formed, and say what it names. Asks nobody. */
GPUF_API gpuf_status gpuf_share_describe(const gpuf_share_handle *handle, gpuf_share_info *info,
                                         gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_SHARE_H */
