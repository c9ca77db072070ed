/* What the checkpoint tests share: a folder, a state with its expected bytes, and restarts. */
#ifndef GPUFI_TEST_CHECKPOINT_FILES_H
#define GPUFI_TEST_CHECKPOINT_FILES_H

#include <dirent.h>
#include <gpufetch/checkpoint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "hdf5_files.h"

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

/* Free tensors that create_cpu, create_on_device and copy_to_device have made. */
#define DESTROY(...)                                                                               \
  do {                                                                                             \
    gpuf_tensor *const destroyed_[] = {__VA_ARGS__};                                               \
    for (size_t d_ = 0; d_ < sizeof(destroyed_) / sizeof(destroyed_[0]); d_++) {                   \
      destroy(destroyed_[d_]);                                                                     \
    }                                                                                              \
  } while (0)

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
  gpuf_tensor found = create_cpu(expected->dtype, expected->ndim, expected->shape, 77);
  gpuf_tensor d_found = create_on_device(expected);
  CHECK_OK(gpuf_restart_read(r, name, &found, NULL, &err));
  check_equal(&found, expected);
  CHECK_OK(gpuf_restart_read(r, name, &d_found, NULL, &err));
  check_equal(&d_found, expected);
  DESTROY(&found, &d_found);
}

#endif
