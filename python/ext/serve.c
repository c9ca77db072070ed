/* Serving: gpufetch._remote.serve's calls into the library. */
#include "adapter.h"
#include "arguments.h"
#include "attachment.h"
#include "device_array.h"
#include "errors.h"
#include "interpreter.h"
#include "methods.h"
#include "server_handle.h"

#include "server/await.h"

#include <gpufetch/serve.h>

/* Fill the options from keyword arguments, and *claims: (dict, its key, the owner) or None. */
static bool parse_options(PyObject *args, PyObject *kwargs, gpufi_py_server **held,
                          gpuf_server_options *options, PyObject **claims) {
  static char *names[] = {"",           "claims",     "name",       "connection_file",
                          "transport",  "ip",         "first_port", "curve",
                          "jupyterlab", "step_share", NULL};
  int curve = 0, jupyterlab = 0;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O&|$Ozzzzippd:serve_start", names, gpufi_py_server_of, held, claims,
          &options->name, &options->connection_file, &options->transport, &options->ip,
          &options->first_port, &curve, &jupyterlab, &options->step_share)) {
    return false;
  }
  options->curve = curve;
  options->jupyterlab = jupyterlab;
  return true;
}

/* What a dict of claims has under a key: a new reference, or NULL, where an exception may be set.
 */
static PyObject *claimed(PyObject *servers, PyObject *key) {
  return Py_XNewRef(PyDict_GetItemWithError(servers, key));
}

/* The handle of a Server; NULL with an exception for anything else. The capsule lives as long as
 * the Server. */
static gpufi_py_server *handle_of(PyObject *owner) {
  gpufi_py_server *held = NULL;
  PyObject *capsule = PyObject_GetAttrString(owner, "_handle");
  if (capsule) {
    gpufi_py_server_of(capsule, &held);
    Py_DECREF(capsule);
  }
  return held;
}

/* Take the place under `key` for `owner`, whose server is about to start. *other becomes the Server
 * that has the place and runs, or starts, else one that had it, or NULL: a new reference in any
 * case, whose end may run Python code. Between the look and the claim no Python code runs, so that
 * no other thread comes in between. 1 if the place is taken, 0 if *other has it, -1 on failure. */
static int claim(PyObject *servers, PyObject *key, PyObject *owner, gpufi_py_server *held,
                 PyObject **other) {
  *other = claimed(servers, key);
  gpufi_py_server *others = *other ? handle_of(*other) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  const gpufi_py_server_state state = others ? gpufi_py_server_get_state(others) : SERVER_ENDED;
  if (state == SERVER_STARTING || state == SERVER_RUNS) {
    return 0;
  }
  gpufi_py_server_claim(held);
  return PyDict_SetItem(servers, key, owner) == 0 ? 1 : -1;
}

static gpuf_status start(gpufi_py_server *held, gpuf_server_options *options, gpuf_error *err) {
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_py_server_start(held, options, err);
    gpufi_py_server_log_kept(held);
  Py_END_ALLOW_THREADS
  return status;
}

PyDoc_STRVAR(
    serve_start_doc,
    "serve_start(server, /, *, claims=None, name=None, connection_file=None,\n"
    "            transport=None, ip=None, first_port=0, curve=False, jupyterlab=False,\n"
    "            step_share=...)\n--\n\n"
    "Start a new server as gpufetch.serve does. TypeError where gpufetch was built\n"
    "without the server, OSError where a port or file is refused.\n\n"
    "claims: (dict, key, owner), where owner is the Server of this handle. Where the dict\n"
    "has another one under the key that runs, or starts (which is waited for), that one is\n"
    "returned and nothing is done; else owner is put there, and returned once it runs.");

static PyObject *serve_start(PyObject *module, PyObject *args, PyObject *kwargs) {
  gpuf_server_options options = GPUF_SERVER_OPTIONS_INIT;
  gpufi_py_server *held;
  PyObject *claims = Py_None, *servers = NULL, *key, *owner = Py_None, *other = NULL;
  gpuf_error err;
  if (!parse_options(args, kwargs, &held, &options, &claims) ||
      (claims != Py_None &&
       !PyArg_ParseTuple(claims, "O!OO:claims", &PyDict_Type, &servers, &key, &owner))) {
    return NULL;
  }
  if (!servers) {
    gpufi_py_server_claim(held);
  }
  const int is_claimed = servers ? claim(servers, key, owner, held, &other) : 1;
  if (is_claimed == 0) {
    gpufi_py_server *others = handle_of(other);
    Py_BEGIN_ALLOW_THREADS
      gpufi_py_server_await_start(others);
    Py_END_ALLOW_THREADS
    return other;
  }
  PyObject *started = NULL;
  if (is_claimed > 0) {
    started = start(held, &options, &err) == GPUF_OK
                  ? Py_NewRef(owner)
                  : gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  Py_XDECREF(other);
  return started;
}

static PyObject *serve_forget(PyObject *module, PyObject *args) {
  PyObject *servers, *key, *owner;
  if (!PyArg_ParseTuple(args, "O!OO:serve_forget", &PyDict_Type, &servers, &key, &owner)) {
    return NULL;
  }
  PyObject *present = claimed(servers, key); /* its end may run Python code */
  const int code = present == owner ? PyDict_DelItem(servers, key) : 0;
  Py_XDECREF(present);
  return code == 0 && !PyErr_Occurred() ? Py_NewRef(Py_None) : NULL;
}

static PyObject *serve_create(PyObject *module, PyObject *args) {
  PyObject *log = Py_None, *shutdown = Py_None;
  return PyArg_ParseTuple(args, "|OO:serve_create", &log, &shutdown)
             ? gpufi_py_server_create(module, log, shutdown)
             : NULL;
}

static PyObject *serve_stop(PyObject *module, PyObject *capsule) {
  gpufi_py_server *held;
  gpuf_error err;
  gpuf_status status;
  if (!gpufi_py_server_of(capsule, &held)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_py_server_stop(held, &err);
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

static PyObject *serve_is_inside(PyObject *module, PyObject *capsule) {
  gpufi_py_server *held;
  return gpufi_py_server_of(capsule, &held) ? PyBool_FromLong(gpufi_py_server_is_inside(held))
                                            : NULL;
}

static PyObject *serve_runs(PyObject *module, PyObject *capsule) {
  gpufi_py_server *held;
  return gpufi_py_server_of(capsule, &held)
             ? PyBool_FromLong(gpufi_py_server_get_state(held) == SERVER_RUNS)
             : NULL;
}

static PyObject *serve_describe(PyObject *module, PyObject *capsule) {
  gpufi_py_server *held;
  const char *name, *path;
  if (!gpufi_py_server_of(capsule, &held)) {
    return NULL;
  }
  gpufi_py_server_describe(held, &name, &path);
  return Py_BuildValue("sN", name, PyUnicode_DecodeFSDefault(path));
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
  gpuf_error err = {0};
  gpufi_py_server *held;
  PyObject *x, *start, *shape;
  const char *name;
  int64_t part_start[GPUF_NDIM_MAX], global_shape[GPUF_NDIM_MAX];
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sO!OO:serve_publish", gpufi_py_server_of, &held, &name,
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
      .attachment = gpufi_py_attachment_of(((gpufi_py_device_array *)x)->keepalive),
  };
  Py_BEGIN_ALLOW_THREADS
    gpuf_server *server = gpufi_py_server_begin(held, &err);
    status =
        server ? gpuf_server_publish(server, name, &source.tensor, &options, &err) : err.status;
    if (server) {
      gpufi_py_server_end(held);
    }
  Py_END_ALLOW_THREADS
  if (status !=
      GPUF_OK) { /* else the server has the reference, until it calls gpufi_py_release_owner */
    gpufi_py_import_clear(&source);
  }
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

/* A value as the call takes it; `text` is borrowed. */
typedef struct value {
  enum { VALUE_INT64, VALUE_FLOAT64, VALUE_TEXT } kind;
  int64_t integer;
  double number;
  const char *text;
} value;

static bool read_value(PyObject *object, value *read) {
  if (PyUnicode_Check(object)) {
    *read = (value){.kind = VALUE_TEXT, .text = PyUnicode_AsUTF8AndSize(object, NULL)};
  } else if (PyFloat_Check(object)) {
    *read = (value){.kind = VALUE_FLOAT64, .number = PyFloat_AsDouble(object)};
  } else {
    *read = (value){.kind = VALUE_INT64, .integer = PyLong_AsLongLong(object)};
  }
  return !PyErr_Occurred();
}

static gpuf_status publish_value(gpufi_py_server *held, const char *name, const value *given,
                                 gpuf_error *err) {
  gpuf_server *server = gpufi_py_server_begin(held, err);
  if (!server) {
    return err->status;
  }
  const gpuf_status status =
      given->kind == VALUE_TEXT      ? gpuf_server_publish_text(server, name, given->text, err)
      : given->kind == VALUE_FLOAT64 ? gpuf_server_publish_float64(server, name, given->number, err)
                                     : gpuf_server_publish_int64(server, name, given->integer, err);
  gpufi_py_server_end(held);
  return status;
}

static PyObject *serve_publish_value(PyObject *module, PyObject *args) {
  gpufi_py_server *held;
  PyObject *object;
  const char *name;
  value given;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sO:serve_publish_value", gpufi_py_server_of, &held, &name,
                        &object) ||
      !read_value(object, &given)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = publish_value(held, name, &given, &err);
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

/* gpuf_server_unpublish or gpufi_server_await_unpublished. */
typedef gpuf_status withdraw_call(gpuf_server *server, const char *name, int64_t timeout_ns,
                                  gpuf_error *err);

static PyObject *withdraw(PyObject *module, PyObject *args, withdraw_call *call) {
  gpufi_py_server *held;
  const char *name;
  long long timeout_ns;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sL", gpufi_py_server_of, &held, &name, &timeout_ns)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    gpuf_server *server = gpufi_py_server_begin(held, &err);
    status = server ? call(server, name, timeout_ns, &err) : err.status;
    if (server) {
      gpufi_py_server_end(held);
    }
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

static PyObject *serve_unpublish(PyObject *module, PyObject *args) {
  return withdraw(module, args, gpuf_server_unpublish);
}

static PyObject *serve_await_unpublished(PyObject *module, PyObject *args) {
  return withdraw(module, args, gpufi_server_await_unpublished);
}

static PyObject *serve_step(PyObject *module, PyObject *args) {
  gpufi_py_server *held;
  long long step;
  double time;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&Ld:serve_step", gpufi_py_server_of, &held, &step, &time)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    gpuf_server *server = gpufi_py_server_begin(held, &err);
    status = server ? gpuf_server_publish_step(server, step, time, &err) : err.status;
    if (server) {
      gpufi_py_server_end(held);
    }
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

PyMethodDef gpufi_py_serve_methods[] = {
    {"serve_start", GPUFI_PY_METHOD(serve_start), METH_VARARGS | METH_KEYWORDS, serve_start_doc},
    {"serve_create", serve_create, METH_VARARGS,
     "serve_create(log=None, shutdown=None, /)\n--\n\nThe handle of a server that is not started "
     "yet.\n\nlog(line) and shutdown() are called on the server's threads; lines that come while "
     "it "
     "starts\nare logged by serve_start when it runs."},
    {"serve_runs", serve_runs, METH_O,
     "serve_runs(server, /)\n--\n\nWhether a server has started, and nobody has begun to stop it."},
    {"serve_describe", serve_describe, METH_O,
     "serve_describe(server, /)\n--\n\n(name, path of the connection file) of a server, also after "
     "its end."},
    {"serve_forget", serve_forget, METH_VARARGS,
     "serve_forget(servers, key, owner, /)\n--\n\nRemove a dict's item if its value is owner."},
    {"serve_is_inside", serve_is_inside, METH_O,
     "serve_is_inside(server, /)\n--\n\nWhether the calling thread is one of the server's own, or "
     "inside\na call of it, as callbacks are: it cannot be stopped there."},
    {"serve_stop", serve_stop, METH_O,
     "serve_stop(server, /)\n--\n\nStop a server, after the calls that use it; does nothing if it "
     "is "
     "stopped already."},
    {"serve_tensor", serve_tensor, METH_O, serve_tensor_doc},
    {"serve_publish", serve_publish, METH_VARARGS, serve_publish_doc},
    {"serve_publish_value", serve_publish_value, METH_VARARGS,
     "serve_publish_value(server, name, value, /)\n--\n\nOffer an int, float or str under a name."},
    {"serve_unpublish", serve_unpublish, METH_VARARGS,
     "serve_unpublish(server, name, timeout_ns, /)\n--\n\n"
     "Withdraw a name. Waits for reads that are under way, then for at most timeout_ns (-1: for\n"
     "ever) for processes that have attached to the memory: TimeoutError while some are left."},
    {"serve_await_unpublished", serve_await_unpublished, METH_VARARGS,
     "serve_await_unpublished(server, name, timeout_ns, /)\n--\n\n"
     "Wait further after serve_unpublish has raised TimeoutError, without withdrawing anything:\n"
     "gpufetch.Error where the name was published again."},
    {"serve_step", serve_step, METH_VARARGS,
     "serve_step(server, step, time, /)\n--\n\nSay that a step, at a time in the simulation, is "
     "done."},
    {0},
};
