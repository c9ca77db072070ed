/* h5py's lock, as the lock of gpuf_h5_options. */
#include "h5py_lock.h"

#include "errors.h"
#include "interpreter.h"

/* An exception may be set: that of the code around a future which is dropped, or one that a file
 * object raised within HDF5. It stays so. Without memory the call is tried again: HDF5 must neither
 * be entered without the lock nor left with it. Nothing else makes it fail, but that the thread has
 * no lock to release. */
static void call(PyObject *method) {
  const gpufi_py_exception set = gpufi_py_exception_take();
  PyObject *result;
  while (!(result = PyObject_CallNoArgs(method)) && PyErr_ExceptionMatches(PyExc_MemoryError)) {
    PyErr_Clear();
  }
  Py_XDECREF(result);
  gpufi_py_exception_restore(set);
}

void gpufi_py_h5py_lock_leave_gil(gpufi_py_h5py_lock *lock) {
  lock->thread = PyEval_SaveThread();
}

void gpufi_py_h5py_lock_enter_gil(gpufi_py_h5py_lock *lock) {
  gpufi_py_restore_thread(lock->thread);
}

static void lock_callback(void *arg) {
  gpufi_py_h5py_lock *lock = arg;
  gpufi_py_h5py_lock_enter_gil(lock);
  call(lock->acquire);
  gpufi_py_h5py_lock_leave_gil(lock);
}

static void unlock_callback(void *arg) {
  gpufi_py_h5py_lock *lock = arg;
  gpufi_py_h5py_lock_enter_gil(lock);
  call(lock->release);
  gpufi_py_h5py_lock_leave_gil(lock);
}

int gpufi_py_h5py_lock_init(gpufi_py_h5py_lock *lock, PyObject *phil, gpuf_h5_options *options) {
  lock->acquire = PyObject_GetAttrString(phil, "acquire");
  lock->release = lock->acquire ? PyObject_GetAttrString(phil, "release") : NULL;
  if (!lock->release) {
    Py_CLEAR(lock->acquire);
    return -1;
  }
  options->lock = lock_callback;
  options->unlock = unlock_callback;
  options->lock_arg = lock;
  return 0;
}

void gpufi_py_h5py_lock_fini(gpufi_py_h5py_lock *lock) {
  Py_CLEAR(lock->acquire);
  Py_CLEAR(lock->release);
}
