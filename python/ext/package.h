/* Of which package a type is. */
#ifndef GPUFI_PY_PACKAGE_H
#define GPUFI_PY_PACKAGE_H

#include "api.h"

/* Was the type made in the package `name`, or in a module of it? No exception may be set; none is
 * set. */
bool gpufi_py_is_of_package(PyObject *type, const char *name);

#endif
