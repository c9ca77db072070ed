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

/* One process, the exporter, gives device memory to other processes of the same user on the same
 * machine, the importers, without a copy. The exporter calls gpuf_share and passes the handle on,
 * as bytes or as text, in any way that only its user can read. An importer calls gpuf_attach with
 * it. The first share of a process starts a thread that serves importers over a local socket; the
 * program never waits for that thread.
 *
 * A share counts its importers. The memory must stay allocated until the share is withdrawn with
 * gpuf_unshare and the last importer has detached or died. gpuf_unshare and the release callback
 * say when that is so, and gpuf_free refuses the memory before. When the exporter ends, for
 * whatever reason, its shares end too: gpuf_attach and gpuf_attachment_check fail from then on.
 *
 * gpuf_share waits for the work that is pending on the tensor. Work that either process enqueues
 * later is not ordered with the other's. */

#define GPUF_SHARE_HANDLE_MAX_NBYTES 688
#define GPUF_SHARE_TEXT_MAX_NBYTES 1024 /* with the terminating NUL */

/* Names a share. Any process of the same user that has it can attach. It is a plain value, of which
 * the first `nbytes` bytes are defined; docs/sharing.md has their layout. */
typedef struct gpuf_share_handle {
  uint32_t nbytes;
  uint8_t bytes[GPUF_SHARE_HANDLE_MAX_NBYTES];
} gpuf_share_handle;

/* What a handle says. It may be forged: only gpuf_attach asks the exporter. */
typedef struct gpuf_share_info {
  size_t struct_nbytes;
  gpuf_tensor tensor;       /* data is NULL; device.index is the exporter's numbering */
  size_t allocation_nbytes; /* of the allocation that the elements lie in */
  size_t offset_nbytes;     /* of element [0, ..., 0] in that allocation */
  uint64_t generation;      /* the number of the share among the exporter's, from 1 */
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
  bool readonly; /* goes into the handle as gpuf_share_info.readonly */
  /* Share a copy in C order, made on the device in memory that the share owns. The tensor's memory
   * is then needed only during the call, and may be of any kind that the device reads. */
  bool copy;
  /* Called once when the memory is no longer used, on any thread, with no lock held; NULL for none.
   * It may free the memory, but must not wait for another share. */
  void (*release)(void *release_arg);
  void *release_arg;
} gpuf_share_options;

#define GPUF_SHARE_OPTIONS_INIT {sizeof(gpuf_share_options), false, false, NULL, NULL}

/* Share the elements of `tensor`, in any layout, after waiting for the work that is pending on
 * tensor->stream. Importers can read and write the whole allocation that holds the elements.
 * `options` may be NULL.
 *
 * Some memory cannot be shared and is GPUF_ERR_UNSUPPORTED: managed memory, memory of
 * cudaMallocAsync or another memory pool, memory of the virtual memory API (cuMemMap), and memory
 * that is itself attached. options->copy shares a copy of it. After a failure, release is not
 * called. */
GPUF_API gpuf_status gpuf_share(const gpuf_tensor *tensor, const gpuf_share_options *options,
                                gpuf_share_handle *handle, gpuf_error *err);

/* Withdraw a share of this process, so that nobody can attach to it any more, and wait until the
 * last importer has gone. GPUF_OK means that the memory is no longer used. GPUF_ERR_TIMEOUT means
 * that after `timeout_ns` importers are left; 0 does not wait, and a negative value waits without
 * limit. *importer_count is their number then; `importer_count` may be NULL. The share stays
 * withdrawn, and the call may be repeated, also after it has returned GPUF_OK. */
GPUF_API gpuf_status gpuf_unshare(const gpuf_share_handle *handle, int64_t timeout_ns,
                                  int32_t *importer_count, gpuf_error *err);

/* How many attachments to a share of this process exist now. GPUF_ERR_STATE if the share has
 * ended. */
GPUF_API gpuf_status gpuf_share_importer_count(const gpuf_share_handle *handle,
                                               int32_t *importer_count, gpuf_error *err);

/* An importer's use of a share. Several threads may use an attachment at the same time, but
 * gpuf_detach must be the last call. */
typedef struct gpuf_attachment gpuf_attachment;

/* Open a share. *tensor then describes the exporter's memory, on the same device as this process
 * numbers it, with stream GPUF_STREAM_NONE. In the exporting process itself that is the original
 * memory. An allocation is opened once in a process, however many shares lie in it. The call fails
 * with
 *
 *   GPUF_ERR_CORRUPT      if the handle is truncated, altered, forged or of another version;
 *   GPUF_ERR_STATE        if the exporting process has ended or has withdrawn the share;
 *   GPUF_ERR_NO_DEVICE    if the GPU is not visible to this process;
 *   GPUF_ERR_UNSUPPORTED  if the exporter runs as another user or in another network namespace;
 *   GPUF_ERR_TIMEOUT      if the exporter does not answer within 10 seconds. */
GPUF_API gpuf_status gpuf_attach(const gpuf_share_handle *handle, gpuf_attachment **attachment,
                                 gpuf_tensor *tensor, gpuf_error *err);

/* End the use of the memory, after the work in flight on its device and after a gpuf_attach to the
 * same process that another thread waits in, and free the attachment. It is freed even if the call
 * fails, except in a forked child and in a kernel of the host backend (GPUF_ERR_STATE), where it is
 * left as it is. NULL is allowed. */
GPUF_API gpuf_status gpuf_detach(gpuf_attachment *attachment, gpuf_error *err);

/* GPUF_ERR_STATE once the exporting process has ended. The addresses stay mapped then, so that a
 * read does not fault, but the contents are indeterminate. The call takes one system call. */
GPUF_API gpuf_status gpuf_attachment_check(gpuf_attachment *attachment, gpuf_error *err);

/* Write a handle as one line of text, "gpufetch-share:1:" and base64url, for example to copy it
 * from one notebook to another. `text` has GPUF_SHARE_TEXT_MAX_NBYTES bytes. */
GPUF_API gpuf_status gpuf_share_to_text(const gpuf_share_handle *handle, char *text,
                                        gpuf_error *err);
/* Read a handle from text, which may have white space around it, and check it as
 * gpuf_share_describe does. */
GPUF_API gpuf_status gpuf_share_from_text(const char *text, gpuf_share_handle *handle,
                                          gpuf_error *err);
/* Check that a handle is well formed and tell what it says, without asking the exporter. */
GPUF_API gpuf_status gpuf_share_describe(const gpuf_share_handle *handle, gpuf_share_info *info,
                                         gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_SHARE_H */
