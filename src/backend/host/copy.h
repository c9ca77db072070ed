/* Copies, packing and gathering on the host backend: as the backend's entries. */
#ifndef GPUFI_BACKEND_HOST_COPY_H
#define GPUFI_BACKEND_HOST_COPY_H

#include "backend/backend.h"

gpuf_status gpufi_host_copy(int32_t device, void *dst, const void *src, size_t nbytes,
                            gpufi_direction direction, gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_copy_2d(int32_t device, const gpufi_rows *rows, gpufi_direction direction,
                               gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_clear(int32_t device, void *d_ptr, size_t nbytes, gpuf_stream stream,
                             gpuf_error *err);
gpuf_status gpufi_host_pack(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                            gpuf_error *err);
gpuf_status gpufi_host_unpack(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                              gpuf_error *err);
gpuf_status gpufi_host_gather(int32_t device, const gpufi_flat_copy *copies, size_t count,
                              gpuf_stream stream, gpuf_error *err);

#endif
