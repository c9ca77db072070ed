/* From gpuf_error to Python exceptions, and keyword arguments.
 *
 *   GPUF_ERR_INVALID                         ValueError
 *   GPUF_ERR_UNSUPPORTED                     TypeError
 *   GPUF_ERR_NO_MEMORY, _NO_DEVICE_MEMORY    MemoryError
 *   GPUF_ERR_IO                              OSError with errno
 *   GPUF_ERR_TIMEOUT                         TimeoutError
 *   any other                                gpufetch.Error with status and native_code */
#include "core.h"

#include <stdarg.h>

static const char error_doc[] =
    "A device, HDF5 or peer failed, or a call came at a wrong time.\n\n"
    "Attributes\n----------\n"
    "status : str\n"
    "    Name of the library's status, such as \"GPUF_ERR_DEVICE\".\n"
    "native_code : int\n"
    "    The backend's own code (cudaError_t) where one caused the failure, else 0.";

PyObject *gpufi_py_error_type_create(void) {
  PyObject *defaults = Py_BuildValue("{s:s,s:i}", "status", "", "native_code", 0);
  if (!defaults) {
    return NULL;
  }
  PyObject *type =
      PyErr_NewExceptionWithDoc("gpufetch.Error", error_doc, PyExc_RuntimeError, defaults);
  Py_DECREF(defaults);
  return type;
}

static PyObject *raise_os_error(const gpuf_error *err) {
  PyObject *args = Py_BuildValue("(is)", (int)err->native_code, err->message);
  if (args) {
    PyErr_SetObject(PyExc_OSError, args);
    Py_DECREF(args);
  }
  return NULL;
}

static PyObject *raise_error(const gpufi_py_state *state, const gpuf_error *err) {
  PyObject *status = NULL, *native_code = NULL;
  PyObject *exception = PyObject_CallFunction(state->error_type, "s", err->message);
  if (!exception) {
    return NULL;
  }
  status = PyUnicode_FromString(gpuf_status_name(err->status));
  native_code = PyLong_FromLongLong(err->native_code);
  if (status && native_code && PyObject_SetAttrString(exception, "status", status) == 0 &&
      PyObject_SetAttrString(exception, "native_code", native_code) == 0) {
    PyErr_SetObject(state->error_type, exception);
  }
  Py_XDECREF(status);
  Py_XDECREF(native_code);
  Py_DECREF(exception);
  return NULL;
}

PyObject *gpufi_py_raise(const gpufi_py_state *state, const gpuf_error *err) {
  PyObject *type;
  switch (err->status) {
  case GPUF_ERR_INVALID:
    type = PyExc_ValueError;
    break;
  case GPUF_ERR_UNSUPPORTED:
    type = PyExc_TypeError;
    break;
  case GPUF_ERR_NO_MEMORY:
  case GPUF_ERR_NO_DEVICE_MEMORY:
    type = PyExc_MemoryError;
    break;
  case GPUF_ERR_TIMEOUT:
    type = PyExc_TimeoutError;
    break;
  case GPUF_ERR_IO:
    return raise_os_error(err);
  default:
    return raise_error(state, err);
  }
  PyErr_SetString(type, err->message);
  return NULL;
}

void gpufi_py_raise_from(PyObject *type, const char *format, ...) {
  PyObject *old_type, *old_value, *old_traceback, *new_type, *new_value, *new_traceback;
  va_list args;
  PyErr_Fetch(&old_type, &old_value, &old_traceback);
  PyErr_NormalizeException(&old_type, &old_value, &old_traceback);
  if (old_value && old_traceback) {
    PyException_SetTraceback(old_value, old_traceback);
  }
  va_start(args, format);
  PyErr_FormatV(type, format, args);
  va_end(args);
  PyErr_Fetch(&new_type, &new_value, &new_traceback);
  PyErr_NormalizeException(&new_type, &new_value, &new_traceback);
  if (new_value && old_value) {
    Py_INCREF(old_value);
    PyException_SetContext(new_value, old_value); /* steals */
    Py_INCREF(old_value);
    PyException_SetCause(new_value, old_value); /* steals */
  }
  PyErr_Restore(new_type, new_value, new_traceback);
  Py_XDECREF(old_type);
  Py_XDECREF(old_value);
  Py_XDECREF(old_traceback);
}

/* Index of `name` in `names`, or -1. Interned strings are compared by identity first. */
static Py_ssize_t keyword_index(PyObject *name, PyObject *const *names) {
  for (Py_ssize_t i = 0; names[i]; i++) {
    if (names[i] == name) {
      return i;
    }
  }
  for (Py_ssize_t i = 0; names[i]; i++) {
    if (PyUnicode_Compare(names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

int gpufi_py_keywords(const char *function, PyObject *const *args, Py_ssize_t nargs,
                      Py_ssize_t positional_count, PyObject *kwnames, PyObject *const *names,
                      PyObject ***values) {
  if (nargs != positional_count) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zd positional argument%s, %zd given", function,
                 positional_count, positional_count == 1 ? "" : "s", nargs);
    return -1;
  }
  const Py_ssize_t kwcount = kwnames ? PyTuple_Size(kwnames) : 0;
  for (Py_ssize_t i = 0; i < kwcount; i++) {
    PyObject *name = PyTuple_GetItem(kwnames, i);
    const Py_ssize_t index = keyword_index(name, names);
    if (index < 0) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s() has no keyword argument '%U'", function, name);
      }
      return -1;
    }
    *values[index] = args[nargs + i];
  }
  return 0;
}
