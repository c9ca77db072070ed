/* The system calls of an open HDF5 file, carried out whole whatever signals arrive. Each returns 0,
 * or the errno value of the call that failed. Thread-safety: any thread. */
#ifndef GPUFI_HDF5_DRIVER_IO_H
#define GPUFI_HDF5_DRIVER_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Open the file, with open(2)'s flags but O_TRUNC, which ext4 takes as a request to write the file
 * to the disk when it is closed; with `is_cut` nothing of it is left. *status says what it is. */
int gpufi_h5_io_open(const char *path, int flags, bool is_cut, int *fd, struct stat *status);
/* Bytes behind the end of the file are read as zeros. After a failure the contents of `bytes` are
 * undefined. */
int gpufi_h5_io_read(int fd, uint64_t offset, void *bytes, size_t nbytes);
/* After a failure some of the bytes may have been written. */
int gpufi_h5_io_write(int fd, uint64_t offset, const void *bytes, size_t nbytes);
int gpufi_h5_io_truncate(int fd, uint64_t nbytes);

/* A file that is written to, and what it held before, which is overwritten. */
typedef struct gpufi_h5_target {
  int fd;
  uint8_t *old; /* its first bytes, mapped for writing; NULL: none */
  size_t old_nbytes;
} gpufi_h5_target;

/* A mapping of a file that is written to through it no more. */
typedef struct gpufi_h5_mapping {
  void *bytes; /* NULL: none */
  size_t nbytes;
} gpufi_h5_mapping;

/* Map what the open file holds. Where that is not possible it is written to as any other. Forked
 * children do not have the mapping. */
void gpufi_h5_io_map(gpufi_h5_target *target, int fd, uint64_t nbytes);
/* From now on the file is written to as any other; the caller ends the mapping. */
gpufi_h5_mapping gpufi_h5_io_take_mapping(gpufi_h5_target *target);
/* Takes the longer the more was written through it. */
void gpufi_h5_io_unmap(gpufi_h5_mapping *mapping);
/* As gpufi_h5_io_write. What the file held before is overwritten through the mapping, in which
 * several threads do not wait for each other as they do in write(2). The kernel copies the bytes,
 * by process_vm_readv of the process's own memory: where a page cannot be had (a full disk, an I/O
 * error, a file that was cut) it says so, and the process gets no SIGBUS. */
int gpufi_h5_io_overwrite(const gpufi_h5_target *target, uint64_t offset, const void *bytes,
                          size_t nbytes);
/* flock(2) with an operation that does not wait. */
int gpufi_h5_io_lock(int fd, int operation);

#endif
