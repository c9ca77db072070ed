/* The comm protocol's dispatcher for an IPython kernel: it looks tensors up in Python and answers
 * each message on the thread that brings it. A dispatcher is a capsule here. */
#include "adapter.h"
#include "errors.h"
#include "interpreter.h"
#include "methods.h"

#include "base/error.h"
#include "base/text.h"
#include "comm/dispatcher.h"

#include <stdio.h>

static const char dispatcher_name[] = "gpufetch.dispatcher";

/* What a capsule holds. */
typedef struct held_dispatcher {
  gpufi_dispatcher *dispatcher;
  PyObject *module;  /* whose state is used */
  PyObject *resolve; /* name -> (tensor, framework) */
  PyObject *list;    /* () -> [(name, framework, tensor or None, problem or None)] */
  PyObject *log;     /* text -> anything */
} held_dispatcher;

static held_dispatcher *held_of(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, dispatcher_name);
}

/* A converter for PyArg_ParseTuple: the gpufi_dispatcher * in a capsule. */
static int take_dispatcher(PyObject *capsule, void *dispatcher) {
  const held_dispatcher *held = held_of(capsule);
  if (held) {
    *(gpufi_dispatcher **)dispatcher = held->dispatcher;
  }
  return held != NULL;
}

/* --- Callbacks ----------------------------------------------------------- */

/* Replies come on the thread that handed the message over; its tag is the address to store to. */
static void take_reply(void *held, uint64_t client, uint64_t tag, gpufi_reply *reply) {
  *(gpufi_reply **)(uintptr_t)tag = reply;
}

/* The text of an exception: its only argument (str() of a KeyError would quote it), else its str(),
 * or, if that is empty, the name of its type. */
static PyObject *exception_text(PyObject *type, PyObject *value) {
  PyObject *args = value ? PyObject_GetAttrString(value, "args") : NULL;
  PyObject *text = NULL;
  if (args && PyTuple_Check(args) && PyTuple_Size(args) == 1) {
    text = PyObject_Str(PyTuple_GetItem(args, 0));
  } else if (value) {
    text = PyObject_Str(value);
  }
  Py_XDECREF(args);
  if (!text || PyUnicode_GetLength(text) == 0) {
    PyErr_Clear();
    Py_XDECREF(text);
    text = PyObject_GetAttrString(type, "__name__");
  }
  return text;
}

/* Turn the exception that is set into a failure: GPUF_ERR_INVALID for a LookupError. */
static gpuf_status take_exception(gpuf_error *err) {
  const bool unknown = PyErr_ExceptionMatches(PyExc_LookupError);
  gpufi_py_exception raised = gpufi_py_exception_take();
  PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
  PyObject *text = exception_text(raised.type, raised.value);
  PyObject *plain = text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;
  const char *message = plain ? PyBytes_AsString(plain) : NULL;
  const gpuf_status status = gpufi_fail(err, unknown ? GPUF_ERR_INVALID : GPUF_ERR_UNSUPPORTED, 0,
                                        "%s", message ? message : "an exception");
  PyErr_Clear();
  Py_XDECREF(plain);
  Py_XDECREF(text);
  gpufi_py_exception_drop(raised);
  return status;
}

/* Fill `source` from the pair that `resolve` returned. */
static int take_source(gpufi_py_state *state, PyObject *found, gpufi_source *source) {
  gpufi_py_import import = {0};
  const char *framework;
  PyObject *tensor;
  if (!PyArg_ParseTuple(found, "Os", &tensor, &framework) ||
      gpufi_py_adapter_import(state, tensor, &import) < 0) {
    return -1;
  }
  source->tensor = import.tensor;
  source->release = gpufi_py_release_owner; /* the import's reference is the source's */
  source->release_arg = import.keepalive;
  snprintf(source->framework, sizeof(source->framework), "%s", framework);
  gpufi_text_make_utf8(source->framework);
  return 0;
}

static gpuf_status refuse_at_end(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0, "the interpreter ends");
}

static gpuf_status resolve(void *arg, const char *name, gpufi_source *source, gpuf_error *err) {
  const held_dispatcher *held = arg;
  gpuf_status status = GPUF_OK;
  if (!gpufi_py_enter()) {
    return refuse_at_end(err);
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *found = PyObject_CallFunction(held->resolve, "s", name);
  if (!found || take_source(gpufi_py_state_of_module(held->module), found, source) < 0) {
    status = take_exception(err);
  }
  Py_XDECREF(found);
  PyGILState_Release(gil);
  gpufi_py_leave();
  return status;
}

/* 1 to go on, 0 when the listing is full, -1 with an exception set. */
static int list_item(gpufi_py_state *state, PyObject *item, gpufi_listing *listing) {
  gpufi_py_import import = {0};
  const char *name, *framework, *problem;
  PyObject *tensor;
  if (!PyArg_ParseTuple(item, "ssOz", &name, &framework, &tensor, &problem) ||
      (tensor != Py_None && gpufi_py_adapter_import(state, tensor, &import) < 0)) {
    return -1;
  }
  const bool more = gpufi_listing_add(listing, name, framework,
                                      tensor == Py_None ? NULL : &import.tensor, problem);
  gpufi_py_import_clear(&import);
  return more;
}

static gpuf_status list(void *arg, gpufi_listing *listing, gpuf_error *err) {
  const held_dispatcher *held = arg;
  gpuf_status status = GPUF_OK;
  int more = 1;
  if (!gpufi_py_enter()) {
    return refuse_at_end(err);
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *items = PyObject_CallFunction(held->list, NULL);
  /* A tuple: importing a tensor runs Python code, which could change a list. */
  PyObject *fixed = items ? PySequence_Tuple(items) : NULL;
  const Py_ssize_t count = fixed ? PyTuple_Size(fixed) : -1;
  for (Py_ssize_t i = 0; i < count && more == 1; i++) {
    more = list_item(gpufi_py_state_of_module(held->module), PyTuple_GetItem(fixed, i), listing);
  }
  if (count < 0 || more < 0) {
    status = take_exception(err);
  }
  Py_XDECREF(fixed);
  Py_XDECREF(items);
  PyGILState_Release(gil);
  gpufi_py_leave();
  return status;
}

static void log_text(void *held, const char *text) {
  gpufi_py_call_from_thread(((held_dispatcher *)held)->log, text);
}

/* --- Life ---------------------------------------------------------------- */

static void held_free(held_dispatcher *held) {
  Py_BEGIN_ALLOW_THREADS
    gpufi_dispatcher_destroy(held->dispatcher, 0, NULL);
  Py_END_ALLOW_THREADS
  Py_XDECREF(held->module);
  Py_XDECREF(held->resolve);
  Py_XDECREF(held->list);
  Py_XDECREF(held->log);
  PyMem_Free(held);
}

static void dispatcher_destroy(PyObject *capsule) {
  held_free(held_of(capsule));
}

static PyObject *dispatcher_create(PyObject *module, PyObject *args) {
  PyObject *resolver, *lister, *logger;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "OOO:dispatcher_create", &resolver, &lister, &logger)) {
    return NULL;
  }
  held_dispatcher *held = PyMem_Calloc(1, sizeof(*held));
  if (!held) {
    return PyErr_NoMemory();
  }
  held->module = Py_NewRef(module);
  held->resolve = Py_NewRef(resolver);
  held->list = Py_NewRef(lister);
  held->log = Py_NewRef(logger);
  const gpufi_dispatcher_options options = {
      .reply = take_reply,
      .log = log_text,
      .resolve = resolve,
      .list = list,
      .arg = held,
      .server_name = "ipython",
      .run_in_message = true,
      .no_steps = true,
  };
  if (gpufi_dispatcher_create(&options, &held->dispatcher, &err) != GPUF_OK) {
    held_free(held);
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  PyObject *capsule = PyCapsule_New(held, dispatcher_name, dispatcher_destroy);
  if (!capsule) {
    held_free(held);
  }
  return capsule;
}

/* --- Replies ------------------------------------------------------------- */

static const char reply_name[] = "gpufetch.reply";

static void reply_destroy(PyObject *capsule) {
  gpufi_reply_free(PyCapsule_GetPointer(capsule, reply_name));
}

/* A read-only ndarray of bytes over one of the reply's buffers. */
static PyObject *buffer_of(const gpufi_reply *reply, size_t i, PyObject *owner) {
  npy_intp nbytes = (npy_intp)reply->buffer_nbytes[i];
  PyObject *array = PyArray_New(&PyArray_Type, 1, &nbytes, NPY_UINT8, NULL,
                                (void *)reply->buffers[i], 0, NPY_ARRAY_CARRAY_RO, NULL);
  if (array && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(owner)) < 0) {
    Py_CLEAR(array);
  }
  return array;
}

/* (JSON as bytes, list of ndarrays). Takes the reply over. NULL, where there was no memory for the
 * reply, becomes MemoryError. */
static PyObject *reply_to_python(gpufi_reply *reply) {
  if (!reply) {
    return PyErr_NoMemory();
  }
  PyObject *owner = PyCapsule_New(reply, reply_name, reply_destroy);
  if (!owner) {
    gpufi_reply_free(reply);
    return NULL;
  }
  PyObject *buffers = PyList_New(0);
  for (size_t i = 0; buffers && i < reply->buffer_count; i++) {
    PyObject *buffer = buffer_of(reply, i, owner);
    if (!buffer || PyList_Append(buffers, buffer) < 0) {
      Py_CLEAR(buffers);
    }
    Py_XDECREF(buffer);
  }
  PyObject *result =
      buffers ? Py_BuildValue("y#O", reply->json, (Py_ssize_t)reply->json_nbytes, buffers) : NULL;
  Py_XDECREF(buffers);
  Py_DECREF(owner);
  return result;
}

/* --- Messages ------------------------------------------------------------ */

static PyObject *client_open(PyObject *module, PyObject *args) {
  gpufi_dispatcher *dispatcher;
  const char *data;
  Py_ssize_t nbytes;
  uint64_t client = 0;
  gpufi_reply *answer = NULL, *refusal = NULL;
  if (!PyArg_ParseTuple(args, "O&y#:client_open", take_dispatcher, &dispatcher, &data, &nbytes)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    gpufi_client_open(dispatcher, data, (size_t)nbytes, (uintptr_t)&answer, &client, &refusal,
                      NULL);
  Py_END_ALLOW_THREADS
  PyObject *reply = reply_to_python(client != 0 ? answer : refusal);
  if (!reply) {
    gpufi_client_close(dispatcher, client);
    return NULL;
  }
  return Py_BuildValue("KN", (unsigned long long)client, reply);
}

static PyObject *dispatcher_message(PyObject *module, PyObject *args) {
  gpufi_dispatcher *dispatcher;
  unsigned long long client;
  const char *data;
  Py_ssize_t nbytes, buffer_count;
  gpufi_reply *answer = NULL;
  bool known;
  if (!PyArg_ParseTuple(args, "O&Ky#n:dispatcher_message", take_dispatcher, &dispatcher, &client,
                        &data, &nbytes, &buffer_count)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    known = gpufi_dispatcher_message(dispatcher, client, data, (size_t)nbytes, (size_t)buffer_count,
                                     (uintptr_t)&answer);
  Py_END_ALLOW_THREADS
  if (!known) {
    Py_RETURN_NONE;
  }
  return reply_to_python(answer);
}

static PyObject *client_close(PyObject *module, PyObject *args) {
  gpufi_dispatcher *dispatcher;
  unsigned long long client;
  if (!PyArg_ParseTuple(args, "O&K:client_close", take_dispatcher, &dispatcher, &client)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    gpufi_client_close(dispatcher, client);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject *dispatcher_end_stale_shares(PyObject *module, PyObject *capsule) {
  gpufi_dispatcher *dispatcher;
  if (!take_dispatcher(capsule, &dispatcher)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    gpufi_dispatcher_end_stale_shares(dispatcher);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyMethodDef gpufi_py_dispatcher_methods[] = {
    {"dispatcher_create", dispatcher_create, METH_VARARGS,
     "dispatcher_create(resolve, list, log, /)\n--\n\nA dispatcher that finds tensors by these "
     "callables."},
    {"dispatcher_end_stale_shares", dispatcher_end_stale_shares, METH_O,
     "dispatcher_end_stale_shares(dispatcher, /)\n--\n\nEnd the shares of tensors that resolve "
     "finds no more, or elsewhere in memory."},
    {"client_open", client_open, METH_VARARGS,
     "client_open(dispatcher, data, /)\n--\n\nA client's id, 0 if it is refused, and the reply."},
    {"dispatcher_message", dispatcher_message, METH_VARARGS,
     "dispatcher_message(dispatcher, client, data, buffer_count, /)\n--\n\nThe reply to a request, "
     "as JSON and buffers; None for an unknown client."},
    {"client_close", client_close, METH_VARARGS,
     "client_close(dispatcher, client, /)\n--\n\nForget a client and withdraw its shares."},
    {0},
};
