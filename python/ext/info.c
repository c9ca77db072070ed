/* info, check_process and the pool's functions; and the host backend's faults and streams, for
 * tests. */
#include "arguments.h"
#include "devices.h"
#include "errors.h"
#include "interpreter.h"
#include "methods.h"

#include "backend/host/faults.h"
#include "base/fork.h"
#include "base/system.h"

#include <math.h>

/* Add `value` under `key` and drop its reference; -1 if it is NULL. */
static int set(PyObject *dict, const char *key, PyObject *value) {
  if (!value) {
    return -1;
  }
  const int status = PyDict_SetItemString(dict, key, value);
  Py_DECREF(value);
  return status;
}

static PyObject *none(void) {
  Py_INCREF(Py_None);
  return Py_None;
}

/* "13.0" from CUDA's 13000; None for 0. */
static PyObject *cuda_version(int32_t version) {
  return version == 0
             ? none()
             : PyUnicode_FromFormat("%d.%d", (int)(version / 1000), (int)(version % 1000 / 10));
}

static PyObject *capability(const gpuf_device_info *info) {
  return info->compute_capability_major == 0
             ? none()
             : PyUnicode_FromFormat("%d.%d", (int)info->compute_capability_major,
                                    (int)info->compute_capability_minor);
}

static PyObject *device_info(const gpufi_py_state *state, gpuf_device device) {
  gpuf_device_info info = GPUF_DEVICE_INFO_INIT;
  gpuf_error err;
  gpuf_status status;
  char text[GPUFI_PY_DEVICE_TEXT_NBYTES];
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_device_get_info(device, &info, &err);
  Py_END_ALLOW_THREADS
  PyObject *dict = PyDict_New();
  if (!dict || set(dict, "device", PyUnicode_FromString(gpufi_py_device_text(device, text))) < 0) {
    goto fail;
  }
  if (status != GPUF_OK) { /* one device that does not answer must not hide the others */
    if (set(dict, "error", gpufi_py_text(err.message)) < 0) {
      goto fail;
    }
    return dict;
  }
  if (set(dict, "name", gpufi_py_text(info.name)) < 0 ||
      set(dict, "total_nbytes", PyLong_FromSize_t(info.total_nbytes)) < 0 ||
      set(dict, "free_nbytes", PyLong_FromSize_t(info.free_nbytes)) < 0 ||
      set(dict, "compute_capability", capability(&info)) < 0 ||
      set(dict, "driver", cuda_version(info.driver_version)) < 0 ||
      set(dict, "runtime", cuda_version(info.runtime_version)) < 0) {
    goto fail;
  }
  return dict;
fail:
  Py_XDECREF(dict);
  return NULL;
}

static PyObject *devices_info(const gpufi_py_state *state, gpuf_device_kind kind, int32_t count) {
  PyObject *list = PyList_New(0);
  for (int32_t i = 0; list && i < count; i++) {
    PyObject *item = device_info(state, (gpuf_device){kind, i});
    if (!item || PyList_Append(list, item) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(item);
  }
  return list;
}

static PyObject *backend_info(const gpufi_py_state *state, gpuf_device_kind kind) {
  gpuf_error err;
  int32_t count = 0;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_device_count(kind, &count, &err);
  Py_END_ALLOW_THREADS
  PyObject *dict = PyDict_New();
  if (!dict || set(dict, "available", PyBool_FromLong(status == GPUF_OK)) < 0 ||
      set(dict, "reason", status == GPUF_OK ? none() : gpufi_py_text(err.message)) < 0 ||
      set(dict, "devices", devices_info(state, kind, status == GPUF_OK ? count : 0)) < 0) {
    Py_XDECREF(dict);
    return NULL;
  }
  return dict;
}

static PyObject *pool_stats(PyObject *module, PyObject *unused) {
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  gpuf_pool_get_stats(&stats, NULL);
  PyObject *dict = PyDict_New();
  if (!dict || set(dict, "cap_nbytes", PyLong_FromSize_t(stats.cap_nbytes)) < 0 ||
      set(dict, "reserved_nbytes", PyLong_FromSize_t(stats.reserved_nbytes)) < 0 ||
      set(dict, "used_nbytes", PyLong_FromSize_t(stats.used_nbytes)) < 0 ||
      set(dict, "peak_used_nbytes", PyLong_FromSize_t(stats.peak_used_nbytes)) < 0 ||
      set(dict, "hit_count", PyLong_FromUnsignedLongLong(stats.hit_count)) < 0 ||
      set(dict, "miss_count", PyLong_FromUnsignedLongLong(stats.miss_count)) < 0) {
    Py_XDECREF(dict);
    return NULL;
  }
  return dict;
}

/* The default device's name, or None where GPUFETCH_BACKEND names one that does not answer. */
static PyObject *default_device(void) {
  gpuf_device device;
  gpuf_status status;
  char text[GPUFI_PY_DEVICE_TEXT_NBYTES];
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_device_default(&device, NULL);
  Py_END_ALLOW_THREADS
  return status == GPUF_OK ? PyUnicode_FromString(gpufi_py_device_text(device, text)) : none();
}

PyDoc_STRVAR(
    info_doc,
    "info()\n--\n\n"
    "A dict of the version, the default device (or None), the backends with their devices,\n"
    "and the pool's counters.");

static PyObject *info(PyObject *module, PyObject *unused) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *dict = PyDict_New(), *backends = PyDict_New();
  if (!dict || !backends || set(backends, "cuda", backend_info(state, GPUF_DEVICE_CUDA)) < 0 ||
      set(backends, "host", backend_info(state, GPUF_DEVICE_HOST)) < 0 ||
      set(dict, "version", PyUnicode_FromString(gpuf_version())) < 0 ||
      set(dict, "default_device", default_device()) < 0 ||
      PyDict_SetItemString(dict, "backends", backends) < 0 ||
      set(dict, "pool", pool_stats(module, NULL)) < 0) {
    Py_CLEAR(dict);
  }
  Py_XDECREF(backends);
  return dict;
}

PyDoc_STRVAR(pool_stats_doc,
             "pool_stats()\n--\n\nThe pinned pool's counters as a dict: bytes, hits and misses.");
PyDoc_STRVAR(pool_trim_doc,
             "pool_trim(keep_nbytes, /)\n--\n\n"
             "Return unused pinned memory to the system until the pool has at most keep_nbytes\n"
             "of it, and device memory that is kept for the next copy.");
PyDoc_STRVAR(pool_set_cap_doc,
             "pool_set_cap(nbytes, /)\n--\n\nSet the most pinned memory that the pool may have.");

static void trim(size_t keep_nbytes) {
  gpuf_pool_trim(keep_nbytes);
  gpuf_device_trim();
}

/* call(nbytes), without the GIL. */
static PyObject *call_with_nbytes(PyObject *object, void (*call)(size_t nbytes)) {
  size_t nbytes;
  if (gpufi_py_nbytes(object, &nbytes) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    call(nbytes);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject *pool_trim(PyObject *module, PyObject *keep) {
  return call_with_nbytes(keep, trim);
}

static PyObject *pool_set_cap(PyObject *module, PyObject *cap) {
  return call_with_nbytes(cap, gpuf_pool_set_cap);
}

/* --- Faults -------------------------------------------------------------- */

/* A number >= 0 times `scale`, or `off` for None. */
static int parse_fault(PyObject *object, double scale, int64_t off, int64_t *value) {
  *value = off;
  if (object == Py_None) {
    return 0;
  }
  const double number = PyFloat_AsDouble(object) * scale;
  if (PyErr_Occurred()) {
    return -1;
  }
  if (!(number >= 0 && number < 9e18)) {
    PyErr_Format(PyExc_ValueError, "%R is not a number >= 0, or None", object);
    return -1;
  }
  *value = (int64_t)number;
  return 0;
}

PyDoc_STRVAR(host_faults_doc,
             "_host_faults(*, alloc_fail_after=None, copy_fail_after_nbytes=None, bandwidth=None,\n"
             "             latency_us=None)\n--\n\n"
             "Inject faults into the host backend, for tests; without arguments, none.\n\n"
             "alloc_fail_after: number of allocations that still succeed. copy_fail_after_nbytes:\n"
             "number of bytes that are still copied. bandwidth: bytes per second of the link.\n"
             "latency_us: microseconds before each copy.");

static PyObject *host_faults(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"alloc_fail_after", "copy_fail_after_nbytes", "bandwidth",
                             "latency_us", NULL};
  PyObject *alloc = Py_None, *copy = Py_None, *bandwidth = Py_None, *latency = Py_None;
  gpufi_host_faults faults;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:_host_faults", keywords, &alloc, &copy,
                                   &bandwidth, &latency) ||
      parse_fault(alloc, 1, -1, &faults.alloc_fail_after) < 0 ||
      parse_fault(copy, 1, -1, &faults.copy_fail_after_nbytes) < 0 ||
      parse_fault(bandwidth, 1, 0, &faults.link_nbytes_per_second) < 0 ||
      parse_fault(latency, 1000, 0, &faults.latency_ns) < 0) {
    return NULL;
  }
  gpufi_host_faults_set(&faults);
  Py_RETURN_NONE;
}

typedef struct call_args {
  PyObject *work; /* a reference that the kernel drops */
} call_args;

static void call_kernel(const void *arg) {
  const call_args *const args = arg;
  gpufi_py_call_from_thread(args->work, NULL);
  gpufi_py_release_owner(args->work);
}

PyDoc_STRVAR(host_stream_doc, "_host_stream(work, /)\n--\n\n"
                              "A new stream of host:0, for tests, on which a kernel calls `work`.");

static PyObject *host_stream(PyObject *module, PyObject *work) {
  static const gpuf_device device = {GPUF_DEVICE_HOST, 0};
  const call_args args = {work};
  gpuf_stream stream;
  gpuf_error err;
  gpuf_status status = gpuf_stream_create(device, &stream, &err);
  if (status == GPUF_OK) {
    status = gpuf_host_launch(device, stream, call_kernel, &args, sizeof(args), &err);
  }
  if (status != GPUF_OK) {
    return gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  Py_INCREF(work); /* the kernel drops it once it has the GIL, which this thread holds */
  return PyLong_FromUnsignedLongLong(stream);
}

PyDoc_STRVAR(host_stream_destroy_doc, "_host_stream_destroy(stream, /)\n--\n\n"
                                      "Destroy a stream of _host_stream, after its work.");

static PyObject *host_stream_destroy(PyObject *module, PyObject *handle) {
  static const gpuf_device device = {GPUF_DEVICE_HOST, 0};
  const gpuf_stream stream = (gpuf_stream)PyLong_AsUnsignedLongLong(handle);
  gpuf_error err;
  gpuf_status status;
  if (PyErr_Occurred()) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_stream_destroy(device, stream, &err);
  Py_END_ALLOW_THREADS
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

PyDoc_STRVAR(check_process_doc,
             "check_process(process_id, /)\n--\n\n"
             "Raise gpufetch.Error unless this is the process of that number: an object that it\n"
             "made cannot be used in a child that was forked since.");

static PyObject *check_process(PyObject *module, PyObject *process_id) {
  gpuf_error err;
  const long long number = PyLong_AsLongLong(process_id);
  if (number == -1 && PyErr_Occurred()) {
    return NULL;
  }
  const gpuf_status status = gpufi_check_process(number, &err);
  return gpufi_py_outcome(gpufi_py_state_of_module(module), status, &err);
}

PyDoc_STRVAR(process_start_time_doc,
             "process_start_time(process_id, /)\n--\n\n"
             "When a process began, in clock ticks since boot; 0 if it is not there or has ended.");

static PyObject *process_start_time(PyObject *module, PyObject *process_id) {
  int overflow; /* no process has such a number */
  const long long number = PyLong_AsLongLongAndOverflow(process_id, &overflow);
  if (number == -1 && PyErr_Occurred()) {
    return NULL;
  }
  return PyLong_FromUnsignedLongLong(overflow ? 0 : gpufi_process_start_time(number));
}

PyMethodDef gpufi_py_info_methods[] = {
    {"info", info, METH_NOARGS, info_doc},
    {"pool_stats", pool_stats, METH_NOARGS, pool_stats_doc},
    {"pool_trim", pool_trim, METH_O, pool_trim_doc},
    {"pool_set_cap", pool_set_cap, METH_O, pool_set_cap_doc},
    {"check_process", check_process, METH_O, check_process_doc},
    {"process_start_time", process_start_time, METH_O, process_start_time_doc},
    {"_host_faults", GPUFI_PY_METHOD(host_faults), METH_VARARGS | METH_KEYWORDS, host_faults_doc},
    {"_host_stream", host_stream, METH_O, host_stream_doc},
    {"_host_stream_destroy", host_stream_destroy, METH_O, host_stream_destroy_doc},
    {0},
};
