/* The public calls that make one checkpoint. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/struct.h"
#include "base/thread.h"
#include "hdf5/checkpoint/plan.h"
#include "hdf5/checkpoint/settle.h"
#include "hdf5/checkpoint/writer.h"

/* Begin a call on a checkpoint: what every one checks, and its turn. */
static gpuf_status enter(gpuf_checkpoint *checkpoint, gpuf_error *err) {
  GPUFI_REQUIRE(checkpoint, err);
  const gpuf_status status = gpufi_checkpoint_check_caller(checkpoint, err);
  if (status == GPUF_OK) {
    pthread_mutex_lock(&checkpoint->turn);
  }
  return status;
}

static gpufi_checkpoint_phase phase_of(gpuf_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  const gpufi_checkpoint_phase found = c->phase;
  pthread_mutex_unlock(&c->lock);
  return found;
}

static gpuf_status check_call(gpuf_checkpoint *c, int64_t step,
                              const gpuf_checkpoint_report *report, gpuf_error *err) {
  if (step < 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "step %" PRId64 " is negative", step);
  }
  if (phase_of(c) == GPUFI_CHECKPOINT_BEGUN) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "the checkpoint of step %" PRId64 " was begun: commit or abort it first",
                      c->contents.step);
  }
  return gpufi_checkpoint_check_report(report, err);
}

/* The folder is looked at by the rank that writes the masters. */
static gpuf_status check_folder(const gpuf_checkpoint *c, int64_t step, gpuf_error *err) {
  if (c->ranks.rank > 0) {
    return GPUF_OK;
  }
  const gpuf_status status = gpufi_checkpoint_folder_check(&c->folder, err);
  return status == GPUF_OK && !c->options.replace
             ? gpufi_checkpoint_folder_check_new(&c->folder, step, err)
             : status;
}

/* Of what is begun. */
static gpuf_status note_application(gpuf_checkpoint *c, gpuf_error *err) {
  const gpufi_checkpoint_value noted = {.name = (char *)GPUFI_CHECKPOINT_APPLICATION,
                                        .kind = GPUFI_CHECKPOINT_TEXT,
                                        .text = (char *)c->options.application};
  return noted.text && c->ranks.rank == 0 ? gpufi_checkpoint_add_value(&c->contents, &noted, err)
                                          : GPUF_OK;
}

/* Other ranks wait for what this one says, also where its call is wrong. */
static gpuf_status begin(gpuf_checkpoint *c, int64_t step, gpuf_checkpoint_report *report,
                         gpuf_error *err) {
  gpuf_status status = check_call(c, step, report, err);
  if (status != GPUF_OK && c->ranks.count <= 1) {
    return status;
  }
  const bool is_settled = gpufi_checkpoint_settle(c, !c->options.skip_if_busy, NULL);
  gpufi_checkpoint_report_write(c, report);
  const int64_t busy_step = c->report.step;
  pthread_mutex_unlock(&c->lock);
  if (!is_settled) {
    return status != GPUF_OK
               ? status
               : gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                            "the checkpoint of step %" PRId64
                            " is still being written%s: step %" PRId64 " is skipped",
                            busy_step, c->ranks.count > 1 ? ", here or by another rank" : "", step);
  }
  if (status == GPUF_OK) {
    status = check_folder(c, step, err);
  }
  const bool is_empty = status == GPUF_OK; /* else the contents may be those of a begun one */
  if (status == GPUF_OK) {
    status = note_application(c, err);
  }
  status = gpufi_checkpoint_agree_to_begin(&c->ranks, step, status, err);
  if (status != GPUF_OK) {
    if (is_empty) {
      gpufi_checkpoint_contents_clear(&c->contents);
    }
    return status;
  }
  c->contents.step = step;
  pthread_mutex_lock(&c->lock);
  c->phase = GPUFI_CHECKPOINT_BEGUN;
  pthread_mutex_unlock(&c->lock);
  return GPUF_OK;
}

gpuf_status gpuf_checkpoint_begin(gpuf_checkpoint *c, int64_t step, gpuf_checkpoint_report *report,
                                  gpuf_error *err) {
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_status status = enter(c, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = begin(c, step, report, err);
  if (status == GPUF_OK) {
    c->stall_ns = gpufi_clock_ns() - begin_ns;
  }
  pthread_mutex_unlock(&c->turn);
  return status;
}

static gpuf_status check_begun(gpuf_checkpoint *c, gpuf_error *err) {
  return phase_of(c) == GPUFI_CHECKPOINT_BEGUN
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_STATE, 0,
                          "no checkpoint was begun: call gpuf_checkpoint_begin first");
}

/* As enter, for a call on a checkpoint that was begun. */
static gpuf_status enter_begun(gpuf_checkpoint *c, gpuf_error *err) {
  gpuf_status status = enter(c, err);
  if (status == GPUF_OK) {
    status = check_begun(c, err);
    if (status != GPUF_OK) {
      pthread_mutex_unlock(&c->turn);
    }
  }
  return status;
}

/* The snapshot waits for a tensor's stream in the thread that commits, and GPUF_STREAM_PER_THREAD
 * is another stream in each. */
static gpuf_status check_thread(const gpuf_checkpoint *c, gpuf_error *err) {
  const uint64_t thread = c->contents.stream_thread;
  return thread == 0 || thread == gpufi_thread_number()
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "another thread added a tensor with GPUF_STREAM_PER_THREAD, which is its "
                          "own stream: add such tensors and commit in one thread, or give them "
                          "streams of gpuf_stream_create");
}

static bool is_on_threads_stream(const gpuf_tensor *tensor) {
  return tensor->stream == GPUF_STREAM_PER_THREAD && tensor->device.kind != GPUF_DEVICE_CPU;
}

static gpuf_status add(gpuf_checkpoint *c, const char *name, const gpuf_tensor *tensor,
                       const gpuf_part *part, gpuf_error *err) {
  if (c->ranks.rank > 0 && tensor->ndim == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "tensor '%s' has no axes, and this is rank %d: add it on rank 0, or as a "
                      "value",
                      name, (int)c->ranks.rank);
  }
  if (c->ranks.count > 1) {
    return gpufi_checkpoint_add_piece(&c->contents, name, tensor, part, err);
  }
  return part ? gpufi_checkpoint_add_part(&c->contents, name, tensor, part, err)
              : gpufi_checkpoint_add_tensor(&c->contents, name, tensor, err);
}

gpuf_status gpuf_checkpoint_add(gpuf_checkpoint *c, const char *name, const gpuf_tensor *tensor,
                                const gpuf_part *part, gpuf_error *err) {
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_part own;
  GPUFI_REQUIRE(name, err);
  GPUFI_REQUIRE(tensor, err);
  gpuf_status status = gpuf_tensor_check(tensor, err);
  if (status == GPUF_OK) {
    status = gpufi_struct_read(&own, sizeof(own), part, "GPUF_PART_INIT", err);
  }
  if (status == GPUF_OK) {
    status = enter_begun(c, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (is_on_threads_stream(tensor)) {
    status = check_thread(c, err);
  }
  if (status == GPUF_OK) {
    status = add(c, name, tensor, part ? &own : NULL, err);
  }
  if (status == GPUF_OK && is_on_threads_stream(tensor)) {
    c->contents.stream_thread = gpufi_thread_number();
  }
  c->stall_ns += gpufi_clock_ns() - begin_ns;
  pthread_mutex_unlock(&c->turn);
  return status;
}

static gpuf_status add_value(gpuf_checkpoint *c, const gpufi_checkpoint_value *value,
                             gpuf_error *err) {
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_status status = enter_begun(c, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpufi_checkpoint_add_value(&c->contents, value, err);
  c->stall_ns += gpufi_clock_ns() - begin_ns;
  pthread_mutex_unlock(&c->turn);
  return status;
}

gpuf_status gpuf_checkpoint_add_int64(gpuf_checkpoint *c, const char *name, int64_t value,
                                      gpuf_error *err) {
  GPUFI_REQUIRE(name, err);
  const gpufi_checkpoint_value added = {
      .name = (char *)name, .kind = GPUFI_CHECKPOINT_INT64, .int64 = value};
  return add_value(c, &added, err);
}

gpuf_status gpuf_checkpoint_add_float64(gpuf_checkpoint *c, const char *name, double value,
                                        gpuf_error *err) {
  GPUFI_REQUIRE(name, err);
  const gpufi_checkpoint_value added = {
      .name = (char *)name, .kind = GPUFI_CHECKPOINT_FLOAT64, .float64 = value};
  return add_value(c, &added, err);
}

gpuf_status gpuf_checkpoint_add_text(gpuf_checkpoint *c, const char *name, const char *text,
                                     gpuf_error *err) {
  GPUFI_REQUIRE(name, err);
  GPUFI_REQUIRE(text, err);
  const gpufi_checkpoint_value added = {
      .name = (char *)name, .kind = GPUFI_CHECKPOINT_TEXT, .text = (char *)text};
  return add_value(c, &added, err);
}

/* Give up what was begun. */
static void drop(gpuf_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  c->phase = GPUFI_CHECKPOINT_IDLE;
  pthread_mutex_unlock(&c->lock);
  gpufi_checkpoint_contents_clear(&c->contents);
}

/* The writer begins at once, and takes the snapshot's tensors as they come: what is encoded may
 * take more memory than there is at a time. */
static void start(gpuf_checkpoint *c) {
  gpufi_checkpoint_queue_reset(&c->snapshot.queue);
  pthread_mutex_lock(&c->lock);
  c->committed_ns = gpufi_clock_ns();
  gpufi_checkpoint_report_begin(c);
  c->phase = GPUFI_CHECKPOINT_WRITING;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

/* Before the writer and the snapshot use them. */
static gpuf_status prepare(gpuf_checkpoint *c, gpuf_error *err) {
  const size_t count = c->options.shard_count > 0 ? c->options.shard_count : 1;
  const gpufi_checkpoint_share share = {
      .count = count, .first = (size_t)c->ranks.rank * count, .set = c->ranks.set};
  gpuf_status status = check_thread(c, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_check_parts(&c->contents, err);
  }
  return status == GPUF_OK && (count > 1 || c->ranks.count > 1)
             ? gpufi_checkpoint_plan(&c->contents, c->folder.prefix, &share, err)
             : status;
}

/* A failed snapshot fails in the writer, too; that must have ended when the call returns. */
static gpuf_status commit(gpuf_checkpoint *c, gpuf_stream stream, int64_t begin_ns,
                          gpuf_error *err) {
  gpuf_error error = {0};
  gpuf_status status = prepare(c, &error);
  start(c);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_snapshot_take(&c->snapshot, &c->contents, stream, &error);
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_queue_fail(&c->snapshot.queue, status, &error);
  }
  c->stall_ns += gpufi_clock_ns() - begin_ns;
  pthread_mutex_lock(&c->lock);
  c->report.stall_ns = c->stall_ns;
  gpufi_checkpoint_report_memory(c);
  gpufi_checkpoint_queue_end(&c->snapshot.queue);
  if (status != GPUF_OK) {
    gpufi_checkpoint_await_writer(c, NULL);
  }
  pthread_mutex_unlock(&c->lock);
  return status == GPUF_OK ? GPUF_OK
                           : gpufi_fail(err, status, error.native_code, "%s", error.message);
}

gpuf_status gpuf_checkpoint_commit(gpuf_checkpoint *c, gpuf_stream stream, gpuf_error *err) {
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_status status = enter_begun(c, err);
  if (status == GPUF_OK) {
    status = commit(c, stream, begin_ns, err);
    pthread_mutex_unlock(&c->turn);
  }
  return status;
}

gpuf_status gpuf_checkpoint_abort(gpuf_checkpoint *c, gpuf_error *err) {
  const gpuf_status status = enter(c, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (phase_of(c) == GPUFI_CHECKPOINT_BEGUN) {
    drop(c);
  }
  pthread_mutex_unlock(&c->turn);
  return GPUF_OK;
}
