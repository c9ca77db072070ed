#include "hdf5/checkpoint/writer.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "hdf5/checkpoint/expired.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/checkpoint/shards.h"

static gpuf_status fail_at_end(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0, "the process ended before the checkpoint");
}

/* Begin to use HDF5 and devices. GPUF_ERR_STATE if the process ends: then neither may be used any
 * more. */
static gpuf_status enter(gpuf_checkpoint *c, gpuf_error *err) {
  pthread_mutex_lock(&c->lock);
  c->is_entered = !atomic_load(&c->stop);
  const bool is_entered = c->is_entered;
  pthread_mutex_unlock(&c->lock);
  return is_entered ? GPUF_OK : fail_at_end(err);
}

static void leave(gpuf_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  c->is_entered = false;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

/* Fill the shards, and then the temporary; it is removed unless all are whole. */
static gpuf_status fill(gpuf_checkpoint *c, gpufi_checkpoint_shards *shards,
                        const gpufi_checkpoint_temporary *temporary, uint64_t *file_nbytes,
                        gpuf_error *err) {
  struct stat file = {.st_size = 0};
  gpuf_status status = gpufi_checkpoint_shards_write(shards, &c->writing, &c->folder, temporary,
                                                     &c->snapshot, &c->contents, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_write(&c->writing, &c->snapshot, &c->contents, temporary, err);
  }
  if (status == GPUF_OK && atomic_load(&c->stop)) {
    status = fail_at_end(err);
  }
  if (status == GPUF_OK && fstat(temporary->fd, &file) != 0) {
    status = gpufi_fail(err, GPUF_ERR_IO, errno, "looking at '%s' failed: %s", temporary->path.text,
                        strerror(errno));
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_temporary_remove(&c->folder, c->contents.step);
  }
  *file_nbytes = (uint64_t)file.st_size;
  for (size_t i = 0; i < c->contents.shard_count; i++) {
    *file_nbytes += c->contents.shards[i].nbytes;
  }
  return status;
}

/* The committer may still be taking the snapshot: it ends with a failure of the writer's. */
static void end_snapshot(gpuf_checkpoint *c, gpuf_status status, const gpuf_error *error) {
  if (status != GPUF_OK) {
    gpufi_checkpoint_queue_fail(&c->snapshot.queue, status, error);
    gpufi_checkpoint_queue_await_end(&c->snapshot.queue, NULL);
  }
}

/* What is promised once `step` is finished. */
static gpufi_checkpoint_keeping keeping_of(const gpuf_checkpoint *c, int64_t step) {
  return (gpufi_checkpoint_keeping){.step = step,
                                    .count = c->options.keep_count,
                                    .recycles = c->options.recycle,
                                    .syncs = !c->options.unsynced};
}

/* An older file, or a new one. */
static gpuf_status make_temporary(gpuf_checkpoint *c, gpufi_checkpoint_temporary *temporary,
                                  gpuf_error *err) {
  const gpufi_checkpoint_keeping keeping = keeping_of(c, c->finished_step);
  return gpufi_checkpoint_recycle(&c->folder, &keeping, c->contents.step, !c->options.unsynced,
                                  temporary)
             ? GPUF_OK
             : gpufi_checkpoint_temporary_create(&c->folder, c->contents.step, temporary, err);
}

/* What is left of an older checkpoint whose master was overwritten. What cannot be removed is tried
 * again by the next writer. */
static void remove_spares(const gpuf_checkpoint *c, const gpufi_checkpoint_temporary *temporary) {
  if (temporary->spare_step >= 0) {
    gpufi_checkpoint_shards_remove(&c->folder, temporary->spare_step, NULL, NULL);
  }
}

/* Write the temporary, and let the next snapshot use the memory. Of a failure nothing is left. */
static gpuf_status write_temporary(gpuf_checkpoint *c, gpufi_checkpoint_shards *shards,
                                   gpufi_checkpoint_temporary *temporary, uint64_t *file_nbytes,
                                   gpuf_error *err) {
  gpuf_status status = enter(c, err);
  if (status != GPUF_OK) {
    end_snapshot(c, status, err);
    return status;
  }
  status = make_temporary(c, temporary, err);
  if (status == GPUF_OK) {
    status = fill(c, shards, temporary, file_nbytes, err);
    remove_spares(c, temporary);
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_shards_end(shards, true);
  }
  end_snapshot(c, status, err);
  gpufi_checkpoint_snapshot_release(&c->snapshot);
  leave(c);
  return status;
}

/* The shards come to the disk before the master has its name, which makes it the checkpoint. */
static gpuf_status publish(gpuf_checkpoint *c, const gpufi_checkpoint_shards *shards, int fd,
                           gpuf_error *err) {
  const bool syncs = !c->options.unsynced;
  const gpuf_status status =
      syncs ? gpufi_checkpoint_shards_sync(shards, &c->folder, err) : GPUF_OK;
  return status == GPUF_OK ? gpufi_checkpoint_publish(&c->folder, c->contents.step, fd,
                                                      c->options.replace, syncs, err)
                           : status;
}

/* What the step had before, and what has expired. */
static void remove_older(gpuf_checkpoint *c, gpuf_error *note) {
  const gpufi_checkpoint_contents *const contents = &c->contents;
  const gpufi_checkpoint_keeping keeping = keeping_of(c, contents->step);
  const uint64_t *const set = contents->shard_count > 0 ? &contents->shards[0].uuid[0] : NULL;
  gpuf_error error = {0};
  gpufi_checkpoint_prune(&c->folder, &keeping, note);
  if (c->options.replace &&
      gpufi_checkpoint_shards_remove(&c->folder, contents->step, set, &error) != GPUF_OK &&
      !*note->message) {
    *note = error;
  }
}

/* Whether the master has its name: where that could not be flushed alone, it has. */
static bool is_published(const gpuf_checkpoint *c, int fd) {
  struct stat named, open;
  const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(&c->folder, c->contents.step);
  return lstat(path.text, &named) == 0 && fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

/* `note` gets what did not go well once the checkpoint was finished. */
static gpuf_status write_checkpoint(gpuf_checkpoint *c, gpufi_checkpoint_file_sizes *sizes,
                                    gpuf_error *note, gpuf_error *err) {
  const int64_t step = c->contents.step;
  gpufi_checkpoint_temporary temporary = {.fd = -1, .spare_step = -1};
  gpufi_checkpoint_shards shards = {NULL, 0};
  gpuf_status status = write_temporary(c, &shards, &temporary, &sizes->file_nbytes, err);
  sizes->recycled_nbytes = temporary.recycled_nbytes + gpufi_checkpoint_shards_recycled(&shards);
  if (status == GPUF_OK) {
    status = publish(c, &shards, temporary.fd, err);
    if (status == GPUF_OK) {
      remove_older(c, note);
      c->finished_step = step;
    } else {
      gpufi_checkpoint_temporary_remove(&c->folder, step);
    }
    gpufi_checkpoint_shards_end(&shards, status != GPUF_OK && !is_published(c, temporary.fd));
  }
  if (temporary.fd >= 0) {
    close(temporary.fd);
  }
  return status;
}

static void *writer_main(void *arg) {
  gpuf_checkpoint *const c = arg;
  pthread_mutex_lock(&c->lock);
  while (true) {
    while (c->phase != GPUFI_CHECKPOINT_WRITING && !c->ends) {
      pthread_cond_wait(&c->changed, &c->lock);
    }
    if (c->phase != GPUFI_CHECKPOINT_WRITING) {
      break;
    }
    pthread_mutex_unlock(&c->lock);
    gpuf_error error = {0};
    gpuf_error note = {0};
    gpufi_checkpoint_file_sizes sizes = {0, 0};
    const gpuf_status status = write_checkpoint(c, &sizes, &note, &error);
    gpufi_checkpoint_contents_clear(&c->contents);
    pthread_mutex_lock(&c->lock);
    gpufi_checkpoint_report_end(c, status, status == GPUF_OK ? &note : &error, &sizes);
    c->phase = GPUFI_CHECKPOINT_IDLE;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

void gpufi_checkpoint_give_up(gpufi_checkpoint_member *member) {
  gpuf_checkpoint *const c = (gpuf_checkpoint *)member;
  gpuf_error error = {0};
  atomic_store(&c->stop, true);
  gpufi_checkpoint_queue_fail(&c->snapshot.queue, fail_at_end(&error), &error);
  pthread_mutex_lock(&c->lock);
  while (c->is_entered) {
    pthread_cond_wait(&c->changed, &c->lock);
  }
  pthread_mutex_unlock(&c->lock);
}

bool gpufi_checkpoint_await_writer(gpuf_checkpoint *c, const struct timespec *deadline) {
  int code = 0;
  while (c->phase == GPUFI_CHECKPOINT_WRITING && code == 0) {
    code = deadline ? pthread_cond_timedwait(&c->changed, &c->lock, deadline)
                    : pthread_cond_wait(&c->changed, &c->lock);
  }
  return c->phase != GPUFI_CHECKPOINT_WRITING;
}

gpuf_status gpufi_checkpoint_start_writer(gpuf_checkpoint *c, gpuf_error *err) {
  const int code = gpufi_thread_start(&c->thread, "gpufetch-ckpt", 0, writer_main, c);
  return code == 0
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, code,
                          "no thread could be started to write checkpoints: %s", strerror(code));
}
