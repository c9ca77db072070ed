#include "hdf5/checkpoint/settle.h"

#include <inttypes.h>

#include "base/error.h"
#include "hdf5/checkpoint/output.h"
#include "hdf5/checkpoint/writer.h"

/* What a rank says of the checkpoint that all have begun; all do what the lowest word asks for. */
typedef enum word {
  GONE = -1,
  BUSY,   /* not finished yet */
  FAILED, /* this rank's is not whole, and no master appears */
  NAMED,  /* rank 0 failed once the master had its name: the shards stay */
  WHOLE,
  NONE, /* there is none to speak of */
} word;

/* --- Words ------------------------------------------------------------------- */

static word word_of(const gpuf_checkpoint *c, gpufi_checkpoint_phase phase) {
  switch (phase) {
  case GPUFI_CHECKPOINT_IDLE:
    return c->ranks.is_open ? FAILED : NONE; /* it was aborted */
  case GPUFI_CHECKPOINT_WRITTEN:
    return c->written.status == GPUF_OK ? WHOLE : FAILED;
  default:
    return BUSY;
  }
}

/* All shards are whole and on the disk: rank 0's writer writes the master. */
static word join(gpuf_checkpoint *c, word own) {
  if (c->ranks.rank > 0) {
    return WHOLE;
  }
  if (own != WHOLE) {
    return FAILED; /* the ranks have lost each other */
  }
  pthread_mutex_lock(&c->lock);
  c->phase = GPUFI_CHECKPOINT_JOINING;
  pthread_cond_broadcast(&c->changed);
  gpufi_checkpoint_await_writer(c, NULL);
  pthread_mutex_unlock(&c->lock);
  return c->written.status == GPUF_OK ? WHOLE : c->written.is_published ? NAMED : FAILED;
}

/* --- The end ----------------------------------------------------------------- */

/* What the report says where this rank's own did not fail. */
static gpuf_status fail_with_others(const gpuf_checkpoint *c, word all, int64_t failed_rank,
                                    gpuf_error *err) {
  const int64_t step = c->contents.step;
  if (all == WHOLE) {
    return GPUF_OK;
  }
  if (all == GONE || failed_rank < 0) {
    gpuf_error why;
    const gpuf_status status = gpufi_checkpoint_fail_to_agree(&why);
    return gpufi_fail(err, status, 0,
                      "whether the checkpoint of step %" PRId64
                      " is finished is not known, and gpuf_restart_open finds it if it is: %s",
                      step, why.message);
  }
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "rank %" PRId64 " failed, or gave up, the checkpoint of step %" PRId64
                    ": the report of that rank says why",
                    failed_rank, step);
}

/* The shards go where no master can have their names, which is known only where the ranks agree. */
static void end(gpuf_checkpoint *c, gpufi_checkpoint_phase phase, word all, int64_t failed_rank) {
  gpufi_checkpoint_written *const w = &c->written;
  const gpufi_checkpoint_rank_file which = gpufi_checkpoint_rank_file_of(c);
  c->ranks.is_open = false;
  if (phase != GPUFI_CHECKPOINT_WRITTEN) {
    return; /* aborted: there is nothing */
  }
  gpufi_checkpoint_shards_end(&w->shards, all == FAILED);
  if (all != GONE && c->ranks.rank > 0) {
    gpufi_checkpoint_rank_file_remove(&c->folder, &which);
  }
  if (w->status == GPUF_OK) {
    gpuf_error error;
    w->status = fail_with_others(c, all, failed_rank, &error);
    w->error = w->status == GPUF_OK ? w->error : error;
  }
  gpufi_checkpoint_snapshot_release(&c->snapshot);
  gpufi_checkpoint_contents_clear(&c->contents);
  pthread_mutex_lock(&c->lock);
  gpufi_checkpoint_report_end(c, w->status, &w->error, &w->sizes);
  c->phase = GPUFI_CHECKPOINT_IDLE;
  pthread_mutex_unlock(&c->lock);
}

static bool settle(gpuf_checkpoint *c, gpufi_checkpoint_phase phase) {
  const word own = word_of(c, phase);
  word all = (word)gpufi_checkpoint_agree(&c->ranks, own);
  int64_t failed_rank = 0;
  if (all == BUSY) {
    return false;
  }
  if (all == FAILED) {
    failed_rank = gpufi_checkpoint_agree_on_failed(&c->ranks, own == FAILED);
  } else if (all == WHOLE) {
    all = (word)gpufi_checkpoint_agree(&c->ranks, join(c, own));
  }
  if (c->ranks.is_open && own != BUSY) {
    end(c, phase, all, failed_rank);
  }
  return own != BUSY;
}

bool gpufi_checkpoint_settle(gpuf_checkpoint *c, bool waits, const struct timespec *deadline) {
  pthread_mutex_lock(&c->lock);
  if (waits) {
    gpufi_checkpoint_await_writer(c, deadline);
  }
  if (c->ranks.count <= 1) {
    return word_of(c, c->phase) != BUSY;
  }
  const gpufi_checkpoint_phase phase = c->phase;
  pthread_mutex_unlock(&c->lock);
  const bool is_settled = settle(c, phase);
  pthread_mutex_lock(&c->lock);
  return is_settled;
}

void gpufi_checkpoint_leave_unsettled(gpuf_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  gpufi_checkpoint_await_writer(c, NULL);
  const gpufi_checkpoint_phase phase = c->phase;
  pthread_mutex_unlock(&c->lock);
  if (c->ranks.is_open) {
    end(c, phase, GONE, -1);
  }
}
