#include "hdf5/driver/io.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/system.h"

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

/* An empty file is not truncated: to ext4 that is O_TRUNC, too. */
static int look_at(int fd, bool is_cut, struct stat *status) {
  if (fstat(fd, status) != 0) {
    return errno;
  }
  const bool has_bytes = status->st_size > 0;
  status->st_size = is_cut ? 0 : status->st_size;
  return is_cut && has_bytes ? gpufi_h5_io_truncate(fd, 0) : 0;
}

int gpufi_h5_io_open(const char *path, int flags, bool is_cut, int *fd, struct stat *status) {
  *fd = gpufi_open(path, flags, 0666);
  if (*fd < 0) {
    return errno;
  }
  const int code = look_at(*fd, is_cut, status);
  if (code != 0) {
    close(*fd);
    *fd = -1;
  }
  return code;
}

void gpufi_h5_io_map(gpufi_h5_target *target, int fd, uint64_t nbytes) {
  *target = (gpufi_h5_target){.fd = fd};
  if (nbytes > 0 && nbytes <= SIZE_MAX / 2) {
    void *const old = mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (old != MAP_FAILED) {
      madvise(old, (size_t)nbytes, MADV_DONTFORK);
      target->old = old;
      target->old_nbytes = (size_t)nbytes;
    }
  }
}

gpufi_h5_mapping gpufi_h5_io_take_mapping(gpufi_h5_target *target) {
  const gpufi_h5_mapping mapping = {target->old, target->old_nbytes};
  *target = (gpufi_h5_target){.fd = target->fd};
  return mapping;
}

void gpufi_h5_io_unmap(gpufi_h5_mapping *mapping) {
  if (mapping->bytes) {
    munmap(mapping->bytes, mapping->nbytes);
  }
  *mapping = (gpufi_h5_mapping){NULL, 0};
}

/* How many bytes were written through the mapping: those before the first page that could not be
 * had, or none where the system forbids the call. The mapping is the side of the call that the
 * kernel touches as the process would: of the other one it looks up every page while all threads
 * wait for the lock of the process's memory. */
static size_t write_mapped(const gpufi_h5_target *target, uint64_t offset, const void *bytes,
                           size_t nbytes) {
  size_t done = 0;
  if (offset >= target->old_nbytes) {
    return 0;
  }
  const size_t left = target->old_nbytes - (size_t)offset;
  nbytes = nbytes < left ? nbytes : left;
  while (done < nbytes) {
    const struct iovec from = {(char *)bytes + done, nbytes - done};
    const struct iovec to = {target->old + offset + done, nbytes - done};
    const ssize_t count = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (count <= 0) {
      break;
    }
    done += (size_t)count;
  }
  return done;
}

int gpufi_h5_io_overwrite(const gpufi_h5_target *target, uint64_t offset, const void *bytes,
                          size_t nbytes) {
  const size_t done = write_mapped(target, offset, bytes, nbytes);
  return gpufi_h5_io_write(target->fd, offset + done, (const char *)bytes + done, nbytes - done);
}
