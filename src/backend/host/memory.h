/* Device memory of the host backend. */
#ifndef GPUFI_BACKEND_HOST_MEMORY_H
#define GPUFI_BACKEND_HOST_MEMORY_H

#include <gpufetch/gpufetch.h>

/* As the backend's entries. */
gpuf_status gpufi_host_alloc(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err);
gpuf_status gpufi_host_free(int32_t device, void *d_ptr, gpuf_error *err);
gpuf_status gpufi_host_device_of(const void *d_ptr, int32_t *device, gpuf_error *err);

size_t gpufi_host_allocated_nbytes(int32_t device);
/* Where [d_ptr, d_ptr + nbytes) may be touched; NULL if it is not inside one live allocation. */
void *gpufi_host_alias(const void *d_ptr, size_t nbytes);
/* The same; if there is none, GPUF_ERR_DEVICE, which says so. */
gpuf_status gpufi_host_resolve(const void *d_ptr, size_t nbytes, void **alias, gpuf_error *err);

/* A range of the file that device memory lies in; `offset` names an allocation for ever. */
typedef struct gpufi_host_range {
  void *d_base;
  size_t nbytes;
  int64_t offset;
} gpufi_host_range;

/* The file itself; -1 before the first allocation. */
int gpufi_host_memory_fd(void);
/* The allocation of this process that d_ptr lies in. */
gpuf_status gpufi_host_locate(const void *d_ptr, gpufi_host_range *range, gpuf_error *err);
/* Map a range of another process's file as device memory, and unmap it. d_base is not used. */
gpuf_status gpufi_host_import(int32_t device, int fd, const gpufi_host_range *range, void **d_ptr,
                              gpuf_error *err);
gpuf_status gpufi_host_close(int32_t device, void *d_ptr, gpuf_error *err);

#endif
