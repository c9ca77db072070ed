/* Host memory that ndarrays own: pinned, from the pool, or pageable. */
#ifndef GPUFI_PY_BUFFER_H
#define GPUFI_PY_BUFFER_H

#include "state.h"

typedef enum gpufi_py_buffer_kind { BUFFER_POOL, BUFFER_MAPPED, BUFFER_HEAP } gpufi_py_buffer_kind;

/* Memory that no object owns yet: whoever holds it frees it or hands it to gpufi_py_buffer_array.
 */
typedef struct gpufi_py_buffer {
  void *ptr;
  size_t nbytes;
  gpufi_py_buffer_kind kind;
} gpufi_py_buffer;

/* Memory from the pinned pool for what comes from a device; pageable memory for what comes from the
 * CPU, or when the pool is at its cap. These two need no GIL. */
gpuf_status gpufi_py_buffer_alloc(gpuf_device device, size_t nbytes, gpufi_py_buffer *buffer,
                                  gpuf_error *err);
void gpufi_py_buffer_free(const gpufi_py_buffer *buffer);
/* A capsule that owns a fresh buffer, whose address goes to *data. Releases the GIL meanwhile. */
PyObject *gpufi_py_buffer_create(const gpufi_py_state *state, gpuf_device device, size_t nbytes,
                                 void **data);
/* An ndarray as `tensor` describes it, that owns `buffer`. Takes `buffer` over, also on failure. */
PyObject *gpufi_py_buffer_array(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                const gpufi_py_buffer *buffer);

#endif
