#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
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

bool gpufi_env_is_int64(const char *name) {
  const char *text = getenv(name);
  return !text || !*text || gpufi_env_int64(name, -1) >= 0;
}

int32_t gpufi_cpu_count(void) {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return count > 0 ? count : 1;
}

/* Field `number` of the text of /proc/PID/stat, counted from 1. The second is the program's name in
 * parentheses, which may hold anything; only fields behind it can be found. NULL if there is none.
 */
static const char *stat_field(const char *text, int number) {
  const char *field = strrchr(text, ')');
  for (int i = 2; field && i < number; i++) {
    field = strchr(field + 1, ' ');
  }
  return field ? field + 1 : NULL;
}

/* Whether all threads of a process have ended. The state is the first thread's, which may end
 * before the others. */
static bool has_ended(const char *stat_text) {
  const char *state = stat_field(stat_text, 3), *thread_count = stat_field(stat_text, 20);
  return state && thread_count && (*state == 'Z' || *state == 'X') &&
         strtol(thread_count, NULL, 10) <= 1;
}

#define STAT_NBYTES 1024

/* Read /proc/PID/stat; "" if there is no such process. */
static void read_stat(int64_t process_id, char text[STAT_NBYTES]) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", process_id);
  const int fd = gpufi_open(path, O_RDONLY, 0);
  const int64_t nbytes = fd >= 0 ? gpufi_read(fd, text, STAT_NBYTES - 1) : 0;
  text[nbytes > 0 ? nbytes : 0] = '\0';
  if (fd >= 0) {
    gpufi_close(fd);
  }
}

uint64_t gpufi_process_start_time(int64_t process_id) {
  char text[STAT_NBYTES];
  read_stat(process_id, text);
  const char *start_time = has_ended(text) ? NULL : stat_field(text, 22);
  return start_time ? strtoull(start_time, NULL, 10) : 0;
}

int64_t gpufi_process_parent(int64_t process_id) {
  char text[STAT_NBYTES];
  read_stat(process_id, text);
  const char *parent = stat_field(text, 4);
  return parent ? strtoll(parent, NULL, 10) : 0;
}

bool gpufi_random_bytes(void *bytes, size_t nbytes) {
  ssize_t count;
  do { /* up to 256 bytes come whole, or not at all */
    count = getrandom(bytes, nbytes, 0);
  } while (count < 0 && errno == EINTR);
  return count == (ssize_t)nbytes;
}

int gpufi_open(const char *path, int flags, unsigned mode) {
  int fd;
  do {
    fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
  } while (fd < 0 && errno == EINTR);
  return gpufi_fd_above_stdio(fd);
}

int64_t gpufi_read(int fd, void *bytes, size_t nbytes) {
  size_t done = 0;
  while (done < nbytes) {
    const ssize_t count = read(fd, (char *)bytes + done, nbytes - done);
    if (count == 0) {
      break;
    }
    if (count < 0 && errno != EINTR) {
      return -1;
    }
    done += count > 0 ? (size_t)count : 0;
  }
  return (int64_t)done;
}

static bool write_all(int fd, const void *bytes, size_t nbytes) {
  size_t done = 0;
  while (done < nbytes) {
    const ssize_t count = write(fd, (const char *)bytes + done, nbytes - done);
    if (count < 0 && errno != EINTR) {
      return false;
    }
    done += count > 0 ? (size_t)count : 0;
  }
  return true;
}

/* Beyond the limit of a file's size (`ulimit -f`) the system also sends the thread a signal, by
 * which the process ends: it is taken before it arrives. */
bool gpufi_write(int fd, const void *bytes, size_t nbytes) {
  static const struct timespec now = {0, 0};
  sigset_t signals, previous, pending;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, &previous);
  const bool was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ);
  const bool done = write_all(fd, bytes, nbytes);
  const int code = errno;
  if (!done && code == EFBIG && !was_pending) {
    sigtimedwait(&signals, NULL, &now);
  }
  pthread_sigmask(SIG_SETMASK, &previous, NULL);
  errno = code;
  return done;
}

bool gpufi_close(int fd) {
  return close(fd) == 0 || errno == EINTR;
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
