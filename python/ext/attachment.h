/* Memory of another process that is attached here: a capsule that detaches it in the end. */
#ifndef GPUFI_PY_ATTACHMENT_H
#define GPUFI_PY_ATTACHMENT_H

#include "state.h"

#include <gpufetch/share.h>

/* Takes over `attachment`, also on failure. */
PyObject *gpufi_py_attachment_create(gpuf_attachment *attachment);
/* The attachment of such a capsule; NULL where `keepalive` (may be NULL) is something else. */
gpuf_attachment *gpufi_py_attachment_of(PyObject *keepalive);
/* If `keepalive` (may be NULL) is such a capsule: check that the process whose memory it is still
 * lives. gpufetch.Error. */
int gpufi_py_attachment_check(const gpufi_py_state *state, PyObject *keepalive);

#endif
