#include "hdf5/checkpoint/share.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system.h"
#include "hdf5/checkpoint/merge.h"
#include "hdf5/checkpoint/output.h"

/* --- This rank's shards ------------------------------------------------------ */

/* Rank 0 knows its own. */
static gpuf_status tell_rank_0(gpuf_checkpoint *c, gpuf_error *err) {
  gpufi_checkpoint_contents share = {0};
  const gpufi_checkpoint_rank_file which = gpufi_checkpoint_rank_file_of(c);
  if (c->ranks.rank == 0) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_checkpoint_describe_share(&c->contents, &share, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_rank_file_write(&c->folder, &which, &share, err);
  }
  gpufi_checkpoint_contents_clear(&share);
  return status;
}

/* Entered. */
static gpuf_status write_shards(gpuf_checkpoint *c, gpuf_error *err) {
  static const gpufi_checkpoint_temporary no_master = {.fd = -1, .spare_step = -1};
  gpuf_status status = gpufi_checkpoint_shards_write(&c->written.shards, &c->writing, &c->folder,
                                                     &no_master, &c->snapshot, &c->contents, err);
  /* The queue also says what failed before there was a plan of shards. */
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_queue_await_end(&c->snapshot.queue, err);
  }
  return status == GPUF_OK ? gpufi_checkpoint_snapshot_check(&c->snapshot, err) : status;
}

void gpufi_checkpoint_write_share(gpuf_checkpoint *c) {
  gpufi_checkpoint_written *const w = &c->written;
  gpuf_error *const err = &w->error;
  *w = (gpufi_checkpoint_written){.status = gpufi_checkpoint_enter(c, err)};
  if (w->status == GPUF_OK) {
    w->status = write_shards(c, err);
    gpufi_checkpoint_end_snapshot(c, w->status, err);
    gpufi_checkpoint_leave(c);
  } else {
    gpufi_checkpoint_end_snapshot(c, w->status, err);
  }
  if (w->status == GPUF_OK) {
    w->status = gpufi_checkpoint_shards_finish(&w->shards, &c->folder, !c->options.unsynced, err);
  }
  if (w->status == GPUF_OK) {
    w->status = tell_rank_0(c, err);
  }
  w->sizes.file_nbytes = gpufi_checkpoint_shards_nbytes(&c->contents);
  if (w->status != GPUF_OK) {
    gpufi_checkpoint_shards_end(&w->shards, true);
  }
}

/* --- The master -------------------------------------------------------------- */

/* Rank 0's tensors of no axes are in the master, as the snapshot has them. */
static void give_data(const gpufi_checkpoint_contents *contents, gpufi_checkpoint_contents *all) {
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    if (t->tensor.ndim == 0) {
      ((gpufi_checkpoint_tensor *)gpufi_checkpoint_find_tensor(all, t->name))->tensor = t->tensor;
    }
  }
}

static gpuf_status merge_own(gpuf_checkpoint *c, gpufi_checkpoint_contents *all, gpuf_error *err) {
  gpufi_checkpoint_contents share = {0};
  gpuf_status status = gpufi_checkpoint_describe_share(&c->contents, &share, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_merge(all, &share, 0, err);
  }
  gpufi_checkpoint_contents_clear(&share);
  return status;
}

static gpuf_status merge_other(gpuf_checkpoint *c, int32_t rank, gpufi_checkpoint_contents *all,
                               gpuf_error *err) {
  gpufi_checkpoint_contents share = {0};
  gpufi_checkpoint_rank_file which = gpufi_checkpoint_rank_file_of(c);
  which.rank = rank;
  gpuf_status status =
      gpufi_checkpoint_rank_file_read(&c->folder, &which, c->contents.shard_count, &share, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_merge(all, &share, rank, err);
  }
  gpufi_checkpoint_contents_clear(&share);
  return status;
}

static gpuf_status merge_all(gpuf_checkpoint *c, gpufi_checkpoint_contents *all, gpuf_error *err) {
  gpuf_status status = merge_own(c, all, err);
  for (int32_t rank = 1; rank < c->ranks.count && status == GPUF_OK; rank++) {
    status = merge_other(c, rank, all, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_check_merged(all, c->contents.shard_count, err);
  }
  if (status == GPUF_OK) {
    give_data(&c->contents, all);
  }
  return status;
}

static gpuf_status write_master(gpuf_checkpoint *c, gpufi_checkpoint_contents *all,
                                gpufi_checkpoint_temporary *temporary, uint64_t *nbytes,
                                gpuf_error *err) {
  gpuf_status status = gpufi_checkpoint_enter(c, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpufi_checkpoint_folder_check(&c->folder, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_temporary_create(&c->folder, all->step, temporary, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_fill(c, all, temporary, nbytes, err);
  }
  gpufi_checkpoint_leave(c);
  return status;
}

static gpuf_status publish(gpuf_checkpoint *c, const gpufi_checkpoint_temporary *temporary,
                           gpuf_error *err) {
  const gpuf_status status = gpufi_checkpoint_publish(
      &c->folder, c->contents.step, temporary, c->options.replace, !c->options.unsynced, err);
  c->written.is_published = status == GPUF_OK || gpufi_checkpoint_is_published(c, temporary->fd);
  return status;
}

void gpufi_checkpoint_join_shares(gpuf_checkpoint *c) {
  gpufi_checkpoint_written *const w = &c->written;
  gpufi_checkpoint_temporary temporary = {.fd = -1, .spare_step = -1};
  gpufi_checkpoint_contents all = {0};
  uint64_t master_nbytes = 0;
  w->status = merge_all(c, &all, &w->error);
  if (w->status == GPUF_OK) {
    w->status = write_master(c, &all, &temporary, &master_nbytes, &w->error);
  }
  if (w->status == GPUF_OK) {
    w->status = publish(c, &temporary, &w->error);
  }
  if (w->status == GPUF_OK) {
    w->sizes.file_nbytes += master_nbytes;
    gpufi_checkpoint_remove_older(c, &all, &w->error);
    c->finished_step = c->contents.step;
  }
  if (temporary.fd >= 0) {
    gpufi_close(temporary.fd);
  }
  gpufi_checkpoint_contents_clear(&all);
}
