/* gpufetch._core.Future: a fetch in flight, which gpufetch.Future wraps. */
#ifndef GPUFI_PY_FUTURE_H
#define GPUFI_PY_FUTURE_H

#include "state.h"

extern PyType_Spec gpufi_py_future_spec;
/* Takes over `future`, also on failure. `result` is the destination, an ndarray or a tree of them,
 * and `source` what keeps the source alive; the object takes references of its own to both. */
PyObject *gpufi_py_future_create(const gpufi_py_state *state, gpuf_future *future, PyObject *result,
                                 PyObject *source);

#endif
