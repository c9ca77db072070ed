/* The methods overview, stats and histogram of a DeviceArray, which gpufetch._reduce answers. */
#ifndef GPUFI_PY_REDUCE_H
#define GPUFI_PY_REDUCE_H

#include "api.h"

PyObject *gpufi_py_array_overview(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *gpufi_py_array_stats(PyObject *self, PyObject *args);
PyObject *gpufi_py_array_histogram(PyObject *self, PyObject *args, PyObject *kwargs);

#endif
