/* The destructor of capsules that were imported and of those that were exported. */
#ifndef GPUFI_PY_DLPACK_CAPSULE_H
#define GPUFI_PY_DLPACK_CAPSULE_H

#include "api.h"

/* As a capsule's destructor: run the deleter of the managed tensor in it, whose kind the capsule's
 * name tells. A capsule of another name is left alone: its tensor has gone to a consumer. The
 * deleter may run any code; the exception that is set stays. */
void gpufi_py_dlpack_run_deleter(PyObject *capsule, const char *legacy_name,
                                 const char *versioned_name);

#endif
