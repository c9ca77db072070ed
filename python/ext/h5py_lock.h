/* h5py's lock (`h5py._objects.phil`), as the lock of gpuf_h5_options.
 *
 * HDF5 is entered with h5py's lock held and the GIL released: other Python threads run on, and
 * those that want h5py wait for the lock, which they do without the GIL. */
#ifndef GPUFI_PY_H5PY_LOCK_H
#define GPUFI_PY_H5PY_LOCK_H

#include "api.h"

#include <gpufetch/hdf5.h>

/* Used by one thread: the library calls the lock's functions on the thread that called it. */
typedef struct gpufi_py_h5py_lock {
  PyObject *acquire; /* bound methods */
  PyObject *release;
  PyThreadState *thread; /* set between gpufi_py_h5py_lock_leave_gil and _enter_gil */
} gpufi_py_h5py_lock;

/* Take the lock's methods from `phil`, and set the lock of `options`. A failure leaves nothing to
 * end. */
int gpufi_py_h5py_lock_init(gpufi_py_h5py_lock *lock, PyObject *phil, gpuf_h5_options *options);
void gpufi_py_h5py_lock_fini(gpufi_py_h5py_lock *lock);

/* Release the GIL before a call of the library that takes the options, and take it back after. */
void gpufi_py_h5py_lock_leave_gil(gpufi_py_h5py_lock *lock);
void gpufi_py_h5py_lock_enter_gil(gpufi_py_h5py_lock *lock);

#endif
