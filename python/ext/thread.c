/* Work on a thread for which another one waits. Python code cannot promise to end the wait: where
 * memory runs out, a function does not even get its frame. */
#include "errors.h"
#include "methods.h"

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

PyMethodDef gpufi_py_thread_methods[] = {
    {"run_and_release", run_and_release, METH_VARARGS, run_and_release_doc},
    {0},
};
