#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t gpufi_env_int64(const char *name, int64_t fallback) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text) {
    return fallback;
  }
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  return errno != 0 || *end != '\0' || value < 0 ? fallback : (int64_t)value;
}

int32_t gpufi_cpu_count(void) {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return count > 0 ? count : 1;
}

uint64_t gpufi_process_start_time(int64_t process_id) {
  char path[64], text[1024];
  uint64_t start_time = 0;
  snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", process_id);
  FILE *file = fopen(path, "re");
  if (!file) {
    return 0;
  }
  const size_t nbytes = fread(text, 1, sizeof(text) - 1, file);
  fclose(file);
  text[nbytes] = '\0';
  const char *field = strrchr(text, ')'); /* the name before it may hold anything */
  for (int i = 0; field && i < 20; i++) {
    field = strchr(field + 1, ' ');
  }
  if (field) {
    start_time = strtoull(field, NULL, 10);
  }
  return start_time;
}

int gpufi_fd_above_stdio(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) {
    return fd;
  }
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int code = errno;
  close(fd);
  errno = code;
  return moved;
}
