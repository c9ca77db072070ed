/* The system calls of an open HDF5 file, carried out whole whatever signals arrive. Each returns 0,
 * or the errno value of the call that failed. Thread-safety: any thread. */
#ifndef GPUFI_HDF5_DRIVER_IO_H
#define GPUFI_HDF5_DRIVER_IO_H

#include <stddef.h>
#include <stdint.h>

/* Bytes behind the end of the file are read as zeros. After a failure the contents of `bytes` are
 * undefined. */
int gpufi_h5_io_read(int fd, uint64_t offset, void *bytes, size_t nbytes);
/* After a failure some of the bytes may have been written. */
int gpufi_h5_io_write(int fd, uint64_t offset, const void *bytes, size_t nbytes);
int gpufi_h5_io_truncate(int fd, uint64_t nbytes);
/* flock(2) with an operation that does not wait. */
int gpufi_h5_io_lock(int fd, int operation);

#endif
