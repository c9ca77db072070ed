#include "hdf5/checkpoint/output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/publish.h"
#include "hdf5/checkpoint/shard_files.h"

gpuf_status gpufi_checkpoint_fail_at_end(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0, "the process ended before the checkpoint");
}

gpuf_status gpufi_checkpoint_enter(gpuf_checkpoint *c, gpuf_error *err) {
  pthread_mutex_lock(&c->lock);
  c->is_entered = !atomic_load(&c->stop);
  const bool is_entered = c->is_entered;
  pthread_mutex_unlock(&c->lock);
  return is_entered ? GPUF_OK : gpufi_checkpoint_fail_at_end(err);
}

void gpufi_checkpoint_leave(gpuf_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  c->is_entered = false;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

gpuf_status gpufi_checkpoint_fill(gpuf_checkpoint *c, gpufi_checkpoint_contents *contents,
                                  const gpufi_checkpoint_temporary *temporary, uint64_t *nbytes,
                                  gpuf_error *err) {
  struct stat file = {.st_size = 0};
  gpuf_status status = gpufi_checkpoint_write(&c->writing, &c->snapshot, contents, temporary, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_snapshot_check(&c->snapshot, err);
  }
  if (status == GPUF_OK && atomic_load(&c->stop)) {
    status = gpufi_checkpoint_fail_at_end(err);
  }
  if (status == GPUF_OK && fstat(temporary->fd, &file) != 0) {
    status = gpufi_fail(err, GPUF_ERR_IO, errno, "looking at '%s' failed: %s", temporary->path.text,
                        strerror(errno));
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_temporary_remove(temporary);
  }
  *nbytes = (uint64_t)file.st_size;
  return status;
}

void gpufi_checkpoint_end_snapshot(gpuf_checkpoint *c, gpuf_status status,
                                   const gpuf_error *error) {
  if (status != GPUF_OK) {
    gpufi_checkpoint_queue_fail(&c->snapshot.queue, status, error);
    gpufi_checkpoint_queue_await_end(&c->snapshot.queue, NULL);
  }
}

gpufi_checkpoint_keeping gpufi_checkpoint_keeping_of(gpuf_checkpoint *c, int64_t step) {
  return (gpufi_checkpoint_keeping){.step = step,
                                    .count = c->options.keep_count,
                                    .recycles = c->options.recycle,
                                    .syncs = !c->options.unsynced,
                                    .leftovers = &c->leftovers};
}

void gpufi_checkpoint_remove_older(gpuf_checkpoint *c, const gpufi_checkpoint_contents *contents,
                                   gpuf_error *note) {
  const gpufi_checkpoint_keeping keeping = gpufi_checkpoint_keeping_of(c, contents->step);
  const uint64_t *const set = contents->shard_count > 0 ? &contents->shards[0].uuid[0] : NULL;
  gpuf_error error = {0};
  gpufi_checkpoint_prune(&c->folder, &keeping, note);
  if (c->options.replace &&
      gpufi_checkpoint_shards_remove(&c->folder, contents->step, set, &c->leftovers, &error) !=
          GPUF_OK &&
      !*note->message) {
    *note = error;
  }
}

/* It also has its name where nothing but the flush of the folder failed. */
bool gpufi_checkpoint_is_published(const gpuf_checkpoint *c, int fd) {
  return gpufi_is_name_of(gpufi_checkpoint_path_of(&c->folder, c->contents.step).text, fd);
}

gpufi_checkpoint_rank_file gpufi_checkpoint_rank_file_of(const gpuf_checkpoint *c) {
  return (gpufi_checkpoint_rank_file){c->contents.step, c->ranks.set, c->ranks.rank};
}
