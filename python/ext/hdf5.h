/* HDF5 in the extension module: `gpufi_py_hdf5_methods` (declared in core.h) is added to the
 * module by PyModule_AddFunctions. Its functions are for gpufetch/hdf5.py alone. */
#ifndef GPUFI_PY_HDF5_H
#define GPUFI_PY_HDF5_H

#include "core.h"

/* h5py's lock (`h5py._objects.phil`), as the lock of gpuf_h5_options.
 *
 * HDF5 is entered with h5py's lock held and the GIL released: other Python threads run on, and
 * those that want h5py wait for the lock, which they do without the GIL. Both callbacks run on
 * the thread that called the library, which released the GIL by PyEval_SaveThread into `thread`
 * before the call. */
typedef struct gpufi_py_h5_lock {
  PyObject *acquire; /* bound methods */
  PyObject *release;
  PyThreadState *thread;
} gpufi_py_h5_lock;

#endif
