/* Methods of a type that a Python module of the package answers. */
#ifndef GPUFI_PY_DELEGATE_H
#define GPUFI_PY_DELEGATE_H

#include "api.h"

/* module.name(self, *args, **kwargs), in which args and kwargs may be NULL. */
PyObject *gpufi_py_delegate(const char *module, const char *name, PyObject *self, PyObject *args,
                            PyObject *kwargs);

#endif
