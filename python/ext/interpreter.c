#include "interpreter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"

/* How long the end of the interpreter waits for threads that are inside. */
#define PATIENCE_NS (10 * GPUFI_NS_PER_S)
#define POLL_NS 1000000

static atomic_bool stopped;
static atomic_int inside_count;

/* A forked child has the thread that forked, which is outside. */
static void forget_threads(void) {
  atomic_store(&inside_count, 0);
}

static void watch_fork(void) {
  pthread_atfork(NULL, NULL, forget_threads);
}

void gpufi_py_interpreter_init(void) {
  static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
  pthread_once(&fork_once, watch_fork);
}

void gpufi_py_interpreter_stop(void) {
  const int64_t end_ns = gpufi_clock_ns() + PATIENCE_NS;
  atomic_store(&stopped, true);
  Py_BEGIN_ALLOW_THREADS
    while (atomic_load(&inside_count) > 0 && gpufi_clock_ns() < end_ns) {
      gpufi_sleep_ns(POLL_NS);
    }
  Py_END_ALLOW_THREADS
}

/* The count is raised before the flag is read, so that the stop either waits for this thread or
 * keeps it out. */
bool gpufi_py_enter(void) {
  atomic_fetch_add(&inside_count, 1);
  if (!atomic_load(&stopped)) {
    return true;
  }
  gpufi_py_leave();
  return false;
}

void gpufi_py_leave(void) {
  atomic_fetch_sub(&inside_count, 1);
}

static void sleep_for_ever(void *unused) {
  for (;;) {
    pause();
  }
}

void gpufi_py_restore_thread(PyThreadState *thread) {
  pthread_cleanup_push(sleep_for_ever, NULL);
  PyEval_RestoreThread(thread);
  pthread_cleanup_pop(0);
}

void gpufi_py_release_owner(void *owner) {
  if (gpufi_py_enter()) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(gil);
    gpufi_py_leave();
  }
}

void gpufi_py_call_from_thread(PyObject *callable, const char *line) {
  if (!gpufi_py_enter()) {
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
  gpufi_py_leave();
}
