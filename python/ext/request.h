/* What the caller of fetch wants. */
#ifndef GPUFI_PY_REQUEST_H
#define GPUFI_PY_REQUEST_H

#include "state.h"

typedef struct gpufi_py_request {
  PyObject *out;    /* borrowed; NULL = a fresh array */
  gpuf_dtype dtype; /* 0 = the tensor's */
  char order;       /* 'C', 'F', 'A' or 'K'; 0 = not given, so C */
} gpufi_py_request;

/* Parse the arguments of `function`, a METH_FASTCALL | METH_KEYWORDS call: one positional one, and
 * the keywords out, dtype and order. */
int gpufi_py_request_parse(const gpufi_py_state *state, const char *function, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames, gpufi_py_request *wanted);
/* Check the tensor and the result, which may be too large with a wider dtype. */
gpuf_status gpufi_py_request_check(const gpufi_py_request *wanted, const gpuf_tensor *tensor,
                                   gpuf_error *err);
/* A fresh result for `tensor`, which was checked, without its memory. */
void gpufi_py_request_describe(const gpufi_py_request *wanted, const gpuf_tensor *tensor,
                               gpuf_tensor *result);
gpuf_copy_options gpufi_py_request_options(const gpufi_py_request *wanted);

#endif
