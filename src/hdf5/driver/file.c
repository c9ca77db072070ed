#include "hdf5/driver/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"

gpufi_h5_driver_file *gpufi_h5_driver_file_create(const gpufi_h5_driver_options *options) {
  static uint64_t last_number;
  gpufi_h5_driver_file *file = calloc(1, sizeof(*file));
  if (!file) {
    return NULL;
  }
  file->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
  file->process_id = getpid();
  file->options = *options;
  file->reference_count = 1;
  file->has_writer = true;
  gpufi_h5_pending_init(&file->pending, &file->latch, options->thread_count);
  return file;
}

void gpufi_h5_driver_file_retain(gpufi_h5_driver_file *file) {
  __atomic_add_fetch(&file->reference_count, 1, __ATOMIC_RELAXED);
}

void gpufi_h5_driver_file_drop(gpufi_h5_driver_file *file) {
  if (__atomic_sub_fetch(&file->reference_count, 1, __ATOMIC_ACQ_REL) > 0) {
    return;
  }
  if (file->process_id == getpid()) {
    gpufi_h5_pending_fini(&file->pending);
  }
  free(file);
}

void gpufi_h5_driver_release(gpufi_h5_driver_file *file) {
  if (file) {
    __atomic_store_n(&file->has_writer, false, __ATOMIC_RELEASE);
    gpufi_h5_driver_file_drop(file);
  }
}

void gpufi_h5_driver_announce(gpufi_h5_driver_file *file, const void *bytes, size_t nbytes,
                              void (*done)(void *arg), void *arg) {
  gpufi_h5_driver_withdraw(file);
  file->announced = (gpufi_h5_range){.bytes = bytes, .nbytes = nbytes, .done = done, .arg = arg};
}

bool gpufi_h5_driver_withdraw(gpufi_h5_driver_file *file) {
  const gpufi_h5_range announced = file->announced;
  memset(&file->announced, 0, sizeof(file->announced));
  if (announced.bytes && announced.done) {
    announced.done(announced.arg);
  }
  return !announced.bytes;
}

bool gpufi_h5_driver_file_defer(gpufi_h5_driver_file *file, int fd, uint64_t offset,
                                const void *bytes, size_t nbytes) {
  gpufi_h5_range range = file->announced;
  if (!range.bytes || range.bytes != bytes || range.nbytes != nbytes) {
    return false;
  }
  range.fd = fd;
  range.offset = offset;
  if (!gpufi_h5_pending_add(&file->pending, &range)) {
    return false;
  }
  memset(&file->announced, 0, sizeof(file->announced));
  file->deferred_count++;
  return true;
}

gpuf_status gpufi_h5_driver_drain(gpufi_h5_driver_file *file, gpuf_error *err) {
  const gpuf_status status = gpufi_check_process(file->process_id, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_pending_drain(&file->pending);
  return gpufi_h5_driver_error(file, err);
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
                      "%s at byte %" PRIu64 " of '%s' failed: %s; what was written since is not in "
                      "the file, which should be removed",
                      latch->operation, latch->offset, file->path, strerror(latch->system_error));
  }
  if (file->open_error != 0) {
    return gpufi_fail(err, GPUF_ERR_IO, file->open_error, "opening '%s' failed: %s", file->path,
                      strerror(file->open_error));
  }
  return GPUF_OK;
}
