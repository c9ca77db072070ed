#include "hdf5/driver/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"

gpufi_h5_driver_file *gpufi_h5_driver_file_create(void) {
  static uint64_t last_number;
  gpufi_h5_driver_file *file = calloc(1, sizeof(*file));
  if (!file) {
    return NULL;
  }
  file->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
  file->process_id = getpid();
  file->reference_count = 1;
  file->has_writer = true;
  file->target.fd = -1;
  file->thread_count = 1; /* threads that write to a new file wait for each other */
  gpufi_h5_deferred_init(&file->deferred);
  return file;
}

void gpufi_h5_driver_file_retain(gpufi_h5_driver_file *file) {
  __atomic_add_fetch(&file->reference_count, 1, __ATOMIC_RELAXED);
}

void gpufi_h5_driver_file_drop(gpufi_h5_driver_file *file) {
  if (__atomic_sub_fetch(&file->reference_count, 1, __ATOMIC_ACQ_REL) > 0) {
    return;
  }
  if (file->process_id == getpid()) { /* a forked child has not got it */
    gpufi_h5_io_unmap(&file->mapping);
  }
  gpufi_h5_extents_fini(&file->elements);
  gpufi_h5_deferred_fini(&file->deferred);
  free(file);
}

void gpufi_h5_driver_release(gpufi_h5_driver_file *file) {
  if (file) {
    __atomic_store_n(&file->has_writer, false, __ATOMIC_RELEASE);
    gpufi_h5_driver_file_drop(file);
  }
}

void gpufi_h5_driver_set_finished(gpufi_h5_driver_file *file) {
  file->is_finished = true;
}

void gpufi_h5_driver_note_elements(gpufi_h5_driver_file *file, bool notes_elements) {
  file->notes_elements = notes_elements;
}

void gpufi_h5_driver_probe(gpufi_h5_driver_file *file, const void *probe) {
  file->probe = probe;
  file->probed = (gpufi_h5_extent){0, 0};
}

gpufi_h5_extent gpufi_h5_driver_probed(gpufi_h5_driver_file *file) {
  const gpufi_h5_extent probed = file->probed;
  file->probe = NULL;
  return probed;
}

gpuf_status gpufi_h5_driver_error(const gpufi_h5_driver_file *file, gpuf_error *err) {
  const gpufi_h5_latch *latch = &file->latch;
  const gpuf_status status = gpufi_check_process(file->process_id, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpufi_h5_latch_is_set(latch)) {
    /* What the file is does not change by telling. */
    __atomic_store_n((bool *)&file->has_told, true, __ATOMIC_RELEASE);
    return gpufi_fail(err, GPUF_ERR_IO, latch->system_error,
                      "%s at byte %" PRIu64 " of '%s' failed: %s%s", latch->operation,
                      latch->offset, file->path, strerror(latch->system_error),
                      file->is_finished ? ""
                                        : "; what was written since is not in the file, which "
                                          "should be removed");
  }
  if (file->open_error != 0) {
    return gpufi_fail(err, GPUF_ERR_IO, file->open_error, "opening '%s' failed: %s", file->path,
                      strerror(file->open_error));
  }
  return GPUF_OK;
}

bool gpufi_h5_driver_is_open(const gpufi_h5_driver_file *file) {
  return __atomic_load_n(&file->is_open, __ATOMIC_RELAXED);
}

/* --- Deferred writes ------------------------------------------------------------- */

void gpufi_h5_driver_set_recycled(gpufi_h5_driver_file *file, int32_t thread_count) {
  file->is_recycled = true;
  file->thread_count = thread_count;
}

void gpufi_h5_driver_announce(gpufi_h5_driver_file *file, const void *bytes, size_t nbytes) {
  file->announced = bytes;
  file->announced_nbytes = nbytes;
}

bool gpufi_h5_driver_defer(gpufi_h5_driver_file *file, uint64_t offset, const void *bytes,
                           size_t nbytes) {
  const uintptr_t begin = (uintptr_t)file->announced;
  const uintptr_t at = (uintptr_t)bytes;
  if (!file->announced || nbytes == 0 || at < begin || nbytes > file->announced_nbytes ||
      at - begin > file->announced_nbytes - nbytes) {
    return false;
  }
  const gpufi_h5_write write = {offset, bytes, nbytes};
  pthread_mutex_lock(&file->deferred.mutex);
  const bool is_deferred = gpufi_h5_deferred_add(&file->deferred, &write);
  pthread_mutex_unlock(&file->deferred.mutex);
  return is_deferred;
}

/* The mutex is held here, and in the next three. */
static void lose(gpufi_h5_driver_file *file, gpufi_h5_writes *writes) {
  for (size_t i = 0; i < writes->count; i++) {
    const gpufi_h5_write *const w = &writes->all[i];
    const bool is_first = file->lost.begin == file->lost.end;
    if (is_first || w->offset < file->lost.begin) {
      file->lost.begin = w->offset;
    }
    if (is_first || w->offset + w->nbytes > file->lost.end) {
      file->lost.end = w->offset + w->nbytes;
    }
  }
  writes->count = 0;
}

/* Wait for what is under way. After a failure it is not known which of it is in the file. */
static void end_writes(gpufi_h5_driver_file *file) {
  uint64_t offset;
  if (file->deferred.under_way.count == 0) {
    return;
  }
  const int code = gpufi_h5_deferred_end(&file->deferred, &offset);
  if (code != 0) {
    gpufi_h5_latch_set(&file->latch, "write", code, offset);
    lose(file, &file->deferred.under_way);
  }
  file->deferred.under_way.count = 0;
}

static void begin_writes(gpufi_h5_driver_file *file) {
  end_writes(file);
  if (file->target.fd < 0 || gpufi_h5_latch_is_set(&file->latch)) {
    lose(file, &file->deferred.noted);
  } else if (file->deferred.noted.count > 0) {
    gpufi_h5_deferred_begin(&file->deferred, &file->target, file->thread_count);
  }
}

static void carry_out(gpufi_h5_driver_file *file) {
  begin_writes(file);
  end_writes(file);
}

void gpufi_h5_driver_begin(gpufi_h5_driver_file *file) {
  pthread_mutex_lock(&file->deferred.mutex);
  begin_writes(file);
  pthread_mutex_unlock(&file->deferred.mutex);
}

void gpufi_h5_driver_drain(gpufi_h5_driver_file *file) {
  pthread_mutex_lock(&file->deferred.mutex);
  carry_out(file);
  pthread_mutex_unlock(&file->deferred.mutex);
}

/* The mutex is held. */
static void end_mapping(gpufi_h5_driver_file *file) {
  carry_out(file);
  if (file->target.old) {
    file->mapping = gpufi_h5_io_take_mapping(&file->target);
  }
}

void gpufi_h5_driver_end_mapping(gpufi_h5_driver_file *file) {
  pthread_mutex_lock(&file->deferred.mutex);
  end_mapping(file);
  pthread_mutex_unlock(&file->deferred.mutex);
}

gpufi_h5_mapping gpufi_h5_driver_take_mapping(gpufi_h5_driver_file *file) {
  const gpufi_h5_mapping taken = file->mapping;
  file->mapping = (gpufi_h5_mapping){NULL, 0};
  return taken;
}

void gpufi_h5_driver_set_target(gpufi_h5_driver_file *file, int fd, uint64_t old_nbytes) {
  pthread_mutex_lock(&file->deferred.mutex);
  if (fd >= 0) {
    gpufi_h5_io_unmap(&file->mapping);
    /* One thread writes as fast without a mapping, whose end takes its time. */
    gpufi_h5_io_map(&file->target, fd, file->thread_count > 1 ? old_nbytes : 0);
  } else {
    end_mapping(file);
    file->target.fd = -1;
    gpufi_h5_deferred_dismiss(&file->deferred);
  }
  pthread_mutex_unlock(&file->deferred.mutex);
}

bool gpufi_h5_driver_settle(gpufi_h5_driver_file *file, uint64_t offset, size_t nbytes) {
  pthread_mutex_lock(&file->deferred.mutex);
  if (gpufi_h5_deferred_overlaps(&file->deferred, offset, nbytes)) {
    carry_out(file);
  }
  const bool is_there = offset >= file->lost.end || file->lost.begin >= offset + nbytes;
  pthread_mutex_unlock(&file->deferred.mutex);
  return is_there;
}
