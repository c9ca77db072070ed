/* Serving: gpufetch._remote.serve's calls into the library. A server is a capsule here. */
#include "adapter.h"
#include "arguments.h"
#include "device_array.h"
#include "errors.h"
#include "interpreter.h"
#include "methods.h"

#include "base/thread.h"
#include "server/inside.h"

#include <gpufetch/serve.h>

static const char server_name[] = "gpufetch.server";

/* What a capsule holds. */
typedef struct held_server {
  gpuf_server *server;      /* NULL once it is stopped */
  const gpuf_server *known; /* the one that was started: to be compared, not used */
  PyObject *module;         /* whose state is used */
  PyObject *log, *shutdown; /* callables, or NULL */
} held_server;

static held_server *held_of(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, server_name);
}

/* A converter for PyArg_ParseTuple: the gpuf_server * in a capsule, which must not be stopped. */
static int take_server(PyObject *capsule, void *server) {
  const held_server *held = held_of(capsule);
  if (held && !held->server) {
    const gpuf_error err = {GPUF_ERR_STATE, 0, "this server is stopped: serve() starts another"};
    gpufi_py_raise(gpufi_py_state_of_module(held->module), &err);
  } else if (held) {
    *(gpuf_server **)server = held->server;
  }
  return held && held->server;
}

/* --- Callbacks, on threads of the server --------------------------------- */

static void call_log(void *held, const char *line) {
  gpufi_py_call_from_thread(((held_server *)held)->log, line);
}

static void call_shutdown(void *held) {
  gpufi_py_call_from_thread(((held_server *)held)->shutdown, NULL);
}

/* --- Start and stop ------------------------------------------------------ */

static gpuf_status stop(held_server *held, gpuf_error *err) {
  gpuf_server *server = held->server;
  gpuf_status status;
  if (!server || !gpufi_inside_of(server)) { /* else it is refused, and runs on */
    held->server = NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_server_stop(server, err);
  Py_END_ALLOW_THREADS
  return status;
}

static void free_held(held_server *held) {
  Py_XDECREF(held->module);
  Py_XDECREF(held->log);
  Py_XDECREF(held->shutdown);
  PyMem_Free(held);
}

/* The body of a thread that stops a server. After the end of the interpreter the callables stay. */
static void *end_server(void *arg) {
  held_server *held = arg;
  gpuf_server_stop(held->server, NULL);
  if (gpufi_py_enter()) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    free_held(held);
    PyGILState_Release(gil);
    gpufi_py_leave();
  }
  return NULL;
}

/* The last reference may go in a callback of the server's, which cannot stop it: another thread
 * does then. Where there is none to be had, the server runs on. */
static void server_destroy(PyObject *capsule) {
  held_server *held = held_of(capsule);
  if (held->server && gpufi_inside_of(held->server)) {
    pthread_t thread;
    if (gpufi_thread_start(&thread, "gpufetch-stop", 0, end_server, held) == 0) {
      pthread_detach(thread);
    }
    return;
  }
  stop(held, NULL);
  free_held(held);
}

static PyObject *hold(PyObject *module, gpuf_server_options *options, PyObject *log,
                      PyObject *shutdown) {
  held_server *held = PyMem_Calloc(1, sizeof(*held));
  if (!held) {
    return PyErr_NoMemory();
  }
  PyObject *capsule = PyCapsule_New(held, server_name, server_destroy);
  if (!capsule) {
    PyMem_Free(held);
    return NULL;
  }
  held->module = Py_NewRef(module);
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

PyDoc_STRVAR(serve_start_doc,
             "serve_start(*, name=None, connection_file=None, transport=None, ip=None,\n"
             "            first_port=0, curve=False, jupyterlab=False, step_share=..., log=None,\n"
             "            shutdown=None)\n--\n\n"
             "As gpufetch.serve: (server, name, connection file).\n\n"
             "log(line) and shutdown() are called on the server's threads. TypeError where\n"
             "gpufetch was built without the server, OSError where a port or file is refused.");

static PyObject *serve_start(PyObject *module, PyObject *args, PyObject *kwargs) {
  gpuf_server_options options = GPUF_SERVER_OPTIONS_INIT;
  PyObject *log = Py_None, *shutdown = Py_None;
  gpuf_error err;
  gpuf_status status;
  if (!parse_options(args, kwargs, &options, &log, &shutdown)) {
    return NULL;
  }
  PyObject *capsule = hold(module, &options, log, shutdown);
  if (!capsule) {
    return NULL;
  }
  held_server *held = held_of(capsule);
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_server_start(&options, &held->server, &err);
  Py_END_ALLOW_THREADS
  held->known = held->server;
  if (status != GPUF_OK) {
    Py_DECREF(capsule);
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  return Py_BuildValue("NsN", capsule, gpuf_server_name(held->server),
                       PyUnicode_DecodeFSDefault(gpuf_server_connection_file(held->server)));
}

static PyObject *serve_stop(PyObject *module, PyObject *capsule) {
  held_server *held = held_of(capsule);
  gpuf_error err;
  return held ? gpufi_py_outcome(gpufi_py_state_of_module(module), stop(held, &err), &err) : NULL;
}

static PyObject *serve_is_inside(PyObject *module, PyObject *capsule) {
  const held_server *held = held_of(capsule);
  return held ? PyBool_FromLong(held->known && gpufi_inside_of(held->known)) : NULL;
}

static PyObject *serve_take(PyObject *module, PyObject *capsule) {
  held_server *held = held_of(capsule);
  gpuf_server_options unused = GPUF_SERVER_OPTIONS_INIT;
  PyObject *taken = held ? hold(module, &unused, Py_None, Py_None) : NULL;
  if (taken) {
    held_of(taken)->server = held->server;
    held_of(taken)->known = held->known;
    held->server = NULL;
  }
  return taken;
}

/* --- Publishing ---------------------------------------------------------- */

PyDoc_STRVAR(serve_tensor_doc,
             "serve_tensor(x, /)\n--\n\n"
             "The tensor x as serve_publish takes it. Runs x's own code, such as its __dlpack__.");

static PyObject *serve_tensor(PyObject *module, PyObject *x) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  if (gpufi_py_adapter_import(state, x, &source) < 0 ||
      gpufi_py_adapter_refuse_copy(&source, "publish") < 0) {
    return NULL;
  }
  PyObject *array =
      gpufi_py_device_array_create(state, &source.tensor, source.readonly, source.keepalive);
  gpufi_py_import_clear(&source);
  return array;
}

PyDoc_STRVAR(
    serve_publish_doc,
    "serve_publish(server, name, x, start, global_shape, /)\n--\n\n"
    "Offer x, which serve_tensor gave, under a name. The server keeps it alive until it is\n"
    "unpublished.\n\n"
    "start, global_shape: tuples of ints, where x is a part of a global array that\n"
    "begins at start; else both None.");

static PyObject *serve_publish(PyObject *module, PyObject *args) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_error err;
  gpuf_server *server;
  PyObject *x, *start, *shape;
  const char *name;
  int64_t part_start[GPUF_NDIM_MAX], global_shape[GPUF_NDIM_MAX];
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sO!OO:serve_publish", take_server, &server, &name,
                        state->device_array_type, &x, &start, &shape)) {
    return NULL;
  }
  if (gpufi_py_adapter_import(state, x, &source) < 0) {
    return NULL;
  }
  const bool is_part = start != Py_None;
  const int32_t ndim = source.tensor.ndim;
  if (is_part && (gpufi_py_axes(start, "start", ndim, part_start) < 0 ||
                  gpufi_py_axes(shape, "global_shape", ndim, global_shape) < 0)) {
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
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_server_publish(server, name, &source.tensor, &options, &err);
  Py_END_ALLOW_THREADS
  if (status !=
      GPUF_OK) { /* else the server has the reference, until it calls gpufi_py_release_owner */
    gpufi_py_import_clear(&source);
  }
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

static PyObject *serve_publish_value(PyObject *module, PyObject *args) {
  gpuf_server *server;
  PyObject *value;
  const char *name;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sO:serve_publish_value", take_server, &server, &name, &value)) {
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
  return PyErr_Occurred() ? NULL : gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

static PyObject *serve_unpublish(PyObject *module, PyObject *args) {
  gpuf_server *server;
  const char *name;
  long long timeout_ns;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sL:serve_unpublish", take_server, &server, &name, &timeout_ns)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_server_unpublish(server, name, timeout_ns, &err);
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

static PyObject *serve_step(PyObject *module, PyObject *args) {
  gpuf_server *server;
  long long step;
  double time;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&Ld:serve_step", take_server, &server, &step, &time)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_server_publish_step(server, step, time, &err);
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

PyMethodDef gpufi_py_serve_methods[] = {
    {"serve_start", GPUFI_PY_METHOD(serve_start), METH_VARARGS | METH_KEYWORDS, serve_start_doc},
    {"serve_take", serve_take, METH_O,
     "serve_take(server, /)\n--\n\nMove a server to a new object, which serve_stop takes: calls "
     "with "
     "this one say that it is\nstopped. This one must be kept until it is."},
    {"serve_is_inside", serve_is_inside, METH_O,
     "serve_is_inside(server, /)\n--\n\nWhether the calling thread is one of the server's own, or "
     "inside\na call of it, as callbacks are: it cannot be stopped there."},
    {"serve_stop", serve_stop, METH_O,
     "serve_stop(server, /)\n--\n\nStop a server; does nothing if it is stopped already."},
    {"serve_tensor", serve_tensor, METH_O, serve_tensor_doc},
    {"serve_publish", serve_publish, METH_VARARGS, serve_publish_doc},
    {"serve_publish_value", serve_publish_value, METH_VARARGS,
     "serve_publish_value(server, name, value, /)\n--\n\nOffer an int, float or str under a name."},
    {"serve_unpublish", serve_unpublish, METH_VARARGS,
     "serve_unpublish(server, name, timeout_ns, /)\n--\n\n"
     "Withdraw a name. Waits for reads that are under way, then for at most timeout_ns (-1: for\n"
     "ever) for processes that have attached to the memory: TimeoutError while some are left."},
    {"serve_step", serve_step, METH_VARARGS,
     "serve_step(server, step, time, /)\n--\n\nSay that a step, at a time in the simulation, is "
     "done."},
    {0},
};
