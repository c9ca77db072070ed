/* Checkpoints: gpufetch._checkpoint's calls into the library. */
#include <gpufetch/checkpoint.h>

#include <pthread.h>
#include <stdlib.h>

#include "adapter.h"
#include "base/error.h"
#include "core/runtime.h"
#include "errors.h"
#include "handle.h"
#include "methods.h"
#include "tensor_list.h"

static const char checkpoint_kind[] = "gpufetch.checkpoint";

/* --- Reports ----------------------------------------------------------------- */

static const char *state_of(const gpuf_checkpoint_report *report) {
  if (report->step < 0) {
    return "none";
  }
  return report->status == GPUF_OK            ? "written"
         : report->status == GPUF_ERR_TIMEOUT ? "being written"
                                              : "failed";
}

static PyObject *report_dict(const gpuf_checkpoint_report *report) {
  return Py_BuildValue(
      "{s:L,s:s,s:i,s:K,s:K,s:K,s:d,s:L,s:L,s:K,s:K,s:N,s:N}", "step", (long long)report->step,
      "state", state_of(report), "mode", (int)report->mode, "raw_nbytes",
      (unsigned long long)report->raw_nbytes, "file_nbytes",
      (unsigned long long)report->file_nbytes, "recycled_nbytes",
      (unsigned long long)report->recycled_nbytes, "ratio", report->ratio, "stall_ns",
      (long long)report->stall_ns, "write_ns", (long long)report->write_ns, "device_nbytes",
      (unsigned long long)report->device_nbytes, "host_nbytes",
      (unsigned long long)report->host_nbytes, "path", PyUnicode_DecodeFSDefault(report->path),
      "message", gpufi_py_text(report->message));
}

/* Raise `err`, which may name an option: here they are arguments of their own. */
static PyObject *raise_checkpoint(const gpufi_py_state *state, gpuf_error *err) {
  static const char prefix[] = "options.";
  const size_t nbytes = sizeof(prefix) - 1;
  for (char *at = err->message; (at = strstr(at, prefix));) {
    memmove(at, at + nbytes, strlen(at + nbytes) + 1);
  }
  return gpufi_py_raise(state, err);
}

/* --- Tensors ----------------------------------------------------------------- */

PyDoc_STRVAR(checkpoint_check_doc,
             "checkpoint_check(x, /)\n--\n\n"
             "TypeError or ValueError where x is no tensor that a checkpoint may have.");

static PyObject *checkpoint_check(PyObject *module, PyObject *x) {
  gpufi_py_import import;
  if (gpufi_py_adapter_import(gpufi_py_state_of_module(module), x, &import) < 0) {
    return NULL;
  }
  gpufi_py_import_clear(&import);
  Py_RETURN_NONE;
}

/* --- Opening ----------------------------------------------------------------- */

/* The writer is opened by the first save, which says what memory it takes. */
typedef struct writer {
  gpuf_checkpoint_options options; /* its strings are the writer's */
  const gpufi_py_handle *handle;   /* that has the writer */
  PyObject *agree;                 /* of ranks; else NULL */
  bool is_left; /* nothing is agreed on any more: set by the thread that ends the writer */
  gpuf_checkpoint *checkpoint; /* atomic; NULL until it is open. Set by the first save alone. */
  pthread_mutex_t mutex;       /* guards what follows; held for a moment, without the GIL */
  gpufi_py_tensor_list held; /* of the save before, which may be read still by work on its stream */
  int64_t held_step;
} writer;

/* Without the GIL: take out what is held for a step, or for any (-1). */
static gpufi_py_tensor_list take_held(writer *w, int64_t step) {
  gpufi_py_tensor_list held = {NULL, 0};
  pthread_mutex_lock(&w->mutex);
  if (step < 0 || step == w->held_step) {
    held = w->held;
    w->held = (gpufi_py_tensor_list){NULL, 0};
  }
  pthread_mutex_unlock(&w->mutex);
  return held;
}

/* The programs' agree that this thread is in. */
typedef struct agreement {
  const gpufi_py_handle *handle;
  const struct agreement *outer;
} agreement;

static _Thread_local const agreement *innermost;

/* A handle whose writer this thread may use. NULL, and an exception, where `capsule` has none, or
 * its agree makes the call, which would wait for the one that it is called by. */
static gpufi_py_handle *handle_to_use(const gpufi_py_state *state, PyObject *capsule) {
  gpufi_py_handle *const handle = gpufi_py_handle_of(capsule, checkpoint_kind);
  const agreement *a = innermost;
  gpuf_error err;
  while (a && a->handle != handle) {
    a = a->outer;
  }
  if (!handle || !a) {
    return handle;
  }
  gpufi_fail(&err, GPUF_ERR_STATE, 0,
             "agree calls the checkpoint that it agrees for, and would wait for itself: let it "
             "give the minimum over the ranks, and nothing else");
  gpufi_py_raise(state, &err);
  return NULL;
}

static PyObject *call_agree(const writer *w, int64_t value) {
  const agreement own = {w->handle, innermost};
  innermost = &own;
  PyObject *const found = PyObject_CallFunction(w->agree, "L", (long long)value);
  innermost = own.outer;
  return found;
}

/* What the library calls on the thread that called it, without the GIL. What the program's function
 * raises stays set, and is raised by the call. */
static int64_t agree(void *arg, int64_t value) {
  const writer *const w = arg;
  int64_t least = -1;
  if (w->is_left) {
    return -1;
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  if (!PyErr_Occurred()) {
    PyObject *const found = call_agree(w, value);
    least = found ? (int64_t)PyLong_AsLongLong(found) : -1;
    if (found && PyErr_ExceptionMatches(PyExc_OverflowError)) {
      PyErr_Format(PyExc_ValueError,
                   "agree returned %R, and is to return the least of the ranks' values, which are "
                   "integers of 64 bits",
                   found);
    }
    Py_XDECREF(found);
  }
  least = PyErr_Occurred() ? -1 : least;
  PyGILState_Release(gil);
  return least;
}

/* Without the GIL. */
static gpuf_status writer_close(writer *w, gpuf_checkpoint_report *report, gpuf_error *err) {
  const gpuf_status status =
      w->checkpoint ? gpuf_checkpoint_close(w->checkpoint, report, err) : GPUF_OK;
  gpufi_py_tensor_list held = take_held(w, -1);
  if (held.count > 0 || w->agree) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    gpufi_py_tensors_clear(&held);
    Py_CLEAR(w->agree);
    PyGILState_Release(gil);
  }
  pthread_mutex_destroy(&w->mutex);
  free((char *)w->options.directory);
  free((char *)w->options.prefix);
  free((char *)w->options.application);
  free(w);
  return status;
}

/* A finalizer cannot wait for other ranks. */
static void destroy_writer(void *object) {
  writer *const w = object;
  w->is_left = true;
  writer_close(w, NULL, NULL);
}

PyDoc_STRVAR(
    checkpoint_create_doc,
    "checkpoint_create(directory, prefix, keep, mode, device_max_nbytes,\n"
    "                  host_max_nbytes, compress, sync, replace, recycle, skip_if_busy, shards,\n"
    "                  application, rank, rank_count, agree, /)\n--\n\n"
    "A capsule of a writer. `application` and `agree` may be None.");

static PyObject *checkpoint_create(PyObject *module, PyObject *args) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  PyObject *directory = NULL, *agrees;
  const char *prefix, *application;
  Py_ssize_t device_max_nbytes, host_max_nbytes, shards;
  int keep, mode, compress, sync, replace, recycle, skip_if_busy, rank, rank_count;
  if (!PyArg_ParseTuple(args, "O&siinnpppppnziiO:checkpoint_create", PyUnicode_FSConverter,
                        &directory, &prefix, &keep, &mode, &device_max_nbytes, &host_max_nbytes,
                        &compress, &sync, &replace, &recycle, &skip_if_busy, &shards, &application,
                        &rank, &rank_count, &agrees)) {
    return NULL;
  }
  options.keep_count = keep;
  options.mode = (gpuf_checkpoint_mode)mode;
  options.device_max_nbytes = (size_t)device_max_nbytes;
  options.host_max_nbytes = (size_t)host_max_nbytes;
  options.uncompressed = !compress;
  options.unsynced = !sync;
  options.replace = replace;
  options.recycle = recycle;
  options.skip_if_busy = skip_if_busy;
  options.shard_count = (size_t)shards;
  options.rank = rank;
  options.rank_count = rank_count;
  options.agree = agree;
  writer *const w = calloc(1, sizeof(*w));
  if (w) {
    pthread_mutex_init(&w->mutex, NULL);
    w->options = options;
    w->options.directory = strdup(PyBytes_AsString(directory));
    w->options.prefix = strdup(prefix);
    w->options.application = application ? strdup(application) : NULL;
    w->options.agree_arg = w;
    w->agree = agrees == Py_None ? NULL : Py_NewRef(agrees);
  }
  Py_DECREF(directory);
  if (!w || !w->options.directory || !w->options.prefix ||
      (application && !w->options.application)) {
    if (w) {
      destroy_writer(w);
    }
    return PyErr_NoMemory();
  }
  PyObject *const capsule = gpufi_py_handle_create(checkpoint_kind, w, destroy_writer);
  if (capsule) {
    w->handle = gpufi_py_handle_of(capsule, checkpoint_kind);
  }
  return capsule;
}

/* The first device of the tensors, and how many bytes lie on it. */
static void survey(const gpufi_py_tensor_list *list, gpuf_checkpoint_options *options) {
  for (Py_ssize_t i = 0; i < list->count; i++) {
    const gpuf_tensor *const tensor = &list->imports[i].tensor;
    if (tensor->device.kind != GPUF_DEVICE_CPU && options->device.kind == GPUF_DEVICE_CPU) {
      options->device = tensor->device;
    }
    if (tensor->device.kind != GPUF_DEVICE_CPU &&
        gpufi_is_same_device(tensor->device, options->device)) {
      options->state_nbytes += gpuf_tensor_nbytes(tensor);
    }
  }
}

/* Without the GIL, and alone. A state without elements on a device has no mode of one. */
static gpuf_status open_writer(writer *w, const gpufi_py_tensor_list *tensors, gpuf_error *err) {
  gpuf_checkpoint_options options = w->options;
  gpuf_checkpoint *opened;
  if (w->checkpoint) {
    return GPUF_OK;
  }
  survey(tensors, &options);
  if (options.state_nbytes == 0) {
    options.mode = GPUF_CHECKPOINT_AUTO;
  }
  const gpuf_status status = gpuf_checkpoint_open(&options, &opened, NULL, err);
  if (status == GPUF_OK) {
    __atomic_store_n(&w->checkpoint, opened, __ATOMIC_RELEASE);
  }
  return status;
}

/* --- Refusing ---------------------------------------------------------------- */

/* Without the GIL, and alone: make the call that the other ranks make with arguments that are
 * wrong, so that it fails on all of them, and names this rank. */
static void fail_on_all(writer *w) {
  gpuf_checkpoint_options options = w->options;
  gpuf_checkpoint *none;
  if (w->checkpoint) {
    gpuf_checkpoint_begin(w->checkpoint, -1, NULL, NULL);
  } else {
    options.keep_count = -1;
    gpuf_checkpoint_open(&options, &none, NULL, NULL);
  }
}

/* An exception says why this rank cannot save: let the save of the other ranks fail, too. What
 * agree raises meanwhile takes the exception's place, and has it as context. */
static void refuse(gpufi_py_handle *handle) {
  const gpufi_py_exception why = gpufi_py_exception_take();
  gpuf_error err;
  Py_BEGIN_ALLOW_THREADS
    writer *const w = gpufi_py_handle_begin(handle, true, &err);
    if (w) {
      if (w->agree) {
        fail_on_all(w);
      }
      gpufi_py_handle_end(handle, true);
    }
  Py_END_ALLOW_THREADS
  if (PyErr_Occurred()) {
    gpufi_py_exception_chain(why);
  } else {
    gpufi_py_exception_restore(why);
  }
}

PyDoc_STRVAR(
    checkpoint_refuse_doc,
    "checkpoint_refuse(checkpoint, /)\n--\n\n"
    "Where there are other ranks, let their checkpoint_save fail, which this one does not\n"
    "make. Raises what agree does.");

static PyObject *checkpoint_refuse(PyObject *module, PyObject *capsule) {
  gpufi_py_handle *const handle = handle_to_use(gpufi_py_state_of_module(module), capsule);
  if (!handle) {
    return NULL;
  }
  refuse(handle);
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* --- Saving ------------------------------------------------------------------ */

typedef struct save_call {
  long long step;
  gpufi_py_tensor_list tensors;
  gpufi_py_tensor_list before; /* that nothing reads any more */
  gpuf_stream stream;
  const char **names; /* of the tensors, borrowed from the strings of the caller's tuple */
  gpufi_py_part_list parts;
  const char *tree;
} save_call;

/* Work on the call's stream may read the tensors until the checkpoint is written: the writer holds
 * them. */
static void hold_tensors(writer *w, save_call *call) {
  pthread_mutex_lock(&w->mutex);
  w->held = call->tensors;
  w->held_step = call->step;
  pthread_mutex_unlock(&w->mutex);
  call->tensors = (gpufi_py_tensor_list){NULL, 0};
}

/* Without the GIL. Without a stream, nothing orders what the caller does next to the tensors behind
 * one: commit waits until they have been read. */
static gpuf_status save(writer *w, save_call *call, gpuf_checkpoint_report *report,
                        gpuf_error *err) {
  gpuf_status status = open_writer(w, &call->tensors, err);
  gpuf_checkpoint *const checkpoint = w->checkpoint;
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_begin(checkpoint, call->step, report, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  call->before = take_held(w, -1); /* that checkpoint has ended */
  for (Py_ssize_t i = 0; i < call->tensors.count && status == GPUF_OK; i++) {
    const gpuf_part *const part = call->parts.are_parts[i] ? &call->parts.all[i] : NULL;
    if (part || w->options.rank == 0) { /* what all ranks have is rank 0's */
      status = gpuf_checkpoint_add(checkpoint, call->names[i], &call->tensors.imports[i].tensor,
                                   part, err);
    }
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_add_text(checkpoint, "gpufetch_state", call->tree, err);
  }
  if (status != GPUF_OK) {
    gpuf_checkpoint_abort(checkpoint, NULL);
    return status;
  }
  status = gpuf_checkpoint_commit(checkpoint, call->stream, err);
  if (call->stream != GPUF_STREAM_NONE) {
    hold_tensors(w, call);
  }
  return status;
}

PyDoc_STRVAR(checkpoint_save_doc,
             "checkpoint_save(checkpoint, step, names, tensors, parts, tree, stream, /)\n--\n\n"
             "Commit a checkpoint on a stream (0: none); the report of the one before.");

static PyObject *checkpoint_save(PyObject *module, PyObject *args) {
  gpufi_py_state *const state = gpufi_py_state_of_module(module);
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  save_call call = {.step = 0};
  PyObject *capsule, *names, *tensors, *parts;
  unsigned long long stream;
  gpuf_error err;
  gpuf_status status = GPUF_ERR_STATE;
  if (!PyArg_ParseTuple(args, "OLO!O!O!sK:checkpoint_save", &capsule, &call.step, &PyTuple_Type,
                        &names, &PyTuple_Type, &tensors, &PyTuple_Type, &parts, &call.tree,
                        &stream)) {
    return NULL;
  }
  call.stream = (gpuf_stream)stream;
  gpufi_py_handle *const handle = handle_to_use(state, capsule);
  if (!handle) {
    return NULL;
  }
  PyObject *result = NULL;
  if (gpufi_py_tensors_import(state, tensors, &call.tensors) < 0 ||
      gpufi_py_tensors_names(names, &call.tensors, &call.names) < 0 ||
      gpufi_py_tensors_parts(parts, &call.tensors, &call.parts) < 0) {
    refuse(handle);
  } else {
    Py_BEGIN_ALLOW_THREADS
      writer *const w = gpufi_py_handle_begin(handle, true, &err);
      if (w) {
        status = save(w, &call, &report, &err);
        gpufi_py_handle_end(handle, true);
      }
    Py_END_ALLOW_THREADS
    result = status == GPUF_OK ? report_dict(&report) : raise_checkpoint(state, &err);
  }
  gpufi_py_tensors_clear(&call.tensors);
  gpufi_py_tensors_clear(&call.before);
  free(call.names);
  gpufi_py_parts_clear(&call.parts);
  return result;
}

PyDoc_STRVAR(checkpoint_wait_doc,
             "checkpoint_wait(checkpoint, timeout_ns, raises, /)\n--\n\n"
             "Wait for the checkpoint that was committed last; its report. With `raises`, its\n"
             "failure is raised, and TimeoutError where it is still being written.");

static PyObject *checkpoint_wait(PyObject *module, PyObject *args) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  PyObject *capsule;
  long long timeout_ns;
  int raises;
  gpufi_py_tensor_list written = {NULL, 0};
  gpuf_error err;
  writer *w;
  gpuf_status status = GPUF_ERR_STATE;
  if (!PyArg_ParseTuple(args, "OLp:checkpoint_wait", &capsule, &timeout_ns, &raises)) {
    return NULL;
  }
  gpufi_py_handle *const handle = handle_to_use(gpufi_py_state_of_module(module), capsule);
  if (!handle) {
    return NULL;
  }
  report.step = -1;
  Py_BEGIN_ALLOW_THREADS
    w = gpufi_py_handle_begin(handle, false, &err);
    if (w) {
      gpuf_checkpoint *const checkpoint = __atomic_load_n(&w->checkpoint, __ATOMIC_ACQUIRE);
      status = checkpoint ? gpuf_checkpoint_wait(checkpoint, timeout_ns, &report, &err) : GPUF_OK;
      if (status != GPUF_ERR_TIMEOUT && report.step >= 0) {
        written = take_held(w, report.step);
      }
      gpufi_py_handle_end(handle, false);
    }
  Py_END_ALLOW_THREADS
  gpufi_py_tensors_clear(&written);
  return status != GPUF_OK && (raises || !w || PyErr_Occurred())
             ? gpufi_py_raise(gpufi_py_state_of_module(module), &err)
             : report_dict(&report);
}

PyDoc_STRVAR(checkpoint_close_doc,
             "checkpoint_close(checkpoint, leaves, /)\n--\n\n"
             "Wait for the last checkpoint, close the writer, and raise its failure. Does nothing\n"
             "where it was closed before. With `leaves`, other ranks are not waited for.");

static PyObject *checkpoint_close(PyObject *module, PyObject *args) {
  PyObject *capsule;
  int leaves;
  gpuf_error err;
  gpuf_status status = GPUF_OK;
  if (!PyArg_ParseTuple(args, "Op:checkpoint_close", &capsule, &leaves)) {
    return NULL;
  }
  gpufi_py_handle *const handle = handle_to_use(gpufi_py_state_of_module(module), capsule);
  if (!handle) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    writer *const w = gpufi_py_handle_take(handle);
    if (w) {
      w->is_left = leaves;
      status = writer_close(w, NULL, &err);
    }
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

PyMethodDef gpufi_py_checkpoint_methods[] = {
    {"checkpoint_check", checkpoint_check, METH_O, checkpoint_check_doc},
    {"checkpoint_create", checkpoint_create, METH_VARARGS, checkpoint_create_doc},
    {"checkpoint_refuse", checkpoint_refuse, METH_O, checkpoint_refuse_doc},
    {"checkpoint_save", checkpoint_save, METH_VARARGS, checkpoint_save_doc},
    {"checkpoint_wait", checkpoint_wait, METH_VARARGS, checkpoint_wait_doc},
    {"checkpoint_close", checkpoint_close, METH_VARARGS, checkpoint_close_doc},
    {0},
};
