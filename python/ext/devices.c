/* Devices by their names. */
#include "devices.h"

#include "errors.h"

#include <stdio.h>
#include <stdlib.h>

const char *gpufi_py_device_text(gpuf_device device, char *text) {
  if (device.kind == GPUF_DEVICE_CPU) {
    return "cpu";
  }
  snprintf(text, GPUFI_PY_DEVICE_TEXT_NBYTES, "%s:%d", gpuf_device_kind_name(device.kind),
           (int)device.index);
  return text;
}

/* Parse "kind" or "kind:index" of at most nine digits. */
static int parse_device_text(const char *text, gpuf_device *device) {
  static const gpuf_device_kind kinds[] = {GPUF_DEVICE_CPU, GPUF_DEVICE_CUDA, GPUF_DEVICE_HOST};
  for (int i = 0; i < GPUFI_PY_COUNT(kinds); i++) {
    const char *name = gpuf_device_kind_name(kinds[i]);
    const size_t length = strlen(name);
    if (strncmp(text, name, length) != 0) {
      continue;
    }
    const char *digits = text + length;
    *device = (gpuf_device){kinds[i], 0};
    if (*digits == '\0') {
      return 0;
    }
    const size_t digit_count = strlen(digits + 1);
    if (*digits != ':' || kinds[i] == GPUF_DEVICE_CPU || digit_count == 0 || digit_count > 9 ||
        strspn(digits + 1, "0123456789") != digit_count) {
      return -1;
    }
    device->index = (int32_t)strtol(digits + 1, NULL, 10);
    return 0;
  }
  return -1;
}

int gpufi_py_device_parse(const gpufi_py_state *state, PyObject *object, gpuf_device *device) {
  if (!object || object == Py_None) {
    gpuf_error err;
    if (gpuf_device_default(device, &err) != GPUF_OK) {
      gpufi_py_raise(state, &err);
      return -1;
    }
    return 0;
  }
  Py_ssize_t nbytes = 0;
  const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &nbytes) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  if (!text || strlen(text) != (size_t)nbytes || parse_device_text(text, device) < 0) {
    PyErr_Format(text ? PyExc_ValueError : PyExc_TypeError,
                 "device %R is not understood: use \"cuda:0\", \"host:0\" or \"cpu\"", object);
    return -1;
  }
  return 0;
}

int gpufi_py_device_check(const gpufi_py_state *state, gpuf_device device) {
  gpuf_error err;
  int32_t count = 0;
  char text[GPUFI_PY_DEVICE_TEXT_NBYTES];
  if (device.kind == GPUF_DEVICE_CPU) {
    return 0;
  }
  if (gpuf_device_count(device.kind, &count, &err) != GPUF_OK) {
    gpufi_py_raise(state, &err);
    return -1;
  }
  if (device.index < 0 || device.index >= count) {
    PyErr_Format(PyExc_ValueError, "device %s does not exist: there %s %d of that kind",
                 gpufi_py_device_text(device, text), count == 1 ? "is" : "are", (int)count);
    return -1;
  }
  return 0;
}

gpuf_stream gpufi_py_device_stream(gpuf_device device) {
  return device.kind == GPUF_DEVICE_CUDA ? GPUF_STREAM_LEGACY : GPUF_STREAM_NONE;
}
