#include "server/wake.h"

#include "base/error.h"
#include "base/system.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

gpuf_status gpufi_wake_open(int *fd, gpuf_error *err) {
  *fd = gpufi_fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return *fd >= 0 ? GPUF_OK : gpufi_fail(err, GPUF_ERR_IO, errno, "eventfd: %s", strerror(errno));
}

void gpufi_wake(int fd) {
  const uint64_t one = 1;
  while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void gpufi_wake_drain(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}
