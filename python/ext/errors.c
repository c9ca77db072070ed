/* From gpuf_error to Python exceptions, and exceptions put aside.
 *
 *   GPUF_ERR_INVALID                         ValueError
 *   GPUF_ERR_UNSUPPORTED                     TypeError
 *   GPUF_ERR_NO_MEMORY, _NO_DEVICE_MEMORY    MemoryError
 *   GPUF_ERR_IO                              OSError with errno
 *   GPUF_ERR_TIMEOUT                         TimeoutError
 *   any other                                gpufetch.Error with status and native_code */
#include "errors.h"

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

PyObject *gpufi_py_text(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *raise_os_error(const gpuf_error *err) {
  PyObject *args = Py_BuildValue("(iN)", (int)err->native_code, gpufi_py_text(err->message));
  if (args) {
    PyErr_SetObject(PyExc_OSError, args);
    Py_DECREF(args);
  }
  return NULL;
}

static PyObject *raise_error(const gpufi_py_state *state, const gpuf_error *err) {
  PyObject *status = NULL, *native_code = NULL;
  PyObject *exception = PyObject_CallFunction(state->error_type, "N", gpufi_py_text(err->message));
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

/* HDF5 calls a file object again after one of its methods has failed. CPython makes a SystemError
 * of that, whose cause is the exception that was set: set that one. */
static void set_first(void) {
  PyObject *set = gpufi_py_exception_take_instance();
  PyObject *cause;
  while (PyErr_GivenExceptionMatches(set, PyExc_SystemError) &&
         (cause = PyException_GetCause(set)) != NULL) {
    Py_DECREF(set);
    set = cause;
  }
  PyErr_SetObject((PyObject *)Py_TYPE(set), set);
  Py_DECREF(set);
}

PyObject *gpufi_py_raise(const gpufi_py_state *state, const gpuf_error *err) {
  PyObject *type;
  if (PyErr_Occurred()) {
    set_first();
    return NULL;
  }
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
  PyObject *text = gpufi_py_text(err->message);
  if (text) {
    PyErr_SetObject(type, text);
    Py_DECREF(text);
  }
  return NULL;
}

PyObject *gpufi_py_outcome(const gpufi_py_state *state, gpuf_status status, const gpuf_error *err) {
  return status == GPUF_OK && !PyErr_Occurred() ? Py_NewRef(Py_None) : gpufi_py_raise(state, err);
}

gpufi_py_exception gpufi_py_exception_take(void) {
  gpufi_py_exception taken;
  PyErr_Fetch(&taken.type, &taken.value, &taken.traceback);
  return taken;
}

void gpufi_py_exception_restore(gpufi_py_exception exception) {
  PyErr_Restore(exception.type, exception.value, exception.traceback);
}

void gpufi_py_exception_drop(gpufi_py_exception exception) {
  Py_XDECREF(exception.type);
  Py_XDECREF(exception.value);
  Py_XDECREF(exception.traceback);
}

/* The exception that is set, as an instance with its traceback. */
static gpufi_py_exception take_normalized(void) {
  gpufi_py_exception taken = gpufi_py_exception_take();
  PyErr_NormalizeException(&taken.type, &taken.value, &taken.traceback);
  if (taken.value && taken.traceback) {
    PyException_SetTraceback(taken.value, taken.traceback);
  }
  return taken;
}

void gpufi_py_exception_chain(gpufi_py_exception exception) {
  const gpufi_py_exception raised = take_normalized();
  gpufi_py_exception_restore(exception);
  const gpufi_py_exception context = take_normalized();
  if (raised.value && context.value) {
    PyException_SetContext(raised.value, Py_NewRef(context.value)); /* steals */
  }
  gpufi_py_exception_drop(context);
  gpufi_py_exception_restore(raised);
}

PyObject *gpufi_py_exception_take_instance(void) {
  const gpufi_py_exception taken = take_normalized();
  PyObject *instance = Py_XNewRef(taken.value ? taken.value : taken.type);
  gpufi_py_exception_drop(taken);
  return instance;
}

void gpufi_py_raise_from(PyObject *type, const char *format, ...) {
  va_list args;
  const gpufi_py_exception old = take_normalized();
  va_start(args, format);
  PyErr_FormatV(type, format, args);
  va_end(args);
  const gpufi_py_exception raised = take_normalized();
  if (raised.value && old.value) {
    PyException_SetContext(raised.value, Py_NewRef(old.value)); /* steals, as the next does */
    PyException_SetCause(raised.value, Py_NewRef(old.value));
  }
  gpufi_py_exception_restore(raised);
  gpufi_py_exception_drop(old);
}
