/* The host backend: a fake GPU that fails where a real one would.
 *
 *   - A stream is a thread with a FIFO queue: work really is asynchronous.
 *   - Device memory is mapped twice: at the device address, where nobody may touch it, and at an
 *     alias that only the stream threads use. A host access to a device pointer is a SIGSEGV.
 *   - Fresh device memory is filled with GPUFI_HOST_POISON (a NaN in every float type).
 *   - Work on an address outside a live allocation fails the stream.
 *   - Faults and a slow link can be injected (faults.h).
 *
 * A header for each module: memory.h, stream.h, faults.h, ipc.h, copy.h, kernel.h, reduce.h,
 * codec.h. table.c puts them together. Thread-safety of all: any thread. */
#ifndef GPUFI_BACKEND_HOST_HOST_H
#define GPUFI_BACKEND_HOST_HOST_H

#define GPUFI_HOST_DEVICE_COUNT 2
#define GPUFI_HOST_POISON 0xff

#endif
