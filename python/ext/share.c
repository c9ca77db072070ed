/* Sharing between processes: gpufetch._share's calls into the library. A handle is bytes here. */
#include <gpufetch/share.h>

#include "adapter.h"
#include "arguments.h"
#include "attachment.h"
#include "device_array.h"
#include "devices.h"
#include "errors.h"
#include "interpreter.h"
#include "methods.h"

/* --- Handles ------------------------------------------------------------- */

static int handle_from_bytes(PyObject *object, gpuf_share_handle *handle) {
  char *bytes;
  Py_ssize_t nbytes;
  if (PyBytes_AsStringAndSize(object, &bytes, &nbytes) < 0) {
    return -1;
  }
  if ((size_t)nbytes > sizeof(handle->bytes)) {
    PyErr_Format(PyExc_ValueError, "a share handle of %zd bytes; it has at most %zu: copy it alone",
                 nbytes, sizeof(handle->bytes));
    return -1;
  }
  memset(handle, 0, sizeof(*handle));
  memcpy(handle->bytes, bytes, (size_t)nbytes);
  handle->nbytes = (uint32_t)nbytes;
  return 0;
}

static PyObject *handle_to_bytes(const gpuf_share_handle *handle) {
  return PyBytes_FromStringAndSize((const char *)handle->bytes, (Py_ssize_t)handle->nbytes);
}

/* Raise `err`; a corrupt handle is an invalid argument: ValueError. */
static PyObject *raise_share(const gpufi_py_state *state, gpuf_error *err) {
  if (err->status == GPUF_ERR_CORRUPT) {
    err->status = GPUF_ERR_INVALID;
  }
  return gpufi_py_raise(state, err);
}

/* --- The exporter -------------------------------------------------------- */

static PyObject *share_export(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"", "copy", NULL};
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_share_handle handle;
  gpuf_error err;
  PyObject *x;
  int copy = 0;
  gpuf_status status;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:share_export", keywords, &x, &copy) ||
      gpufi_py_adapter_import(state, x, &source) < 0 ||
      (!copy && gpufi_py_adapter_refuse_copy(&source, "share without copy=True") < 0)) {
    return NULL;
  }
  const gpuf_share_options options = {
      .struct_nbytes = sizeof(options),
      .readonly = source.readonly,
      .copy = copy,
      .release = copy ? NULL : gpufi_py_release_owner,
      .release_arg = source.keepalive,
  };
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_share(&source.tensor, &options, &handle, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    gpufi_py_import_clear(&source);
    return raise_share(state, &err);
  }
  if (copy) {
    gpufi_py_import_clear(&source);
  } /* else the share has the reference, until it calls gpufi_py_release_owner */
  return handle_to_bytes(&handle);
}

static PyObject *share_unshare(PyObject *module, PyObject *args) {
  PyObject *bytes;
  long long timeout_ns;
  gpuf_share_handle handle;
  gpuf_error err;
  int32_t importer_count = 0;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "OL:share_unshare", &bytes, &timeout_ns) ||
      handle_from_bytes(bytes, &handle) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_unshare(&handle, timeout_ns, &importer_count, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK && status != GPUF_ERR_TIMEOUT) {
    return raise_share(gpufi_py_state_of_module(module), &err);
  }
  return PyLong_FromLong(importer_count);
}

static PyObject *share_importers(PyObject *module, PyObject *bytes) {
  gpuf_share_handle handle;
  gpuf_error err;
  int32_t importer_count;
  if (handle_from_bytes(bytes, &handle) < 0) {
    return NULL;
  }
  if (gpuf_share_importer_count(&handle, &importer_count, &err) != GPUF_OK) {
    return raise_share(gpufi_py_state_of_module(module), &err);
  }
  return PyLong_FromLong(importer_count);
}

static PyObject *share_stop(PyObject *module, PyObject *unused) {
  gpufi_py_interpreter_stop();
  Py_RETURN_NONE;
}

/* --- The importer -------------------------------------------------------- */

static PyObject *share_attach(PyObject *module, PyObject *bytes) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpuf_share_handle handle;
  gpuf_share_info info = GPUF_SHARE_INFO_INIT;
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  gpuf_error err;
  gpuf_status status;
  if (handle_from_bytes(bytes, &handle) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_share_describe(&handle, &info, &err);
    if (status == GPUF_OK) {
      status = gpuf_attach(&handle, &attachment, &tensor, &err);
    }
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return raise_share(state, &err);
  }
  tensor.stream = gpufi_py_device_stream(tensor.device); /* others may write to the memory */
  PyObject *capsule = gpufi_py_attachment_create(attachment);
  if (!capsule) {
    return NULL;
  }
  PyObject *array = gpufi_py_device_array_create(state, &tensor, info.readonly, capsule);
  Py_DECREF(capsule);
  return array;
}

/* --- Text and description ------------------------------------------------ */

static PyObject *share_text(PyObject *module, PyObject *bytes) {
  gpuf_share_handle handle;
  gpuf_error err;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  if (handle_from_bytes(bytes, &handle) < 0) {
    return NULL;
  }
  if (gpuf_share_to_text(&handle, text, &err) != GPUF_OK) {
    return raise_share(gpufi_py_state_of_module(module), &err);
  }
  return PyUnicode_FromString(text);
}

static PyObject *share_parse(PyObject *module, PyObject *args) {
  const char *text;
  gpuf_share_handle handle;
  gpuf_error err;
  if (!PyArg_ParseTuple(args, "s:share_parse", &text)) {
    return NULL;
  }
  if (gpuf_share_from_text(text, &handle, &err) != GPUF_OK) {
    return raise_share(gpufi_py_state_of_module(module), &err);
  }
  return handle_to_bytes(&handle);
}

static PyObject *share_describe(PyObject *module, PyObject *bytes) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpuf_share_handle handle;
  gpuf_share_info info = GPUF_SHARE_INFO_INIT;
  gpuf_error err;
  char device[GPUFI_PY_DEVICE_TEXT_NBYTES];
  if (handle_from_bytes(bytes, &handle) < 0) {
    return NULL;
  }
  if (gpuf_share_describe(&handle, &info, &err) != GPUF_OK) {
    return raise_share(state, &err);
  }
  PyObject *shape = gpufi_py_tuple_of(info.tensor.shape, info.tensor.ndim);
  PyObject *dict = NULL;
  if (shape) {
    dict = Py_BuildValue(
        "{s:O,s:O,s:s,s:n,s:O,s:L,s:K}", "shape", shape, "dtype", state->descrs[info.tensor.dtype],
        "device", gpufi_py_device_text(info.tensor.device, device), "nbytes",
        (Py_ssize_t)gpuf_tensor_nbytes(&info.tensor), "readonly",
        info.readonly ? Py_True : Py_False, "process_id", (long long)info.process_id, "generation",
        (unsigned long long)info.generation);
  }
  Py_XDECREF(shape);
  return dict;
}

PyDoc_STRVAR(
    share_export_doc,
    "share_export(x, /, *, copy=False)\n--\n\n"
    "As gpufetch.share: the handle's bytes. The share keeps x alive until unshared, but for\n"
    "copy=True, which shares a copy.");

PyDoc_STRVAR(
    share_unshare_doc,
    "share_unshare(handle, timeout_ns, /)\n--\n\n"
    "Withdraw a share and wait for its attachments for at most timeout_ns (-1: for ever).\n"
    "The number of attachments that are left.");

PyMethodDef gpufi_py_share_methods[] = {
    {"share_export", GPUFI_PY_METHOD(share_export), METH_VARARGS | METH_KEYWORDS, share_export_doc},
    {"share_attach", share_attach, METH_O,
     "share_attach(handle, /)\n--\n\nAs gpufetch.attach: a DeviceArray."},
    {"share_unshare", share_unshare, METH_VARARGS, share_unshare_doc},
    {"share_importers", share_importers, METH_O,
     "share_importers(handle, /)\n--\n\nThe number of attachments to a share that exist now."},
    {"share_text", share_text, METH_O,
     "share_text(handle, /)\n--\n\nThe text form of a handle's bytes."},
    {"share_parse", share_parse, METH_VARARGS,
     "share_parse(text, /)\n--\n\nThe bytes of a handle's text form. ValueError if it is no "
     "handle."},
    {"share_describe", share_describe, METH_O,
     "share_describe(handle, /)\n--\n\nWhat a handle says of its tensor and process, as a dict."},
    {"share_stop", share_stop, METH_NOARGS,
     "share_stop()\n--\n\nThe interpreter is about to end: release no more objects from threads."},
    {0},
};
