/* References that the library holds and gives back on threads of its own. */
#include "interpreter.h"

#include <stdatomic.h>

static atomic_bool stopped;

void gpufi_py_interpreter_stop(void) {
  atomic_store(&stopped, true);
}

bool gpufi_py_is_stopped(void) {
  return atomic_load(&stopped);
}

void gpufi_py_release_owner(void *owner) {
  if (!gpufi_py_is_stopped()) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(gil);
  }
}
