/* Work for which others wait. Python code cannot promise to end the wait: where memory runs out, a
 * function does not even get its frame, and a signal's handler may raise between any two operations
 * of a function that takes a lock or gives it back, such as those of contextlib. */
#include "errors.h"
#include "interpreter.h"
#include "methods.h"

#include <time.h>

PyDoc_STRVAR(run_and_release_doc,
             "run_and_release(work, outcome, release, /)\n--\n\n"
             "Call work(), put None or the exception that it raised in the list outcome[0], and\n"
             "call release(), the method of a lock. All but work() needs no memory, so release is\n"
             "called whatever becomes of work().");

static PyObject *run_and_release(PyObject *module, PyObject *args) {
  PyObject *work, *outcome, *release;
  (void)module;
  if (!PyArg_UnpackTuple(args, "run_and_release", 3, 3, &work, &outcome, &release)) {
    return NULL;
  }
  PyObject *ended = PyObject_CallNoArgs(work);
  if (!ended) {
    ended = gpufi_py_exception_take_instance();
  } else {
    Py_DECREF(ended);
    ended = Py_NewRef(Py_None);
  }
  PyList_SetItem(outcome, 0, ended); /* steals */
  return PyObject_CallNoArgs(release);
}

PyDoc_STRVAR(
    run_locked_doc,
    "run_locked(lock, timeout, problem, work, /)\n--\n\n"
    "Call work() with a lock of the module threading held, and return what it returns.\n"
    "TimeoutError(problem) where the lock cannot be had in `timeout` seconds (-1: without a\n"
    "limit). No signal's handler runs between taking the lock and work(), nor between\n"
    "work() and giving the lock back, which therefore is given back whatever happens.");

static PyObject *run_locked(PyObject *module, PyObject *args) {
  PyObject *lock, *problem, *work, *release = NULL, *is_taken = NULL, *result = NULL;
  double timeout_s;
  (void)module;
  if (!PyArg_ParseTuple(args, "OdOO:run_locked", &lock, &timeout_s, &problem, &work)) {
    return NULL;
  }
  release = PyObject_GetAttrString(lock, "release");
  is_taken = release ? PyObject_CallMethod(lock, "acquire", "Od", Py_True, timeout_s) : NULL;
  if (!is_taken) {
    goto done;
  }
  if (is_taken != Py_True) {
    PyErr_SetObject(PyExc_TimeoutError, problem);
    goto done;
  }
  result = PyObject_CallNoArgs(work);
  const gpufi_py_exception failure = gpufi_py_exception_take();
  PyObject *released = PyObject_CallNoArgs(release);
  if (released) {
    gpufi_py_exception_restore(failure);
    Py_DECREF(released);
  } else {
    gpufi_py_exception_drop(failure);
    Py_CLEAR(result);
  }
done:
  Py_XDECREF(is_taken);
  Py_XDECREF(release);
  return result;
}

PyDoc_STRVAR(run_insistently_doc,
             "run_insistently(work, /)\n--\n\n"
             "Call work(), again as long as it raises MemoryError, also since there was no memory\n"
             "for its frame. Needs none itself, and lets other threads run in between.");

static PyObject *run_insistently(PyObject *module, PyObject *work) {
  static const struct timespec pause = {.tv_nsec = 1000000};
  PyObject *result;
  (void)module;
  while (!(result = PyObject_CallNoArgs(work)) && PyErr_ExceptionMatches(PyExc_MemoryError)) {
    PyErr_Clear();
    PyThreadState *const thread = PyEval_SaveThread();
    nanosleep(&pause, NULL);
    gpufi_py_restore_thread(thread);
  }
  return result;
}

PyMethodDef gpufi_py_thread_methods[] = {
    {"run_and_release", run_and_release, METH_VARARGS, run_and_release_doc},
    {"run_insistently", run_insistently, METH_O, run_insistently_doc},
    {"run_locked", run_locked, METH_VARARGS, run_locked_doc},
    {0},
};
