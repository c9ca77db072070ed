/* Ctrl-C at a chosen operation of Python code, for Python's tests, which load this by ctypes:
 * SIGINT is pending as if it had come there, and the interpreter runs its handler where it runs
 * handlers of signals. A trace function in Python could raise at any operation, also where no
 * handler runs.
 */
#include <Python.h>
#include <frameobject.h>
#include <stdbool.h>
#include <string.h>

/* All guarded by the GIL. */
static const char *const *wanted; /* parts of FILE:FUNCTION, then NULL */
static long long count;           /* operations so far in such functions */
static long long last;            /* the number of the operation at which SIGINT comes */

static bool is_wanted(PyFrameObject *frame) {
  PyCodeObject *code = PyFrame_GetCode(frame);
  PyObject *place = PyUnicode_FromFormat("%U:%U", code->co_filename, code->co_name);
  const char *text = place ? PyUnicode_AsUTF8(place) : NULL;
  bool found = false;
  for (size_t i = 0; text && wanted[i]; i++) {
    found = found || strstr(text, wanted[i]);
  }
  Py_XDECREF(place);
  Py_DECREF(code);
  PyErr_Clear();
  return found;
}

static int trace(PyObject *object, PyFrameObject *frame, int event, PyObject *argument) {
  (void)object;
  (void)argument;
  if (event == PyTrace_CALL) {
    /* The attribute is absent from the C API. */
    if (PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes",
                               is_wanted(frame) ? Py_True : Py_False)) {
      PyErr_Clear();
    }
  } else if (event == PyTrace_OPCODE && ++count == last) {
    PyErr_SetInterrupt();
  }
  return 0;
}

/* From the next call of a Python function of this thread on, count the operations in functions
 * whose FILE:FUNCTION has one of `places` in it; SIGINT comes at number `at`, from 1. `places` must
 * stay until stop. Call with the GIL held. */
__attribute__((visibility("default"))) void interrupt_at_start(const char *const *places,
                                                               long long at);
void interrupt_at_start(const char *const *places, long long at) {
  wanted = places;
  count = 0;
  last = at;
  PyEval_SetTrace(trace, NULL);
}

/* Count no more; how many operations there were. */
__attribute__((visibility("default"))) long long interrupt_at_stop(void);
long long interrupt_at_stop(void) {
  PyEval_SetTrace(NULL, NULL);
  return count;
}
