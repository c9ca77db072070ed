/* What the checkpoint tests share: a folder, a state with its expected bytes, and restarts. */
#ifndef GPUFI_TEST_CHECKPOINT_FILES_H
#define GPUFI_TEST_CHECKPOINT_FILES_H

#include <dirent.h>
#include <gpufetch/checkpoint.h>
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "devices.h"

static gpuf_error err;
static char folder[64];

static inline void make_folder(void) {
  CHECK(H5open() >= 0); /* so that the linker keeps libhdf5 */
  strcpy(folder, "checkpoints-XXXXXX");
  CHECK(mkdtemp(folder));
}

static inline bool is_hidden_or_not(const char *name) {
  return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static inline const char *path_in_folder(const char *name) {
  static char path[400];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return path;
}

/* How many files of the folder have the text in their names; with `removes`, they go. */
static inline int count_files(const char *text, bool removes) {
  int count = 0;
  DIR *const entries = opendir(folder);
  CHECK(entries);
  for (const struct dirent *entry; (entry = readdir(entries));) {
    if (is_hidden_or_not(entry->d_name) && strstr(entry->d_name, text)) {
      count++;
      if (removes) {
        unlink(path_in_folder(entry->d_name));
      }
    }
  }
  closedir(entries);
  return count;
}

static inline void remove_folder(void) {
  count_files("", true);
  CHECK(rmdir(folder) == 0);
}

static inline gpuf_checkpoint_options options_in_folder(const char *prefix) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  options.directory = folder;
  options.prefix = prefix;
  options.unsynced = true;
  return options;
}

static inline gpuf_checkpoint *open_writer(const gpuf_checkpoint_options *options) {
  gpuf_checkpoint *c = NULL;
  CHECK_OK(gpuf_checkpoint_open(options, &c, NULL, &err));
  CHECK(c);
  return c;
}

/* Elements of a smooth field with some noise, packed, on the CPU. */
static inline gpuf_tensor create_field(gpuf_dtype dtype, int32_t ndim, const int64_t *shape,
                                       uint64_t seed) {
  gpuf_tensor tensor;
  size_t nbytes = gpuf_dtype_nbytes(dtype);
  for (int32_t axis = 0; axis < ndim; axis++) {
    nbytes *= (size_t)shape[axis];
  }
  unsigned char *const bytes = malloc(nbytes + 1);
  CHECK(bytes);
  fill_random(bytes, nbytes, seed);
  if (dtype == GPUF_DTYPE_FLOAT32) {
    for (size_t i = 0; i < nbytes / 4; i++) {
      const float value = sinf((float)i * 0.01f + (float)seed) + (float)bytes[4 * i] * 1e-4f;
      memcpy(bytes + 4 * i, &value, 4);
    }
  } else if (dtype == GPUF_DTYPE_BOOL) {
    for (size_t i = 0; i < nbytes; i++) {
      bytes[i] &= 1;
    }
  }
  CHECK_OK(gpuf_tensor_init(&tensor, bytes, cpu_device, dtype, ndim, shape, &err));
  tensor.data = bytes;
  return tensor;
}

static inline gpuf_tensor create_on_device(const gpuf_tensor *like) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_alloc(test_device, like->dtype, like->ndim, like->shape, &tensor, &err));
  return tensor;
}

static inline gpuf_tensor copy_to_device(const gpuf_tensor *src) {
  const gpuf_tensor tensor = create_on_device(src);
  CHECK_OK(gpuf_copy(&tensor, src, NULL, &err));
  return tensor;
}

static inline void destroy(gpuf_tensor *tensor) {
  if (tensor->device.kind == GPUF_DEVICE_CPU) {
    free(tensor->data);
  } else {
    CHECK_OK(gpuf_tensor_free(tensor, &err));
  }
}

/* Open the newest checkpoint, which must be that of `step`. */
static inline gpuf_restart *open_restart(const char *prefix, int64_t step) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  CHECK_OK(gpuf_restart_open(folder, prefix, -1, &r, &report, &err));
  CHECK(r && report.step == step);
  return r;
}

/* The restart's tensor `name` has the bytes of `expected`, read to the CPU and to the device. */
static inline void check_restarted(gpuf_restart *r, const char *name, const gpuf_tensor *expected) {
  gpuf_tensor found = create_field(expected->dtype, expected->ndim, expected->shape, 77);
  const size_t nbytes = gpuf_tensor_nbytes(expected);
  CHECK_OK(gpuf_restart_read(r, name, &found, NULL, &err));
  CHECK(memcmp(found.data, expected->data, nbytes) == 0);
  gpuf_tensor d_found = create_on_device(expected);
  memset(found.data, 0x5a, nbytes);
  CHECK_OK(gpuf_restart_read(r, name, &d_found, NULL, &err));
  CHECK_OK(gpuf_copy(&found, &d_found, NULL, &err));
  CHECK(memcmp(found.data, expected->data, nbytes) == 0);
  destroy(&d_found);
  destroy(&found);
}

#endif
