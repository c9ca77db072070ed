#include "hdf5/checkpoint/writer.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

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

/* Fill the temporary, open as `fd`; it is removed unless it is whole. */
static gpuf_status fill(gpuf_checkpoint *c, int fd, uint64_t *file_nbytes, gpuf_error *err) {
  const int64_t step = c->contents.step;
  const gpufi_checkpoint_path path = gpufi_checkpoint_temporary_of(&c->folder, step);
  struct stat file = {.st_size = 0};
  gpuf_status status =
      gpufi_checkpoint_write(&c->writing, &c->snapshot, &c->contents, path.text, err);
  if (status == GPUF_OK && atomic_load(&c->stop)) {
    status = fail_at_end(err);
  }
  if (status == GPUF_OK && fstat(fd, &file) != 0) {
    status = gpufi_fail(err, GPUF_ERR_IO, errno, "looking at '%s' failed: %s", path.text,
                        strerror(errno));
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_temporary_remove(&c->folder, step);
  }
  *file_nbytes = (uint64_t)file.st_size;
  return status;
}

/* The committer may still be taking the snapshot: it ends with a failure of the writer's. */
static void end_snapshot(gpuf_checkpoint *c, gpuf_status status, const gpuf_error *error) {
  if (status != GPUF_OK) {
    gpufi_checkpoint_queue_fail(&c->snapshot.queue, status, error);
    gpufi_checkpoint_queue_await_end(&c->snapshot.queue, NULL);
  }
}

/* Write the temporary, *fd, and let the next snapshot use the memory. */
static gpuf_status write_temporary(gpuf_checkpoint *c, int *fd, uint64_t *file_nbytes,
                                   gpuf_error *err) {
  gpuf_status status = enter(c, err);
  if (status != GPUF_OK) {
    end_snapshot(c, status, err);
    return status;
  }
  status = gpufi_checkpoint_temporary_create(&c->folder, c->contents.step, fd, err);
  if (status == GPUF_OK) {
    status = fill(c, *fd, file_nbytes, err);
  }
  end_snapshot(c, status, err);
  gpufi_checkpoint_snapshot_release(&c->snapshot);
  leave(c);
  return status;
}

static gpuf_status write_checkpoint(gpuf_checkpoint *c, uint64_t *file_nbytes, gpuf_error *err) {
  const int64_t step = c->contents.step;
  int fd = -1;
  gpuf_status status = write_temporary(c, &fd, file_nbytes, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_publish(&c->folder, step, fd, c->options.replace,
                                      !c->options.unsynced, err);
    if (status == GPUF_OK) {
      gpufi_checkpoint_folder_prune(&c->folder, step, c->options.keep_count);
    } else {
      gpufi_checkpoint_temporary_remove(&c->folder, step);
    }
  }
  if (fd >= 0) {
    close(fd);
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
    uint64_t file_nbytes = 0;
    const gpuf_status status = write_checkpoint(c, &file_nbytes, &error);
    gpufi_checkpoint_contents_clear(&c->contents);
    pthread_mutex_lock(&c->lock);
    gpufi_checkpoint_report_end(c, status, &error, file_nbytes);
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
