/* References that the library holds and gives back on threads of its own, and calls from these. */
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

void gpufi_py_call_from_thread(PyObject *callable, const char *line) {
  if (gpufi_py_is_stopped()) {
    return;
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *text = line ? PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace") : NULL;
  PyObject *result = line && !text ? NULL : PyObject_CallFunctionObjArgs(callable, text, NULL);
  if (!result) {
    PyErr_WriteUnraisable(callable);
  }
  Py_XDECREF(text);
  Py_XDECREF(result);
  PyGILState_Release(gil);
}
