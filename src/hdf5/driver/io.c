#include "hdf5/driver/io.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int gpufi_h5_io_read(int fd, uint64_t offset, void *bytes, size_t nbytes) {
  size_t done = 0;
  while (done < nbytes) {
    const ssize_t count = pread(fd, (char *)bytes + done, nbytes - done, (off_t)(offset + done));
    if (count < 0 && errno != EINTR) {
      return errno;
    }
    if (count == 0) {
      memset((char *)bytes + done, 0, nbytes - done);
      return 0;
    }
    done += count > 0 ? (size_t)count : 0;
  }
  return 0;
}

int gpufi_h5_io_write(int fd, uint64_t offset, const void *bytes, size_t nbytes) {
  size_t done = 0;
  while (done < nbytes) {
    const ssize_t count =
        pwrite(fd, (const char *)bytes + done, nbytes - done, (off_t)(offset + done));
    if (count < 0 && errno != EINTR) {
      return errno;
    }
    if (count == 0) {
      return EIO; /* it would never end */
    }
    done += count > 0 ? (size_t)count : 0;
  }
  return 0;
}

/* The outcome of `call`, which gives -1 and errno after a failure, once no signal interrupts it. */
#define UNINTERRUPTED(call)                                                                        \
  do {                                                                                             \
    if ((call) == 0) {                                                                             \
      return 0;                                                                                    \
    }                                                                                              \
  } while (errno == EINTR);                                                                        \
  return errno

int gpufi_h5_io_truncate(int fd, uint64_t nbytes) {
  UNINTERRUPTED(ftruncate(fd, (off_t)nbytes));
}

int gpufi_h5_io_lock(int fd, int operation) {
  UNINTERRUPTED(flock(fd, operation | LOCK_NB));
}
