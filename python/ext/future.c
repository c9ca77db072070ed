/* gpufetch._core.Future: a fetch in flight. It owns the destination and what keeps the source
 * alive. The package's Future wraps it with what concurrent.futures and asyncio ask for. */
#include "future.h"

#include "arguments.h"
#include "errors.h"

#include "base/clock.h"
#include "base/fork.h"
#include "core/future.h"

#include <math.h>
#include <structmember.h>
#include <time.h>
#include <unistd.h>

typedef struct future_object {
  PyObject_HEAD
  gpuf_future *future; /* NULL once the copy has ended and its result is known to be good */
  PyObject *result;    /* an ndarray or a tree of them, handed out only when the copy is good, and
                          dropped when it is known not to be */
  PyObject *source;    /* dropped when the copy has ended */
  PyObject *weakrefs;
  int wait_count; /* threads inside gpuf_future_wait without the GIL: the future must stay */
  bool cancelled; /* the copy's outcome does not count; it need not have ended */
  pid_t pid;      /* the process that started the copy */
} future_object;

PyObject *gpufi_py_future_create(const gpufi_py_state *state, gpuf_future *future, PyObject *result,
                                 PyObject *source) {
  future_object *self = (future_object *)PyType_GenericAlloc(state->future_type, 0);
  if (!self) {
    Py_BEGIN_ALLOW_THREADS
      gpuf_future_destroy(future);
    Py_END_ALLOW_THREADS
    return NULL;
  }
  Py_INCREF(result);
  Py_INCREF(source);
  self->future = future;
  self->result = result;
  self->source = source;
  self->pid = getpid();
  return (PyObject *)self;
}

static int future_traverse(future_object *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->result);
  Py_VISIT(self->source);
  return 0;
}

/* The copy must end before its memory is freed. A forked child does not have the copy's threads,
 * and leaves the future, its result and its source as they are. */
static int future_clear(future_object *self) {
  if (self->pid != getpid()) {
    self->future = NULL;
    self->result = NULL;
    self->source = NULL;
    return 0;
  }
  if (self->future) {
    gpuf_future *future = self->future;
    self->future = NULL;
    Py_BEGIN_ALLOW_THREADS
      gpuf_future_destroy(future);
    Py_END_ALLOW_THREADS
  }
  Py_CLEAR(self->result);
  Py_CLEAR(self->source);
  return 0;
}

static void future_dealloc(future_object *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  if (self->weakrefs) {
    PyObject_ClearWeakRefs((PyObject *)self);
  }
  const gpufi_py_exception raised = gpufi_py_exception_take();
  future_clear(self);
  gpufi_py_exception_restore(raised);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

/* Convert `timeout` (seconds or None, by position or by name) to nanoseconds; -1 waits for ever. */
static int parse_timeout(const gpufi_py_state *state, const char *function, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames, int64_t *timeout_ns) {
  PyObject *timeout = nargs == 1 ? args[0] : Py_None;
  PyObject *const names[] = {state->names.timeout, NULL};
  PyObject **values[] = {&timeout};
  if (gpufi_py_keywords(function, args, nargs, nargs == 1 ? 1 : 0, kwnames, names, values) < 0) {
    return -1;
  }
  *timeout_ns = -1;
  if (timeout == Py_None) {
    return 0;
  }
  const double seconds = PyFloat_AsDouble(timeout);
  const bool failed = seconds == -1.0 && PyErr_Occurred();
  if (PyBool_Check(timeout) || (failed && PyErr_ExceptionMatches(PyExc_TypeError))) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "timeout is %R: give a number of seconds >= 0, or None", timeout);
    return -1;
  }
  if (failed) {
    return -1;
  }
  if (isnan(seconds) || seconds < 0) {
    PyErr_Format(PyExc_ValueError, "timeout %R is not a number of seconds >= 0, or None", timeout);
    return -1;
  }
  if (seconds < 1e9) { /* thirty years are as good as for ever */
    *timeout_ns = (int64_t)(seconds * 1e9);
  }
  return 0;
}

/* No single wait is longer, so that Ctrl-C gets through. */
#define WAIT_NS_MAX ((int64_t)50000000)

/* 1 when the copy has ended (its outcome in *status and *err), 0 after a timeout, -1 with an
 * exception set. */
static int wait_for_end(future_object *self, int64_t timeout_ns, gpuf_status *status,
                        gpuf_error *err) {
  const int64_t end_ns = timeout_ns < 0 ? INT64_MAX : gpufi_clock_ns() + timeout_ns;
  for (;;) {
    int64_t wait_ns = WAIT_NS_MAX;
    if (timeout_ns >= 0) {
      const int64_t left_ns = end_ns - gpufi_clock_ns();
      wait_ns = left_ns < 0 ? 0 : left_ns < wait_ns ? left_ns : wait_ns;
    }
    if (!self->future) {
      *status = GPUF_OK;
      return 1;
    }
    self->wait_count++;
    Py_BEGIN_ALLOW_THREADS
      *status = gpuf_future_wait(self->future, wait_ns, err);
    Py_END_ALLOW_THREADS
    self->wait_count--;
    if (*status != GPUF_ERR_TIMEOUT) {
      return 1;
    }
    if (PyErr_CheckSignals() < 0) {
      return -1;
    }
    if (timeout_ns >= 0 && gpufi_clock_ns() >= end_ns) {
      return 0;
    }
  }
}

/* A forked child does not have the copy: gpufetch.Error there. */
static int check_process(const gpufi_py_state *state, const future_object *self) {
  gpuf_error err;
  if (gpufi_check_process(self->pid, &err) == GPUF_OK) {
    return 0;
  }
  gpufi_py_raise(state, &err);
  return -1;
}

/* After a success only the result is needed: release the source and what the copy held. */
static void release_after_success(future_object *self) {
  if (self->future && self->wait_count == 0) {
    gpuf_future_destroy(self->future); /* the copy is done: returns at once */
    self->future = NULL;
  }
  Py_CLEAR(self->source);
}

/* wait_for_end for a method of Python with a timeout, in the process that started the copy. */
static int wait_with(future_object *self, const char *function, PyObject *const *args,
                     Py_ssize_t nargs, PyObject *kwnames, gpuf_status *status, gpuf_error *err) {
  const gpufi_py_state *state = gpufi_py_state_of((PyObject *)self);
  int64_t timeout_ns;
  if (parse_timeout(state, function, args, nargs, kwnames, &timeout_ns) < 0 ||
      check_process(state, self) < 0) {
    return -1;
  }
  return wait_for_end(self, timeout_ns, status, err);
}

PyDoc_STRVAR(result_doc,
             "result($self, timeout=None)\n--\n\n"
             "Wait for the copy and return its result, the same one at every call.\n\n"
             "timeout: seconds; TimeoutError leaves the copy running. A failure of the copy is\n"
             "raised here, at every call, and concurrent.futures.CancelledError after cancel().\n"
             "May be called from several threads.");

static PyObject *raise_cancelled(void) {
  PyObject *module = PyImport_ImportModule("concurrent.futures");
  PyObject *type = module ? PyObject_GetAttrString(module, "CancelledError") : NULL;
  if (type) {
    PyErr_SetNone(type);
  }
  Py_XDECREF(type);
  Py_XDECREF(module);
  return NULL;
}

static PyObject *future_result(future_object *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
  gpuf_error err;
  gpuf_status status;
  const int ended = wait_with(self, "result", args, nargs, kwnames, &status, &err);
  if (ended == 0) {
    PyErr_SetString(PyExc_TimeoutError, "the fetch is still running: wait longer, or cancel() it");
  }
  if (ended <= 0) {
    return NULL;
  }
  if (self->cancelled || status != GPUF_OK) { /* whoever keeps the future keeps no memory */
    Py_CLEAR(self->source);
    Py_CLEAR(self->result);
    return self->cancelled ? raise_cancelled()
                           : gpufi_py_raise(gpufi_py_state_of((PyObject *)self), &err);
  }
  PyObject *result = Py_NewRef(self->result);
  release_after_success(self);
  return result;
}

PyDoc_STRVAR(wait_doc,
             "wait($self, timeout=None)\n--\n\n"
             "Wait until the copy has ended, well or not; False after `timeout` seconds.\n\n"
             "A failure of the copy is raised by result(), not here.");

static PyObject *future_wait(future_object *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  gpuf_error err;
  gpuf_status status;
  const int ended = wait_with(self, "wait", args, nargs, kwnames, &status, &err);
  return ended < 0 ? NULL : PyBool_FromLong(ended);
}

PyDoc_STRVAR(join_doc,
             "join($self)\n--\n\n"
             "Wait until the copy has ended, without a limit. Signals do not interrupt it: for\n"
             "threads other than the main one, which get none.");

static PyObject *future_join(future_object *self, PyObject *unused) {
  if (check_process(gpufi_py_state_of((PyObject *)self), self) < 0) {
    return NULL;
  }
  if (self->future) {
    self->wait_count++;
    Py_BEGIN_ALLOW_THREADS
      gpuf_future_wait(self->future, -1, NULL);
    Py_END_ALLOW_THREADS
    self->wait_count--;
  }
  Py_RETURN_NONE;
}

static bool has_ended(const future_object *self) {
  return !self->future || gpuf_future_done(self->future);
}

PyDoc_STRVAR(done_doc,
             "done($self)\n--\n\nTrue once the copy has ended, well or not; never waits.");

static PyObject *future_done(future_object *self, PyObject *unused) {
  const gpufi_py_state *state = gpufi_py_state_of((PyObject *)self);
  if (check_process(state, self) < 0) {
    return NULL;
  }
  return PyBool_FromLong(has_ended(self));
}

PyDoc_STRVAR(cancel_doc,
             "cancel($self)\n--\n\n"
             "Stop the copy and give its result up; False if it was done. Does not wait: the\n"
             "device ends the pieces that it has.");

static PyObject *future_cancel(future_object *self, PyObject *unused) {
  if (check_process(gpufi_py_state_of((PyObject *)self), self) < 0) {
    return NULL;
  }
  self->cancelled |= self->future && gpufi_future_cancel(self->future);
  return PyBool_FromLong(self->cancelled);
}

PyDoc_STRVAR(cancelled_doc,
             "cancelled($self)\n--\n\nTrue once a copy that was cancelled has ended.");

static PyObject *future_cancelled(future_object *self, PyObject *unused) {
  if (check_process(gpufi_py_state_of((PyObject *)self), self) < 0) {
    return NULL;
  }
  return PyBool_FromLong(self->cancelled && has_ended(self));
}

/* What the result is: "shape=(3,), dtype=int8" or "dict". */
static PyObject *describe_result(const future_object *self) {
  if (!PyArray_Check(self->result)) {
    return PyType_GetName(Py_TYPE(self->result));
  }
  PyObject *shape = PyObject_GetAttrString(self->result, "shape");
  PyObject *dtype = Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)self->result));
  PyObject *text = shape ? PyUnicode_FromFormat("shape=%S, dtype=%S", shape, dtype) : NULL;
  Py_XDECREF(shape);
  Py_DECREF(dtype);
  return text;
}

static PyObject *future_repr(future_object *self) {
  if (!self->result) {
    return PyUnicode_FromFormat("<gpufetch.Future %s>", self->cancelled ? "cancelled" : "failed");
  }
  PyObject *result = describe_result(self);
  if (!result) {
    return NULL;
  }
  const char *state = self->pid != getpid() ? "before fork"
                      : !has_ended(self)    ? "running"
                      : self->cancelled     ? "cancelled"
                                            : "done";
  PyObject *text = PyUnicode_FromFormat("<gpufetch.Future %s: %U>", state, result);
  Py_DECREF(result);
  return text;
}

static PyMethodDef future_methods[] = {
    {"result", GPUFI_PY_METHOD(future_result), METH_FASTCALL | METH_KEYWORDS, result_doc},
    {"wait", GPUFI_PY_METHOD(future_wait), METH_FASTCALL | METH_KEYWORDS, wait_doc},
    {"join", (PyCFunction)future_join, METH_NOARGS, join_doc},
    {"done", (PyCFunction)future_done, METH_NOARGS, done_doc},
    {"cancel", (PyCFunction)future_cancel, METH_NOARGS, cancel_doc},
    {"cancelled", (PyCFunction)future_cancelled, METH_NOARGS, cancelled_doc},
    {0},
};

static PyMemberDef future_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(future_object, weakrefs), READONLY, NULL},
    {0},
};

PyDoc_STRVAR(future_doc,
             "A fetch in flight, which gpufetch.Future wraps.\n\n"
             "Keeps the source and the destination alive until the copy has ended. Dropping the\n"
             "last reference waits for the copy. May be used from any thread. In a forked child\n"
             "the methods raise gpufetch.Error.");

static PyType_Slot future_slots[] = {
    {Py_tp_doc, (void *)future_doc},   {Py_tp_dealloc, future_dealloc},
    {Py_tp_traverse, future_traverse}, {Py_tp_clear, future_clear},
    {Py_tp_repr, future_repr},         {Py_tp_methods, future_methods},
    {Py_tp_members, future_members},   {0, NULL},
};

PyType_Spec gpufi_py_future_spec = {
    .name = "gpufetch._core.Future",
    .basicsize = sizeof(future_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = future_slots,
};
