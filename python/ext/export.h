/* How a DeviceArray is handed to other libraries: __array__, __dlpack__, __dlpack_device__ and
 * __cuda_array_interface__. */
#ifndef GPUFI_PY_EXPORT_H
#define GPUFI_PY_EXPORT_H

#include "device_array.h"

PyObject *gpufi_py_export_array(gpufi_py_device_array *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames);
PyObject *gpufi_py_export_dlpack(gpufi_py_device_array *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames);
PyObject *gpufi_py_export_dlpack_device(gpufi_py_device_array *self, PyObject *unused);
PyObject *gpufi_py_export_cuda_array_interface(gpufi_py_device_array *self, void *closure);

#endif
