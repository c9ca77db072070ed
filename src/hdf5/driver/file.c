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
  return file;
}

void gpufi_h5_driver_file_retain(gpufi_h5_driver_file *file) {
  __atomic_add_fetch(&file->reference_count, 1, __ATOMIC_RELAXED);
}

void gpufi_h5_driver_file_drop(gpufi_h5_driver_file *file) {
  if (__atomic_sub_fetch(&file->reference_count, 1, __ATOMIC_ACQ_REL) > 0) {
    return;
  }
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
