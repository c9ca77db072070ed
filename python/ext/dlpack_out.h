/* Export of tensors as DLPack capsules. */
#ifndef GPUFI_PY_DLPACK_OUT_H
#define GPUFI_PY_DLPACK_OUT_H

#include "api.h"

/* Wrap `tensor` into a new capsule that holds `owner` until the consumer has done with it. `flags`
 * are GPUFI_DL_FLAG_*, for a versioned capsule. BufferError for strides that DLPack cannot state.
 */
PyObject *gpufi_py_dlpack_make(const gpuf_tensor *tensor, PyObject *owner, bool versioned,
                               uint64_t flags);
/* DLPack's device for ours. Needs no GIL. */
void gpufi_py_dlpack_device(gpuf_device device, int32_t *type, int32_t *id);

#endif
