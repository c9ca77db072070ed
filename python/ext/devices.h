/* Devices by their names. */
#ifndef GPUFI_PY_DEVICES_H
#define GPUFI_PY_DEVICES_H

#include "state.h"

#define GPUFI_PY_DEVICE_TEXT_NBYTES 32

/* "cuda:1" or "cpu". Written to `text`, of GPUFI_PY_DEVICE_TEXT_NBYTES, unless it is a constant.
 * Needs no GIL. */
const char *gpufi_py_device_text(gpuf_device device, char *text);
/* From "cuda:1", "host:0", "cuda" (index 0), "cpu", or None (the default device). TypeError or
 * ValueError. */
int gpufi_py_device_parse(const gpufi_py_state *state, PyObject *object, gpuf_device *device);
/* Check that the device exists; GPUF_DEVICE_CPU always does. ValueError. */
int gpufi_py_device_check(const gpufi_py_state *state, gpuf_device device);
/* The stream that consumers of memory on `device` may be assumed to use: CUDA's legacy default
 * stream, with which work on memory of unknown users is in order by custom; else none. */
gpuf_stream gpufi_py_device_stream(gpuf_device device);

#endif
