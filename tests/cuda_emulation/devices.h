/* The devices of the emulation: their memory and whose turn they have in a thread. Thread-safety:
 * any thread. */
#ifndef GPUFI_TEST_CUDA_EMULATION_DEVICES_H
#define GPUFI_TEST_CUDA_EMULATION_DEVICES_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#define EMULATION_DEVICE_COUNT 2
#define EMULATION_DEVICE_NBYTES ((size_t)4 << 30)
/* Shared memory that a thread block may have: of an H200, and of a GPU for desktops. */
#define EMULATION_SHARED_NBYTES(device) ((device) == 0 ? 227 << 10 : 99 << 10)

/* The device that is current in the calling thread. */
int emulation_device(void);

/* An allocation, or a range of the program's memory that is page-locked. */
typedef struct emulation_range {
  struct emulation_range *next;
  unsigned char *begin;
  size_t nbytes;
  int device;
  enum cudaMemoryType type;
} emulation_range;

/* The range that [ptr, ptr + nbytes) lies in, copied to *found; false if there is none. */
bool emulation_find(const void *ptr, size_t nbytes, emulation_range *found);

/* The driver's call of this name, or NULL. */
void *emulation_driver_call(const char *name);

#endif
