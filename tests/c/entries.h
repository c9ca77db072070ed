/* How many entries a folder has: files, or the descriptors and threads in /proc/self. */
#ifndef GPUFI_TEST_ENTRIES_H
#define GPUFI_TEST_ENTRIES_H

#include <dirent.h>

#include "test.h"

static inline int count_entries(const char *path) {
  int count = 0;
  DIR *entries = opendir(path);
  CHECK(entries);
  while (readdir(entries)) {
    count++;
  }
  closedir(entries);
  return count;
}

#endif
