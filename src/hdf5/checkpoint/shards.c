#include "hdf5/checkpoint/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/publish.h"
#include "base/system.h"
#include "base/thread.h"
#include "core/workers.h"
#include "hdf5/checkpoint/expired.h"
#include "hdf5/checkpoint/process.h"
#include "hdf5/checkpoint/shard_files.h"

/* As a session has them where nothing else is said. */
#define THREADS_DEFAULT_MAX 16

/* --- Writing ----------------------------------------------------------------- */

/* What the thread of one shard does. */
typedef struct shard_job {
  const gpufi_checkpoint_writing *writing;
  gpufi_checkpoint_snapshot *snapshot;
  gpufi_checkpoint_contents *contents; /* of which it changes what is said of its shard alone */
  size_t index;
  const gpufi_checkpoint_temporary *file;
  pthread_t thread;
  gpuf_status status;
  gpuf_error error;
} shard_job;

/* A failure of one ends the snapshot, and so the others. */
static void *shard_main(void *arg) {
  shard_job *const job = arg;
  gpufi_checkpoint_begin_writing();
  job->status = gpufi_checkpoint_write_shard(job->writing, job->snapshot, job->contents, job->index,
                                             job->file, &job->error);
  if (job->status != GPUF_OK) {
    gpufi_checkpoint_queue_fail(&job->snapshot->queue, job->status, &job->error);
  }
  return NULL;
}

static gpuf_status fail_thread(int code, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, code,
                    "no thread could be started to write a shard: %s", strerror(code));
}

/* Each shard needs its thread, since the snapshot waits for all of them. */
static gpuf_status run_jobs(shard_job *jobs, size_t count, gpuf_error *err) {
  size_t started = 0;
  int code = 0;
  while (started < count && code == 0) {
    code =
        gpufi_thread_start(&jobs[started].thread, "gpufetch-shard", 0, shard_main, &jobs[started]);
    started += code == 0;
  }
  gpuf_status status = GPUF_OK;
  if (code != 0) {
    status = fail_thread(code, err);
    gpufi_checkpoint_queue_fail(&jobs[0].snapshot->queue, status, err);
  }
  for (size_t i = 0; i < started; i++) {
    pthread_join(jobs[i].thread, NULL);
    if (status == GPUF_OK && jobs[i].status != GPUF_OK) {
      status = jobs[i].status;
      *err = jobs[i].error;
    }
  }
  return status;
}

/* The threads that encode are divided among the shards. */
static int32_t threads_of(const gpufi_checkpoint_writing *writing, size_t count) {
  const int32_t cores = gpufi_cpu_count();
  const int32_t all = writing->thread_count         ? writing->thread_count
                      : cores < THREADS_DEFAULT_MAX ? cores
                                                    : THREADS_DEFAULT_MAX;
  const int32_t each = all / (int32_t)count;
  return each > 0 ? each : 1;
}

static gpuf_status write_files(const gpufi_checkpoint_shards *shards,
                               const gpufi_checkpoint_writing *writing,
                               gpufi_checkpoint_snapshot *snapshot,
                               gpufi_checkpoint_contents *contents, gpuf_error *err) {
  gpufi_checkpoint_writing each = *writing;
  shard_job *const jobs = calloc(shards->count, sizeof(*jobs));
  if (!jobs) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu shards", shards->count);
  }
  each.thread_count = threads_of(writing, shards->count);
  for (size_t i = 0; i < shards->count; i++) {
    jobs[i] = (shard_job){.writing = &each,
                          .snapshot = snapshot,
                          .contents = contents,
                          .index = i,
                          .file = &shards->files[i]};
  }
  const gpuf_status status = run_jobs(jobs, shards->count, err);
  free(jobs);
  return status;
}

/* --- Files ------------------------------------------------------------------- */

static gpuf_status make_file(gpufi_checkpoint_temporary *file,
                             const gpufi_checkpoint_folder *folder,
                             const gpufi_checkpoint_temporary *master, size_t index,
                             const char *name, gpuf_error *err) {
  file->path = gpufi_checkpoint_path_in(folder, name);
  if (gpufi_checkpoint_recycle_shard(folder, master, index, file)) {
    return GPUF_OK;
  }
  file->fd = gpufi_open(file->path.text, O_RDWR | O_CREAT | O_EXCL, 0666);
  return file->fd >= 0 ? GPUF_OK
                       : gpufi_fail_system(err, "making the file", file->path.text, errno);
}

gpuf_status gpufi_checkpoint_shards_write(gpufi_checkpoint_shards *shards,
                                          const gpufi_checkpoint_writing *writing,
                                          const gpufi_checkpoint_folder *folder,
                                          const gpufi_checkpoint_temporary *master,
                                          gpufi_checkpoint_snapshot *snapshot,
                                          gpufi_checkpoint_contents *contents, gpuf_error *err) {
  const size_t count = contents->shard_count;
  gpuf_status status = GPUF_OK;
  if (count == 0) {
    return GPUF_OK;
  }
  shards->files = calloc(count, sizeof(*shards->files));
  if (!shards->files) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu shards", count);
  }
  while (shards->count < count && status == GPUF_OK) {
    const size_t i = shards->count++;
    status = make_file(&shards->files[i], folder, master, i, contents->shards[i].name, err);
  }
  return status == GPUF_OK ? write_files(shards, writing, snapshot, contents, err) : status;
}

uint64_t gpufi_checkpoint_shards_nbytes(const gpufi_checkpoint_contents *contents) {
  uint64_t nbytes = 0;
  for (size_t i = 0; i < contents->shard_count; i++) {
    nbytes += contents->shards[i].nbytes;
  }
  return nbytes;
}

uint64_t gpufi_checkpoint_shards_recycled(const gpufi_checkpoint_shards *shards) {
  uint64_t nbytes = 0;
  for (size_t i = 0; i < shards->count; i++) {
    nbytes += shards->files[i].recycled_nbytes;
  }
  return nbytes;
}

void gpufi_checkpoint_shards_end(gpufi_checkpoint_shards *shards, bool removes) {
  for (size_t i = 0; i < shards->count; i++) {
    if (shards->files[i].fd >= 0) {
      if (removes) {
        gpufi_remove_name(shards->files[i].path.text, shards->files[i].fd);
      }
      gpufi_close(shards->files[i].fd);
    }
  }
  free(shards->files);
  *shards = (gpufi_checkpoint_shards){NULL, 0};
}

/* --- Finishing --------------------------------------------------------------- */

static gpuf_status flush_file(void *arg, size_t index, gpuf_error *err) {
  const gpufi_checkpoint_temporary *const files = arg;
  return gpufi_sync_descriptor(files[index].fd, files[index].path.text, err);
}

static gpuf_status flush_all(const gpufi_checkpoint_shards *shards,
                             const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  const gpuf_status status =
      gpufi_workers_each(shards->count, (int32_t)shards->count, flush_file, shards->files, err);
  return status == GPUF_OK ? gpufi_checkpoint_folder_sync(folder, err) : status;
}

gpuf_status gpufi_checkpoint_shards_finish(const gpufi_checkpoint_shards *shards,
                                           const gpufi_checkpoint_folder *folder, bool syncs,
                                           gpuf_error *err) {
  gpuf_status status = syncs && shards->count > 0 ? flush_all(shards, folder, err) : GPUF_OK;
  for (size_t i = 0; i < shards->count && status == GPUF_OK; i++) {
    status = gpufi_check_name(shards->files[i].path.text, shards->files[i].fd, err);
  }
  return status;
}
