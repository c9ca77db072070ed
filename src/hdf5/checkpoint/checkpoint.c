/* The public calls that open, wait for and close a checkpoint writer. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/struct.h"
#include "hdf5/checkpoint/library.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/checkpoint/writer.h"

/* --- Opening ----------------------------------------------------------------- */

static gpuf_status check_options(const gpuf_checkpoint_options *options, gpuf_error *err) {
  if (options->keep_count < 0 || options->thread_count < 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "options.%s %d is negative",
                      options->keep_count < 0 ? "keep_count" : "thread_count",
                      (int)(options->keep_count < 0 ? options->keep_count : options->thread_count));
  }
  if (options->mode < GPUF_CHECKPOINT_AUTO || options->mode > GPUF_CHECKPOINT_PINNED) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "options.mode %d is not a gpuf_checkpoint_mode",
                      (int)options->mode);
  }
  if (options->shard_count > GPUFI_CHECKPOINT_SHARDS_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "options.shard_count is %zu; at most %zu are made",
                      options->shard_count, GPUFI_CHECKPOINT_SHARDS_MAX);
  }
  if (options->recycle && options->keep_count == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.recycle is set, and options.keep_count is 0: all checkpoints are "
                      "kept, and none expires that could be overwritten");
  }
  return GPUF_OK;
}

/* Where checkpoints go, and who may write them. */
static gpuf_status open_folder(gpuf_checkpoint *c, gpuf_error *err) {
  gpuf_status status =
      gpufi_checkpoint_folder_open(&c->folder, c->options.directory, c->options.prefix, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_folder_lock(&c->folder, err);
  }
  if (status == GPUF_OK) {
    c->member.lock_fd = c->folder.lock_fd;
    c->member.give_up = gpufi_checkpoint_give_up;
    gpufi_checkpoint_member_add(&c->member);
    status = gpufi_checkpoint_folder_sweep(&c->folder, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_shards_sweep(&c->folder, err);
  }
  return status;
}

static void destroy(gpuf_checkpoint *c) {
  if (c->folder.lock_fd >= 0) {
    gpufi_checkpoint_member_remove(&c->member);
  }
  gpufi_checkpoint_folder_close(&c->folder);
  gpufi_checkpoint_contents_clear(&c->contents);
  gpufi_checkpoint_snapshot_close(&c->snapshot);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
  pthread_mutex_destroy(&c->turn);
  free(c);
}

static gpuf_checkpoint *create(const gpuf_checkpoint_options *options) {
  gpuf_checkpoint *const c = calloc(1, sizeof(*c));
  if (c) {
    c->process_id = getpid();
    c->options = *options;
    c->folder.fd = c->folder.lock_fd = -1;
    c->writing.codec = options->uncompressed ? GPUF_H5_CODEC_NONE : GPUF_H5_CODEC_GPUFETCH;
    c->writing.thread_count = options->thread_count;
    c->writing.stop = &c->stop;
    c->report.struct_nbytes = sizeof(c->report);
    c->report.step = c->finished_step = -1;
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->lock, NULL);
    gpufi_condition_init(&c->changed);
  }
  return c;
}

gpuf_status gpuf_checkpoint_open(const gpuf_checkpoint_options *options,
                                 gpuf_checkpoint **checkpoint, gpuf_checkpoint_report *report,
                                 gpuf_error *err) {
  gpuf_checkpoint_options own;
  GPUFI_REQUIRE(options, err);
  GPUFI_REQUIRE(checkpoint, err);
  gpuf_status status =
      gpufi_struct_read(&own, sizeof(own), options, "GPUF_CHECKPOINT_OPTIONS_INIT", err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_check_report(report, err);
  }
  if (status == GPUF_OK) {
    status = check_options(&own, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_checkpoint *const c = create(&own);
  if (!c) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", sizeof(*c));
  }
  status = gpufi_checkpoint_library(&c->writing.api, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_watch_process(err);
  }
  if (status == GPUF_OK) {
    status = open_folder(c, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_snapshot_open(&c->snapshot, &c->options, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_start_writer(c, err);
  }
  if (status != GPUF_OK) {
    destroy(c);
    return status;
  }
  c->options.directory = c->options.prefix = NULL; /* the caller's */
  gpufi_checkpoint_report_memory(c);
  gpufi_checkpoint_report_write(c, report);
  *checkpoint = c;
  return GPUF_OK;
}

/* --- Waiting ----------------------------------------------------------------- */

gpuf_status gpuf_checkpoint_wait(gpuf_checkpoint *c, int64_t timeout_ns,
                                 gpuf_checkpoint_report *report, gpuf_error *err) {
  struct timespec deadline;
  GPUFI_REQUIRE(c, err);
  gpuf_status status = gpufi_checkpoint_check_report(report, err);
  if (status == GPUF_OK) {
    status = gpufi_check_process(c->process_id, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (timeout_ns >= 0) {
    deadline = gpufi_deadline_after(timeout_ns);
  }
  pthread_mutex_lock(&c->lock);
  if (gpufi_checkpoint_await_writer(c, timeout_ns >= 0 ? &deadline : NULL)) {
    status = gpufi_checkpoint_outcome(c, err);
  } else {
    status =
        gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                   "the checkpoint of step %" PRId64 " is still being written", c->report.step);
  }
  gpufi_checkpoint_report_write(c, report);
  pthread_mutex_unlock(&c->lock);
  return status;
}

gpuf_status gpuf_checkpoint_close(gpuf_checkpoint *c, gpuf_checkpoint_report *report,
                                  gpuf_error *err) {
  if (!c) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_check_process(c->process_id, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_checkpoint_abort(c, NULL);
  if (gpufi_checkpoint_check_report(report, NULL) != GPUF_OK) {
    report = NULL;
  }
  pthread_mutex_lock(&c->lock);
  gpufi_checkpoint_await_writer(c, NULL);
  status = gpufi_checkpoint_outcome(c, err);
  gpufi_checkpoint_report_write(c, report);
  c->ends = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  pthread_join(c->thread, NULL);
  destroy(c);
  return status;
}
