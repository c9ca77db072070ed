/* Refusing gpuf_free. Memory that another process uses must not be freed, and src/share, which
 * knows of it, lies above the core: so it registers guards here. Thread-safety: any thread. */
#ifndef GPUFI_CORE_DEVICE_H
#define GPUFI_CORE_DEVICE_H

#include <gpufetch/gpufetch.h>

typedef struct gpufi_free_guard {
  /* GPUF_OK if the memory at `d_ptr` may be freed. Called with no lock held. */
  gpuf_status (*check)(gpuf_device device, const void *d_ptr, gpuf_error *err);
  struct gpufi_free_guard *next; /* the registry's */
} gpufi_free_guard;

/* Ask `guard`, which must live as long as the process, at every gpuf_free from now on. To be called
 * once for each guard. */
void gpufi_free_guard_add(gpufi_free_guard *guard);

/* Free memory that no work uses and no guard knows. It waits for the device only where the backend
 * cannot do without. NULL is allowed. */
void gpufi_free_idle(gpuf_device device, void *d_ptr);

#endif
