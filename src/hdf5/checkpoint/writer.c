#include "hdf5/checkpoint/writer.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "hdf5/checkpoint/expired.h"
#include "hdf5/checkpoint/output.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/checkpoint/shards.h"
#include "hdf5/checkpoint/share.h"

/* Fill the shards, and then the temporary; it is removed unless all are whole. */
static gpuf_status fill_all(gpuf_checkpoint *c, gpufi_checkpoint_shards *shards,
                            const gpufi_checkpoint_temporary *temporary, uint64_t *file_nbytes,
                            gpuf_error *err) {
  gpuf_status status = gpufi_checkpoint_shards_write(shards, &c->writing, &c->folder, temporary,
                                                     &c->snapshot, &c->contents, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_fill(c, &c->contents, temporary, file_nbytes, err);
  } else {
    gpufi_checkpoint_temporary_remove(temporary);
  }
  *file_nbytes += gpufi_checkpoint_shards_nbytes(&c->contents);
  return status;
}

/* An older file, or a new one. Since the checkpoint was begun, another program may have made the
 * folder again, and hold the prefix there. */
static gpuf_status make_temporary(gpuf_checkpoint *c, gpufi_checkpoint_temporary *temporary,
                                  gpuf_error *err) {
  const gpufi_checkpoint_keeping keeping = gpufi_checkpoint_keeping_of(c, c->finished_step);
  const gpuf_status status = gpufi_checkpoint_folder_check(&c->folder, err);
  if (status != GPUF_OK) {
    return status;
  }
  return gpufi_checkpoint_recycle(&c->folder, &keeping, c->contents.step, !c->options.unsynced,
                                  temporary)
             ? GPUF_OK
             : gpufi_checkpoint_temporary_create(&c->folder, c->contents.step, temporary, err);
}

/* What is left of an older checkpoint whose master was overwritten. What cannot be removed is tried
 * again by the next writer. */
static void remove_spares(const gpuf_checkpoint *c, const gpufi_checkpoint_temporary *temporary) {
  if (temporary->spare_step >= 0) {
    gpufi_checkpoint_shards_remove(&c->folder, temporary->spare_step, NULL, NULL, NULL);
  }
}

/* Write the temporary, and let the next snapshot use the memory. Of a failure nothing is left. */
static gpuf_status write_temporary(gpuf_checkpoint *c, gpufi_checkpoint_shards *shards,
                                   gpufi_checkpoint_temporary *temporary, uint64_t *file_nbytes,
                                   gpuf_error *err) {
  gpuf_status status = gpufi_checkpoint_enter(c, err);
  if (status != GPUF_OK) {
    gpufi_checkpoint_end_snapshot(c, status, err);
    return status;
  }
  status = make_temporary(c, temporary, err);
  if (status == GPUF_OK) {
    status = fill_all(c, shards, temporary, file_nbytes, err);
    remove_spares(c, temporary);
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_shards_end(shards, true);
  }
  gpufi_checkpoint_end_snapshot(c, status, err);
  gpufi_checkpoint_snapshot_release(&c->snapshot);
  gpufi_checkpoint_leave(c);
  return status;
}

/* The shards come to the disk before the master has its name, which makes it the checkpoint. */
static gpuf_status publish(gpuf_checkpoint *c, const gpufi_checkpoint_shards *shards,
                           const gpufi_checkpoint_temporary *temporary, gpuf_error *err) {
  const bool syncs = !c->options.unsynced;
  const gpuf_status status = gpufi_checkpoint_shards_finish(shards, &c->folder, syncs, err);
  if (status != GPUF_OK) {
    gpufi_checkpoint_temporary_remove(temporary);
    return status;
  }
  return gpufi_checkpoint_publish(&c->folder, c->contents.step, temporary, c->options.replace,
                                  syncs, err);
}

/* `note` gets what did not go well once the checkpoint was finished. */
static gpuf_status write_checkpoint(gpuf_checkpoint *c, gpufi_checkpoint_file_sizes *sizes,
                                    gpuf_error *note, gpuf_error *err) {
  gpufi_checkpoint_temporary temporary = {.fd = -1, .spare_step = -1};
  gpufi_checkpoint_shards shards = {NULL, 0};
  gpuf_status status = write_temporary(c, &shards, &temporary, &sizes->file_nbytes, err);
  sizes->recycled_nbytes = temporary.recycled_nbytes + gpufi_checkpoint_shards_recycled(&shards);
  if (status == GPUF_OK) {
    status = publish(c, &shards, &temporary, err);
    if (status == GPUF_OK) {
      gpufi_checkpoint_remove_older(c, &c->contents, note);
      c->finished_step = c->contents.step;
    }
    gpufi_checkpoint_shards_end(&shards, status != GPUF_OK &&
                                             !gpufi_checkpoint_is_published(c, temporary.fd));
  }
  if (temporary.fd >= 0) {
    close(temporary.fd);
  }
  return status;
}

/* Write a checkpoint alone, and report on it. Returns with the lock held. */
static void write_alone(gpuf_checkpoint *c) {
  gpuf_error error = {0};
  gpuf_error note = {0};
  gpufi_checkpoint_file_sizes sizes = {0, 0};
  const gpuf_status status = write_checkpoint(c, &sizes, &note, &error);
  gpufi_checkpoint_contents_clear(&c->contents);
  pthread_mutex_lock(&c->lock);
  gpufi_checkpoint_report_end(c, status, status == GPUF_OK ? &note : &error, &sizes);
  c->phase = GPUFI_CHECKPOINT_IDLE;
}

/* The same of this rank's share, or of all of them, without the report, which waits for the other
 * ranks. */
static void write_with_others(gpuf_checkpoint *c, gpufi_checkpoint_phase phase) {
  if (phase == GPUFI_CHECKPOINT_WRITING) {
    gpufi_checkpoint_write_share(c);
  } else {
    gpufi_checkpoint_join_shares(c);
  }
  pthread_mutex_lock(&c->lock);
  c->phase = GPUFI_CHECKPOINT_WRITTEN;
}

/* Whether there is something to do. Called with the lock held. */
static bool has_work(const gpuf_checkpoint *c) {
  return c->phase == GPUFI_CHECKPOINT_WRITING || c->phase == GPUFI_CHECKPOINT_JOINING;
}

static void *writer_main(void *arg) {
  gpuf_checkpoint *const c = arg;
  gpufi_checkpoint_begin_writing();
  pthread_mutex_lock(&c->lock);
  while (true) {
    while (!has_work(c) && !c->ends) {
      pthread_cond_wait(&c->changed, &c->lock);
    }
    if (!has_work(c)) {
      break;
    }
    const gpufi_checkpoint_phase phase = c->phase;
    pthread_mutex_unlock(&c->lock);
    if (c->ranks.count <= 1) {
      write_alone(c);
    } else {
      write_with_others(c, phase);
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    gpufi_checkpoint_leftovers_release(&c->leftovers);
    pthread_mutex_lock(&c->lock);
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

void gpufi_checkpoint_give_up(gpufi_checkpoint_member *member) {
  gpuf_checkpoint *const c = (gpuf_checkpoint *)member;
  gpuf_error error = {0};
  atomic_store(&c->stop, true);
  gpufi_checkpoint_queue_fail(&c->snapshot.queue, gpufi_checkpoint_fail_at_end(&error), &error);
  pthread_mutex_lock(&c->lock);
  while (c->is_entered) {
    pthread_cond_wait(&c->changed, &c->lock);
  }
  pthread_mutex_unlock(&c->lock);
}

bool gpufi_checkpoint_await_writer(gpuf_checkpoint *c, const struct timespec *deadline) {
  int code = 0;
  while (has_work(c) && code == 0) {
    code = deadline ? pthread_cond_timedwait(&c->changed, &c->lock, deadline)
                    : pthread_cond_wait(&c->changed, &c->lock);
  }
  return !has_work(c);
}

void gpufi_checkpoint_end_writer(gpuf_checkpoint *c) {
  pthread_mutex_lock(&c->lock);
  c->ends = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  pthread_join(c->thread, NULL);
}

gpuf_status gpufi_checkpoint_start_writer(gpuf_checkpoint *c, gpuf_error *err) {
  const int code = gpufi_thread_start(&c->thread, "gpufetch-ckpt", 0, writer_main, c);
  return code == 0
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, code,
                          "no thread could be started to write checkpoints: %s", strerror(code));
}
