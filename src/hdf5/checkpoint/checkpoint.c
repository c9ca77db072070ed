/* The public calls that open, wait for and close a checkpoint writer. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "base/struct.h"
#include "base/text.h"
#include "hdf5/checkpoint/library.h"
#include "hdf5/checkpoint/rank_files.h"
#include "hdf5/checkpoint/settle.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/checkpoint/writer.h"

/* --- Opening ----------------------------------------------------------------- */

/* Whether the other ranks can be told of what is wrong with the rest. */
static gpuf_status check_ranks(const gpuf_checkpoint_options *options, gpuf_error *err) {
  const int32_t count = options->rank_count > 0 ? options->rank_count : 1;
  if (options->rank_count < 0 || options->rank < 0 || options->rank >= count) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.rank is %d, and options.rank_count %d: ranks count from 0",
                      (int)options->rank, (int)options->rank_count);
  }
  if (count > 1 && !options->agree) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.rank_count is %d, and options.agree is NULL: set it to a function "
                      "that gives the minimum over all ranks",
                      (int)count);
  }
  return GPUF_OK;
}

static gpuf_status check_shards(const gpuf_checkpoint_options *options, gpuf_error *err) {
  const size_t rank_count = options->rank_count > 1 ? (size_t)options->rank_count : 1;
  const size_t shard_count = options->shard_count > 0 ? options->shard_count : 1;
  if (shard_count > GPUFI_CHECKPOINT_SHARDS_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "options.shard_count is %zu; at most %zu are made",
                      shard_count, GPUFI_CHECKPOINT_SHARDS_MAX);
  }
  if (rank_count > GPUFI_CHECKPOINT_ALL_SHARDS_MAX / shard_count) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu ranks of %zu shards each are more than %zu files: let fewer ranks write",
                      rank_count, shard_count, GPUFI_CHECKPOINT_ALL_SHARDS_MAX);
  }
  return GPUF_OK;
}

static gpuf_status check_application(const char *application, gpuf_error *err) {
  const size_t nbytes_max = GPUFI_CHECKPOINT_APPLICATION_NBYTES_MAX;
  return !application || (strnlen(application, nbytes_max + 1) <= nbytes_max &&
                          gpufi_text_is_utf8(application))
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "options.application '%.250s' must be UTF-8 of at most %zu bytes",
                          application, nbytes_max);
}

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
  if (options->recycle && options->keep_count == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.recycle is set, and options.keep_count is 0: all checkpoints are "
                      "kept, and none expires that could be overwritten");
  }
  if (options->recycle && options->rank_count > 1) {
    return gpufi_fail(
        err, GPUF_ERR_UNSUPPORTED, 0,
        "options.recycle is set, and options.rank_count is %d: files are written over "
        "by a writer that is alone; leave options.recycle out",
        (int)options->rank_count);
  }
  const gpuf_status status = check_application(options->application, err);
  return status == GPUF_OK ? check_shards(options, err) : status;
}

/* Remove what dead owners of the prefix, which is locked, have left. */
static gpuf_status sweep(const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  gpuf_status status = gpufi_checkpoint_folder_sweep(folder, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_shards_sweep(folder, err);
  }
  return status == GPUF_OK ? gpufi_checkpoint_rank_files_sweep(folder, err) : status;
}

/* Where checkpoints go, and who may write them, which is rank 0 for all. */
static gpuf_status open_folder(gpuf_checkpoint *c, gpuf_error *err) {
  gpuf_status status =
      gpufi_checkpoint_folder_open(&c->folder, c->options.directory, c->options.prefix, err);
  if (status == GPUF_OK && c->ranks.rank == 0) {
    status = gpufi_checkpoint_folder_lock(&c->folder, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  c->member.lock_fd = c->folder.lock_fd;
  c->member.leftovers = &c->leftovers;
  c->member.give_up = gpufi_checkpoint_give_up;
  gpufi_checkpoint_member_add(&c->member);
  return c->ranks.rank == 0 ? sweep(&c->folder, err) : GPUF_OK;
}

static void destroy(gpuf_checkpoint *c) {
  gpufi_checkpoint_member_remove(&c->member);
  gpufi_checkpoint_folder_close(&c->folder);
  gpufi_checkpoint_contents_clear(&c->contents);
  gpufi_checkpoint_snapshot_close(&c->snapshot);
  gpufi_checkpoint_leftovers_fini(&c->leftovers);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
  pthread_mutex_destroy(&c->turn);
  free((char *)c->options.application);
  free(c);
}

static gpuf_checkpoint *create(const gpuf_checkpoint_options *options) {
  gpuf_checkpoint *const c = calloc(1, sizeof(*c));
  if (c) {
    c->process_id = getpid();
    c->options = *options;
    c->options.application = NULL;
    c->folder.fd = c->folder.lock_fd = -1;
    c->writing.codec = options->uncompressed ? GPUF_H5_CODEC_NONE : GPUF_H5_CODEC_GPUFETCH;
    c->writing.thread_count = options->thread_count;
    c->writing.stop = &c->stop;
    c->writing.leftovers = &c->leftovers;
    gpufi_checkpoint_leftovers_init(&c->leftovers);
    c->report.struct_nbytes = sizeof(c->report);
    c->report.step = c->finished_step = -1;
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->lock, NULL);
    gpufi_condition_init(&c->changed);
  }
  return c;
}

static gpuf_status check_results(gpuf_checkpoint *const *checkpoint,
                                 const gpuf_checkpoint_report *report, gpuf_error *err) {
  GPUFI_REQUIRE(checkpoint, err);
  return gpufi_checkpoint_check_report(report, err);
}

static gpuf_status keep_application(gpuf_checkpoint *c, const char *application, gpuf_error *err) {
  c->options.application = application ? strdup(application) : NULL;
  return !application || c->options.application
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note '%s'", application);
}

/* What one rank does without the others. */
static gpuf_status open_alone(gpuf_checkpoint *c, const gpuf_checkpoint_options *options,
                              const gpufi_checkpoint_ranks *ranks, gpuf_error *err) {
  c->ranks = *ranks;
  gpuf_status status = check_options(options, err);
  if (status == GPUF_OK) {
    status = keep_application(c, options->application, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_library(&c->writing.api, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_watch_process(err);
  }
  if (status == GPUF_OK) {
    status = open_folder(c, err);
  }
  c->options.directory = c->options.prefix = NULL; /* the caller's */
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_snapshot_open(&c->snapshot, &c->options, err);
  }
  return status == GPUF_OK ? gpufi_checkpoint_start_writer(c, err) : status;
}

gpuf_status gpuf_checkpoint_open(const gpuf_checkpoint_options *options,
                                 gpuf_checkpoint **checkpoint, gpuf_checkpoint_report *report,
                                 gpuf_error *err) {
  gpuf_checkpoint_options own;
  GPUFI_REQUIRE(options, err);
  gpuf_status status =
      gpufi_struct_read(&own, sizeof(own), options, "GPUF_CHECKPOINT_OPTIONS_INIT", err);
  if (status == GPUF_OK) {
    status = check_ranks(&own, err);
  }
  if (status != GPUF_OK) {
    return status; /* the other ranks cannot be told */
  }
  gpufi_checkpoint_ranks ranks = {.rank = own.rank,
                                  .count = own.rank_count > 1 ? own.rank_count : 1,
                                  .agree = own.agree,
                                  .arg = own.agree_arg};
  gpuf_checkpoint *c = NULL;
  status = check_results(checkpoint, report, err);
  if (status == GPUF_OK) {
    c = create(&own);
    status = c ? open_alone(c, &own, &ranks, err)
               : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", sizeof(*c));
  }
  const bool has_writer = status == GPUF_OK;
  if (ranks.count > 1) {
    status = gpufi_checkpoint_agree_to_open(&ranks, &own, status, err);
  }
  if (status != GPUF_OK) {
    if (has_writer) {
      gpufi_checkpoint_end_writer(c);
    }
    if (c) {
      destroy(c);
    }
    return status;
  }
  gpufi_checkpoint_report_memory(c);
  gpufi_checkpoint_report_write(c, report);
  *checkpoint = c;
  return GPUF_OK;
}

/* --- Waiting ----------------------------------------------------------------- */

gpuf_status gpufi_checkpoint_check_caller(const gpuf_checkpoint *c, gpuf_error *err) {
  if (gpufi_in_kernel()) {
    return gpufi_refuse_in_kernel(err);
  }
  const gpuf_status status = gpufi_check_process(c->process_id, err);
  return status == GPUF_OK ? gpufi_checkpoint_check_outside(&c->ranks, err) : status;
}

gpuf_status gpuf_checkpoint_wait(gpuf_checkpoint *checkpoint, int64_t timeout_ns,
                                 gpuf_checkpoint_report *report, gpuf_error *err) {
  gpuf_checkpoint *const c = checkpoint;
  struct timespec deadline;
  GPUFI_REQUIRE(checkpoint, err);
  gpuf_status status = gpufi_checkpoint_check_caller(c, err);
  const bool has_report = gpufi_checkpoint_check_report(report, NULL) == GPUF_OK;
  if (status == GPUF_OK && !has_report && c->ranks.count <= 1) {
    status = gpufi_checkpoint_check_report(report, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (timeout_ns >= 0) {
    deadline = gpufi_deadline_after(timeout_ns);
  }
  if (c->ranks.count > 1) {
    pthread_mutex_lock(&c->turn); /* the ranks speak of one thing after another */
  }
  const bool is_settled = gpufi_checkpoint_settle(c, true, timeout_ns >= 0 ? &deadline : NULL);
  if (is_settled || c->phase == GPUFI_CHECKPOINT_BEGUN) {
    status = gpufi_checkpoint_outcome(c, err);
  } else {
    status = gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                        "the checkpoint of step %" PRId64 " is still being written%s",
                        c->report.step, c->ranks.count > 1 ? ", here or by another rank" : "");
  }
  gpufi_checkpoint_report_write(c, report);
  pthread_mutex_unlock(&c->lock);
  if (c->ranks.count > 1) {
    pthread_mutex_unlock(&c->turn);
  }
  return has_report ? status : gpufi_checkpoint_check_report(report, err);
}

gpuf_status gpuf_checkpoint_close(gpuf_checkpoint *c, gpuf_checkpoint_report *report,
                                  gpuf_error *err) {
  if (!c) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_checkpoint_check_caller(c, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_checkpoint_abort(c, NULL);
  gpufi_checkpoint_settle(c, true, NULL);
  pthread_mutex_unlock(&c->lock);
  gpufi_checkpoint_leave_unsettled(c);
  pthread_mutex_lock(&c->lock);
  status = gpufi_checkpoint_outcome(c, err);
  gpufi_checkpoint_report_write(c, report);
  pthread_mutex_unlock(&c->lock);
  gpufi_checkpoint_end_writer(c);
  destroy(c);
  return status;
}
