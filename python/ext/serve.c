/* Serving: gpufetch._serve's calls into the library. A server is a capsule here. */
#include "adapter.h"
#include "errors.h"
#include "interpreter.h"
#include "methods.h"

#include <gpufetch/serve.h>

static const char server_name[] = "gpufetch.server";

/* Behind a capsule; with the server NULL once it is stopped. */
typedef struct held_server {
  gpuf_server *server;
  PyObject *log, *shutdown; /* callables, or NULL */
} held_server;

static held_server *held_of(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, server_name);
}

static gpuf_server *server_of(const gpufi_py_state *state, PyObject *capsule) {
  const held_server *held = held_of(capsule);
  if (held && !held->server) {
    const gpuf_error err = {GPUF_ERR_STATE, 0, "this server is stopped: serve() starts another"};
    gpufi_py_raise(state, &err);
  }
  return held ? held->server : NULL;
}

/* --- Callbacks, on threads of the server's ------------------------------------------------ */

/* What the callable raises has nowhere to go but sys.unraisablehook. */
static void call(PyObject *callable, const char *line) {
  if (gpufi_py_is_stopped()) {
    return;
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *result =
      line ? PyObject_CallFunction(callable, "s", line) : PyObject_CallFunction(callable, NULL);
  if (!result) {
    PyErr_WriteUnraisable(callable);
  }
  Py_XDECREF(result);
  PyGILState_Release(gil);
}

static void call_log(void *held, const char *line) {
  call(((held_server *)held)->log, line);
}
static void call_shutdown(void *held) {
  call(((held_server *)held)->shutdown, NULL);
}

/* --- Start and stop -------------------------------------------------------------------------- */

static gpuf_status stop(held_server *held, gpuf_error *err) {
  gpuf_server *server = held->server;
  gpuf_status status;
  held->server = NULL;
  Py_BEGIN_ALLOW_THREADS status = gpuf_server_stop(server, err);
  Py_END_ALLOW_THREADS return status;
}

static void server_destroy(PyObject *capsule) {
  held_server *held = held_of(capsule);
  stop(held, NULL);
  Py_XDECREF(held->log);
  Py_XDECREF(held->shutdown);
  PyMem_Free(held);
}

static PyObject *hold(gpuf_server_options *options, PyObject *log, PyObject *shutdown) {
  held_server *held = PyMem_Calloc(1, sizeof(*held));
  if (!held) {
    return PyErr_NoMemory();
  }
  PyObject *capsule = PyCapsule_New(held, server_name, server_destroy);
  if (!capsule) {
    PyMem_Free(held);
    return NULL;
  }
  options->log_arg = options->shutdown_arg = held;
  if (log != Py_None) {
    held->log = Py_NewRef(log);
    options->log = call_log;
  }
  if (shutdown != Py_None) {
    held->shutdown = Py_NewRef(shutdown);
    options->shutdown = call_shutdown;
  }
  return capsule;
}

/* Fill the options from keyword arguments, of which `log` and `shutdown` are callables or None. */
static bool parse_options(PyObject *args, PyObject *kwargs, gpuf_server_options *options,
                          PyObject **log, PyObject **shutdown) {
  static char *names[] = {"name",       "connection_file", "transport",  "ip",
                          "first_port", "curve",           "jupyterlab", "step_share",
                          "log",        "shutdown",        NULL};
  int curve = 0, jupyterlab = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$zzzzippdOO:serve_start", names, &options->name,
                                   &options->connection_file, &options->transport, &options->ip,
                                   &options->first_port, &curve, &jupyterlab, &options->step_share,
                                   log, shutdown)) {
    return false;
  }
  options->curve = curve;
  options->jupyterlab = jupyterlab;
  return true;
}

static PyObject *serve_start(PyObject *module, PyObject *args, PyObject *kwargs) {
  gpuf_server_options options = GPUF_SERVER_OPTIONS_INIT;
  PyObject *log = Py_None, *shutdown = Py_None;
  gpuf_error err;
  gpuf_status status;
  if (!parse_options(args, kwargs, &options, &log, &shutdown)) {
    return NULL;
  }
  PyObject *capsule = hold(&options, log, shutdown);
  if (!capsule) {
    return NULL;
  }
  held_server *held = held_of(capsule);
  Py_BEGIN_ALLOW_THREADS status = gpuf_server_start(&options, &held->server, &err);
  Py_END_ALLOW_THREADS if (status != GPUF_OK) {
    Py_DECREF(capsule);
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  return Py_BuildValue("Nss", capsule, gpuf_server_name(held->server),
                       gpuf_server_connection_file(held->server));
}

static PyObject *serve_stop(PyObject *module, PyObject *capsule) {
  held_server *held = held_of(capsule);
  gpuf_error err;
  if (!held) {
    return NULL;
  }
  if (stop(held, &err) != GPUF_OK) {
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  Py_RETURN_NONE;
}

/* --- Publishing ---------------------------------------------------------------------------------
 */

/* A tuple of integers, one for each axis. */
static bool parse_axes(const char *what, PyObject *tuple, int32_t ndim, int64_t *values) {
  if (PyTuple_Size(tuple) != ndim) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "%s %R has not one number for each of %d axes", what, tuple,
                   (int)ndim);
    }
    return false;
  }
  for (int32_t axis = 0; axis < ndim; axis++) {
    values[axis] = PyLong_AsLongLong(PyTuple_GetItem(tuple, axis));
  }
  return !PyErr_Occurred();
}

/* `start` and `shape`: tuples, or both None. */
static PyObject *serve_publish(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_error err;
  PyObject *capsule, *x, *start, *shape;
  const char *name;
  int64_t part_start[GPUF_NDIM_MAX], global_shape[GPUF_NDIM_MAX];
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OsOOO:serve_publish", &capsule, &name, &x, &start, &shape)) {
    return NULL;
  }
  gpuf_server *server = server_of(state, capsule);
  if (!server || gpufi_py_adapter_import(state, x, &source) < 0) {
    return NULL;
  }
  const bool is_part = start != Py_None;
  const int32_t ndim = source.tensor.ndim;
  if (is_part && !(parse_axes("start", start, ndim, part_start) &&
                    parse_axes("global_shape", shape, ndim, global_shape))) {
    gpufi_py_import_clear(&source);
    return NULL;
  }
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options),
      .release = gpufi_py_release_owner,
      .release_arg = source.keepalive,
      .start = is_part ? part_start : NULL,
      .global_shape = is_part ? global_shape : NULL,
  };
  Py_BEGIN_ALLOW_THREADS status = gpuf_server_publish(server, name, &source.tensor, &options, &err);
  Py_END_ALLOW_THREADS if (status != GPUF_OK) {
    gpufi_py_import_clear(&source);
    return gpufi_py_raise(state, &err);
  }
  Py_RETURN_NONE; /* the reference is the server's: gpufi_py_release_owner gives it back */
}

static PyObject *serve_publish_value(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *capsule, *value;
  const char *name;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OsO:serve_publish_value", &capsule, &name, &value)) {
    return NULL;
  }
  gpuf_server *server = server_of(state, capsule);
  if (!server) {
    return NULL;
  }
  if (PyUnicode_Check(value)) {
    const char *text = PyUnicode_AsUTF8AndSize(value, NULL);
    status = text ? gpuf_server_publish_text(server, name, text, &err) : GPUF_ERR_INVALID;
  } else if (PyFloat_Check(value)) {
    status = gpuf_server_publish_float64(server, name, PyFloat_AsDouble(value), &err);
  } else {
    const long long integer = PyLong_AsLongLong(value);
    status = integer == -1 && PyErr_Occurred()
                 ? GPUF_ERR_INVALID
                 : gpuf_server_publish_int64(server, name, integer, &err);
  }
  if (status != GPUF_OK) {
    return PyErr_Occurred() ? NULL : gpufi_py_raise(state, &err);
  }
  Py_RETURN_NONE;
}

static PyObject *serve_unpublish(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *capsule;
  const char *name;
  long long timeout_ns;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OsL:serve_unpublish", &capsule, &name, &timeout_ns)) {
    return NULL;
  }
  gpuf_server *server = server_of(state, capsule);
  if (!server) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = gpuf_server_unpublish(server, name, timeout_ns, &err);
  Py_END_ALLOW_THREADS return status == GPUF_OK ? Py_NewRef(Py_None) : gpufi_py_raise(state, &err);
}

static PyObject *serve_step(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *capsule;
  long long step;
  double time;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OLd:serve_step", &capsule, &step, &time)) {
    return NULL;
  }
  gpuf_server *server = server_of(state, capsule);
  if (!server) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = gpuf_server_publish_step(server, step, time, &err);
  Py_END_ALLOW_THREADS return status == GPUF_OK ? Py_NewRef(Py_None) : gpufi_py_raise(state, &err);
}

PyMethodDef gpufi_py_serve_methods[] = {
    {"serve_start", (PyCFunction)(void (*)(void))serve_start, METH_VARARGS | METH_KEYWORDS,
     "See gpufetch.serve: (server, name, file)."},
    {"serve_stop", serve_stop, METH_O, "Stop a server; again: does nothing."},
    {"serve_publish", serve_publish, METH_VARARGS, "Offer a tensor under a name."},
    {"serve_publish_value", serve_publish_value, METH_VARARGS,
     "Offer an int, float or str under a name."},
    {"serve_unpublish", serve_unpublish, METH_VARARGS, "Withdraw a name, waiting for timeout_ns."},
    {"serve_step", serve_step, METH_VARARGS, "Say that a step is done."},
    {0},
};
