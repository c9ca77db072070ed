/* The C APIs of Python (limited to 3.11's) and NumPy, configured alike in every file of the
 * extension module. One file imports NumPy's table of functions; it defines GPUFI_PY_IMPORTS_NUMPY
 * first.
 *
 * In this folder every function needs the GIL unless it says otherwise. One that returns
 * PyObject * gives a new reference, or NULL with an exception set; one that returns int gives 0, or
 * -1 with an exception set. */
#ifndef GPUFI_PY_API_H
#define GPUFI_PY_API_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL gpufi_py_array_api
#ifndef GPUFI_PY_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <gpufetch/gpufetch.h>

#include <string.h> /* Python.h includes it outside the limited API only */

/* A function with another signature as an entry of a PyMethodDef. */
#define GPUFI_PY_METHOD(function) ((PyCFunction)(void (*)(void))(function))

/* Number of elements of an array. */
#define GPUFI_PY_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
