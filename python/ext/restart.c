/* Restarts from checkpoints: gpufetch._checkpoint's calls that read. */
#include <gpufetch/checkpoint.h>

#include <string.h>

#include "adapter.h"
#include "arguments.h"
#include "devices.h"
#include "errors.h"
#include "handle.h"
#include "methods.h"
#include "results.h"

static const char restart_kind[] = "gpufetch.restart";

static void close_restart(void *restart) {
  gpuf_restart_close(restart);
}

PyDoc_STRVAR(restart_open_doc,
             "restart_open(directory, prefix, step_max, /)\n--\n\n"
             "(capsule or None, report) of the newest whole checkpoint up to a step (-1: any).");

static PyObject *restart_open(PyObject *module, PyObject *args) {
  gpufi_py_state *const state = gpufi_py_state_of_module(module);
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  gpuf_restart *restart = NULL;
  PyObject *directory = NULL;
  const char *prefix;
  long long step_max;
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "O&sL:restart_open", PyUnicode_FSConverter, &directory, &prefix,
                        &step_max)) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status =
        gpuf_restart_open(PyBytes_AsString(directory), prefix, step_max, &restart, &report, &err);
  Py_END_ALLOW_THREADS
  Py_DECREF(directory);
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  PyObject *const capsule =
      restart ? gpufi_py_handle_create(restart_kind, restart, close_restart) : Py_NewRef(Py_None);
  return capsule
             ? Py_BuildValue("N{s:L,s:L,s:L,s:N,s:N,s:N}", capsule, "step", (long long)report.step,
                             "skipped_count", (long long)report.skipped_count, "skipped_step",
                             (long long)report.skipped_step, "path",
                             PyUnicode_DecodeFSDefault(report.path), "message",
                             gpufi_py_text(report.message), "application",
                             gpufi_py_text(report.application))
             : NULL;
}

PyDoc_STRVAR(restart_tree_doc,
             "restart_tree(restart, /)\n--\n\n"
             "What checkpoint_save was given as `tree`. ValueError where there is none.");

static PyObject *restart_tree(PyObject *module, PyObject *capsule) {
  const gpufi_py_state *const state = gpufi_py_state_of_module(module);
  const char *text = NULL;
  gpuf_error err;
  gpufi_py_handle *const handle = gpufi_py_handle_of(capsule, restart_kind);
  gpuf_restart *const restart = handle ? gpufi_py_handle_begin(handle, false, &err) : NULL;
  if (!restart) {
    return handle ? gpufi_py_raise(state, &err) : NULL;
  }
  const gpuf_status status = gpuf_restart_get_text(restart, "gpufetch_state", &text, &err);
  PyObject *const result =
      status == GPUF_OK ? PyUnicode_FromString(text) : gpufi_py_raise(state, &err);
  gpufi_py_handle_end(handle, false);
  return result;
}

/* Without the GIL. */
static gpuf_status describe(gpufi_py_handle *handle, const char *name, gpuf_tensor *tensor,
                            gpuf_error *err) {
  gpuf_restart *const restart = gpufi_py_handle_begin(handle, false, err);
  gpuf_status status = GPUF_ERR_STATE;
  if (restart) {
    status = gpuf_restart_describe(restart, name, tensor, err);
    gpufi_py_handle_end(handle, false);
  }
  return status;
}

/* Without the GIL. */
static gpuf_status read_tensor(gpufi_py_handle *handle, const char *name, const gpuf_tensor *tensor,
                               const gpuf_part *part, gpuf_error *err) {
  gpuf_restart *const restart = gpufi_py_handle_begin(handle, false, err);
  gpuf_status status = GPUF_ERR_STATE;
  if (restart) {
    status = gpuf_restart_read(restart, name, tensor, part, err);
    gpufi_py_handle_end(handle, false);
  }
  return status;
}

static PyObject *create_result(const gpufi_py_state *state, gpufi_py_handle *handle,
                               const char *name, PyObject *device_name, gpuf_tensor *tensor) {
  gpuf_device device;
  gpuf_error err;
  gpuf_status status;
  memset(tensor, 0, sizeof(*tensor));
  if (gpufi_py_device_parse(state, device_name, &device) < 0 ||
      gpufi_py_device_check(state, device) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = describe(handle, name, tensor, &err);
  Py_END_ALLOW_THREADS
  return status == GPUF_OK ? gpufi_py_result_create(state, device, tensor)
                           : gpufi_py_raise(state, &err);
}

PyDoc_STRVAR(
    restart_read_doc,
    "restart_read(restart, name, device, out, part, /)\n--\n\n"
    "Read a tensor into `out`, or for None into a fresh array on `device`; returns it. With\n"
    "`part`, which is None or a tuple of start and global shape, that box of it.");

static PyObject *restart_read(PyObject *module, PyObject *args) {
  gpufi_py_state *const state = gpufi_py_state_of_module(module);
  PyObject *capsule, *device, *out, *box;
  const char *name;
  gpuf_part part = GPUF_PART_INIT;
  gpufi_py_import import = {.keepalive = NULL};
  gpuf_error err;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OsOOO:restart_read", &capsule, &name, &device, &out, &box)) {
    return NULL;
  }
  gpufi_py_handle *const handle = gpufi_py_handle_of(capsule, restart_kind);
  if (!handle || (box != Py_None && gpufi_py_part(box, -1, &part) < 0)) {
    return NULL;
  }
  PyObject *result = out == Py_None ? create_result(state, handle, name, device, &import.tensor)
                                    : gpufi_py_result_use(state, out, &import);
  if (result) {
    Py_BEGIN_ALLOW_THREADS
      status = read_tensor(handle, name, &import.tensor, box == Py_None ? NULL : &part, &err);
    Py_END_ALLOW_THREADS
    if (status != GPUF_OK) {
      Py_CLEAR(result);
      gpufi_py_raise(state, &err);
    }
  }
  gpufi_py_import_clear(&import);
  return result;
}

PyMethodDef gpufi_py_restart_methods[] = {
    {"restart_open", restart_open, METH_VARARGS, restart_open_doc},
    {"restart_tree", restart_tree, METH_O, restart_tree_doc},
    {"restart_read", restart_read, METH_VARARGS, restart_read_doc},
    {0},
};
