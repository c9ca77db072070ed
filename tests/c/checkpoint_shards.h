/* What tests of sharded checkpoints share: the names of shards. */
#ifndef GPUFI_TEST_CHECKPOINT_SHARDS_H
#define GPUFI_TEST_CHECKPOINT_SHARDS_H

#include "checkpoint_files.h"

/* The name of a step's shard, of which there must be one. */
static inline const char *shard_name(const char *prefix, int64_t step, int index) {
  static char name[256];
  char begin[100], end[30];
  int count = 0;
  snprintf(begin, sizeof(begin), "%s-%012d.", prefix, (int)step);
  snprintf(end, sizeof(end), ".%d.h5", index);
  DIR *const entries = opendir(folder);
  CHECK(entries);
  for (const struct dirent *entry; (entry = readdir(entries));) {
    const size_t nbytes = strlen(entry->d_name);
    if (strncmp(entry->d_name, begin, strlen(begin)) == 0 && nbytes > strlen(end) + strlen(begin) &&
        strcmp(entry->d_name + nbytes - strlen(end), end) == 0) {
      snprintf(name, sizeof(name), "%s", entry->d_name);
      count++;
    }
  }
  closedir(entries);
  CHECK(count == 1);
  return name;
}

/* How many shards there are of a step. */
static inline int count_shards(const char *prefix, int64_t step) {
  char begin[100];
  snprintf(begin, sizeof(begin), "%s-%012d.", prefix, (int)step);
  char master[110];
  snprintf(master, sizeof(master), "%sh5", begin);
  return count_files(begin, false) - (access(path_in_folder(master), F_OK) == 0);
}

/* Whether the name is that of a shard whose master is not there. */
static inline bool is_orphan(const char *name) {
  const char *const dot = strchr(name, '.');
  char master[300];
  if (!dot || !strstr(dot, ".h5") || strcmp(dot, ".h5") == 0 || *name == '.') {
    return false;
  }
  snprintf(master, sizeof(master), "%.*s.h5", (int)(dot - name), name);
  return access(path_in_folder(master), F_OK) != 0;
}

static inline int count_orphans(void) {
  int count = 0;
  DIR *const entries = opendir(folder);
  CHECK(entries);
  for (const struct dirent *entry; (entry = readdir(entries));) {
    count += is_orphan(entry->d_name);
  }
  closedir(entries);
  return count;
}

#endif
