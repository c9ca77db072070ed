/* Any bytes into the check of checkpoints' seals: as they are; and sealed, which must be accepted,
 * until one bit changes that is not left out. */
#include "hdf5/checkpoint/seal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static const char name[] = "file";

static void require(bool holds) {
  if (!holds) {
    abort();
  }
}

static gpuf_status check(int fd) {
  gpuf_error err;
  return gpufi_checkpoint_check_seal(fd, name, lseek(fd, 0, SEEK_END), &err);
}

/* Ranges from the first bytes, as lengths of what is left out and kept in turn. */
static gpufi_h5_extents ranges_of(const uint8_t *data, size_t nbytes) {
  gpufi_h5_extents ranges = {NULL, 0, 0};
  uint64_t at = 0;
  for (size_t i = 0; i + 1 < nbytes && i < 8; i += 2) {
    at += data[i];
    gpufi_h5_extents_add(&ranges, at, at + 1 + data[i + 1] % 32);
    at += 1 + data[i + 1] % 32;
  }
  return ranges;
}

static bool is_left_out(const gpufi_h5_extents *ranges, uint64_t at, uint64_t nbytes) {
  for (size_t i = 0; i < ranges->count; i++) {
    const gpufi_h5_extent *const e = &ranges->ranges[i];
    if (at >= e->begin && at < e->end && e->end <= nbytes) {
      return true;
    }
  }
  return false;
}

static void flip(int fd, off_t at, int bit) {
  unsigned char byte;
  require(pread(fd, &byte, 1, at) == 1);
  byte ^= (unsigned char)(1 << bit);
  require(pwrite(fd, &byte, 1, at) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  gpuf_error err;
  const int fd = memfd_create(name, 0);
  require(fd >= 0 && write(fd, data, nbytes) == (ssize_t)nbytes);
  check(fd);
  gpufi_h5_extents ranges = ranges_of(data, nbytes);
  require(gpufi_checkpoint_seal(fd, name, &ranges, &err) == GPUF_OK);
  require(check(fd) == GPUF_OK);
  const off_t all = lseek(fd, 0, SEEK_END);
  const off_t at = (off_t)((nbytes > 8 ? data[8] : 0) * (uint64_t)all / 256);
  flip(fd, at, nbytes > 9 ? data[9] % 8 : 0);
  require((check(fd) == GPUF_OK) == is_left_out(&ranges, (uint64_t)at, nbytes));
  gpufi_h5_extents_fini(&ranges);
  close(fd);
  return 0;
}
