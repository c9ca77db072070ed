/* h5py's lock, as the lock of gpuf_h5_options. */
#include "h5py_lock.h"

#include "interpreter.h"

/* Only exhausted memory can make the call fail; HDF5 must not be entered then, so try again. */
static void call_until_done(PyObject *method) {
  PyObject *result;
  while (!(result = PyObject_CallNoArgs(method))) {
    PyErr_Clear();
  }
  Py_DECREF(result);
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
  call_until_done(lock->acquire);
  gpufi_py_h5py_lock_leave_gil(lock);
}

static void unlock_callback(void *arg) {
  gpufi_py_h5py_lock *lock = arg;
  gpufi_py_h5py_lock_enter_gil(lock);
  call_until_done(lock->release);
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
