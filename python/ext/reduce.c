/* overview, stats and histogram: the arguments, and the call with the GIL released. */
#include "reduce.h"

#include "adapter.h"
#include "arguments.h"
#include "arrays.h"
#include "buffer.h"
#include "delegate.h"
#include "errors.h"
#include "methods.h"

#include <gpufetch/reduce.h>

/* Smaller results come faster from NumPy's own cache, and have few pages. */
#define POOLED_NBYTES_MIN ((size_t)64 << 10)

/* An array in memory of the pinned pool: the device writes straight into it, and its pages exist
 * already. */
static PyObject *new_pooled(const gpufi_py_state *state, gpuf_device device, gpuf_dtype dtype,
                            int32_t ndim, const int64_t *shape, int64_t count) {
  gpuf_tensor result;
  gpufi_py_buffer buffer;
  gpuf_error err;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_py_buffer_alloc(device, (size_t)count * gpuf_dtype_nbytes(dtype), &buffer, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  status = gpuf_tensor_init(&result, buffer.ptr, (gpuf_device){GPUF_DEVICE_CPU, 0}, dtype, ndim,
                            shape, &err);
  if (status != GPUF_OK) {
    gpufi_py_buffer_free(&buffer);
    return gpufi_py_raise(state, &err);
  }
  return gpufi_py_buffer_array(state, &result, &buffer);
}

/* An array for the overview of `source`. No length exceeds the source's, so that nothing overflows.
 */
static PyObject *new_overview(const gpufi_py_state *state, const gpuf_tensor *source,
                              gpuf_dtype dtype, const int64_t *shape) {
  int64_t count = 1;
  for (int32_t i = 0; i < source->ndim; i++) {
    count *= shape[i];
  }
  const bool pooled = source->device.kind != GPUF_DEVICE_CPU &&
                      count <= GPUF_OVERVIEW_CELLS_MAX && /* more are refused */
                      (size_t)count * gpuf_dtype_nbytes(dtype) >= POOLED_NBYTES_MIN;
  return pooled ? new_pooled(state, source->device, dtype, source->ndim, shape, count)
                : gpufi_py_array_create(state, dtype, source->ndim, shape);
}

static int check_count(const char *function, Py_ssize_t nargs, Py_ssize_t wanted) {
  if (nargs != wanted) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, %zd given", function, wanted, nargs);
    return -1;
  }
  return 0;
}

/* --- overview ------------------------------------------------------------ */

static int parse_method(PyObject *object, gpuf_overview_method *method) {
  static const char *const names[] = {
      [GPUF_OVERVIEW_MEAN] = "mean",     [GPUF_OVERVIEW_RMS] = "rms",
      [GPUF_OVERVIEW_MIN] = "min",       [GPUF_OVERVIEW_MAX] = "max",
      [GPUF_OVERVIEW_MINMAX] = "minmax", [GPUF_OVERVIEW_FIRST] = "first",
  };
  const int choice = gpufi_py_choice(object, "method", names, GPUFI_PY_COUNT(names));
  *method = (gpuf_overview_method)choice;
  return choice < 0 ? -1 : 0;
}

/* The lengths of the overview, which are those of the tensor where that is shorter. */
static int parse_shape(PyObject *object, const gpuf_tensor *tensor, int64_t *shape) {
  if (gpufi_py_axes(object, "the overview's shape", tensor->ndim, shape) < 0) {
    return -1;
  }
  for (int32_t i = 0; i < tensor->ndim; i++) {
    if (shape[i] < (tensor->shape[i] > 0)) {
      PyErr_Format(PyExc_ValueError,
                   "the overview's shape is %R, %lld cells along axis %d; give 1 or more for each "
                   "axis",
                   object, (long long)shape[i], (int)i);
      return -1;
    }
    shape[i] = shape[i] < tensor->shape[i] ? shape[i] : tensor->shape[i];
  }
  return 0;
}

/* Fill the arrays of an overview; `high` is None unless the method gives minima and maxima. */
static gpuf_status fill_overview(const gpuf_tensor *tensor, gpuf_overview_method method,
                                 const int64_t *shape, PyObject *low, PyObject *high,
                                 gpuf_counts *counts, gpuf_error *err) {
  void *low_data = PyArray_DATA((PyArrayObject *)low);
  void *high_data = high == Py_None ? NULL : PyArray_DATA((PyArrayObject *)high);
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_reduce_overview(tensor, method, shape, low_data, high_data, counts, err);
  Py_END_ALLOW_THREADS
  return status;
}

/* (low, high, (count, nan_count, posinf_count, neginf_count)) */
static PyObject *overview_of(gpufi_py_state *state, const gpuf_tensor *tensor,
                             gpuf_overview_method method, const int64_t *shape) {
  const gpuf_dtype dtype = gpuf_overview_dtype(tensor->dtype, method);
  const bool minmax = method == GPUF_OVERVIEW_MINMAX;
  gpuf_counts counts = GPUF_COUNTS_INIT;
  gpuf_error err;
  PyObject *result = NULL;
  PyObject *low = new_overview(state, tensor, dtype, shape);
  PyObject *high = minmax ? new_overview(state, tensor, dtype, shape) : Py_NewRef(Py_None);
  if (!low || !high) {
    goto done;
  }
  if (fill_overview(tensor, method, shape, low, high, &counts, &err) != GPUF_OK) {
    gpufi_py_raise(state, &err);
    goto done;
  }
  result =
      Py_BuildValue("(OO(KKKK))", low, high, (unsigned long long)counts.count,
                    (unsigned long long)counts.nan_count, (unsigned long long)counts.posinf_count,
                    (unsigned long long)counts.neginf_count);
done:
  Py_XDECREF(low);
  Py_XDECREF(high);
  return result;
}

static PyObject *py_overview(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import import = {0};
  int64_t shape[GPUF_NDIM_MAX] = {0};
  gpuf_overview_method method;
  PyObject *result = NULL;
  if (check_count("overview", nargs, 3) < 0 || parse_method(args[2], &method) < 0 ||
      gpufi_py_adapter_import(state, args[0], &import) < 0) {
    return NULL;
  }
  if (parse_shape(args[1], &import.tensor, shape) == 0) {
    result = overview_of(state, &import.tensor, method, shape);
  }
  gpufi_py_import_clear(&import);
  return result;
}

/* --- stats --------------------------------------------------------------- */

static PyObject *scalar(gpuf_dtype dtype, gpuf_scalar value) {
  if (dtype > GPUF_DTYPE_UINT64) {
    return PyFloat_FromDouble(value.f64);
  }
  return dtype >= GPUF_DTYPE_INT8 && dtype <= GPUF_DTYPE_INT64
             ? PyLong_FromLongLong(value.i64)
             : PyLong_FromUnsignedLongLong(value.u64);
}

static PyObject *stats_dict(gpuf_dtype dtype, const gpuf_stats *s) {
  return Py_BuildValue(
      "{sKsKsKsKsKsKsNsNsNsNsdsd}", "count", (unsigned long long)s->count, "nan_count",
      (unsigned long long)s->nan_count, "posinf_count", (unsigned long long)s->posinf_count,
      "neginf_count", (unsigned long long)s->neginf_count, "finite_count",
      (unsigned long long)s->finite_count, "zero_count", (unsigned long long)s->zero_count, "min",
      scalar(dtype, s->min), "max", scalar(dtype, s->max), "finite_min",
      scalar(dtype, s->finite_min), "finite_max", scalar(dtype, s->finite_max), "mean", s->mean,
      "variance", s->variance);
}

static PyObject *py_stats(PyObject *module, PyObject *object) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import import = {0};
  gpuf_stats stats = GPUF_STATS_INIT;
  gpuf_error err;
  gpuf_status status;
  if (gpufi_py_adapter_import(state, object, &import) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_reduce_stats(&import.tensor, &stats, &err);
  Py_END_ALLOW_THREADS
  PyObject *result =
      status == GPUF_OK ? stats_dict(import.tensor.dtype, &stats) : gpufi_py_raise(state, &err);
  gpufi_py_import_clear(&import);
  return result;
}

/* --- histogram ----------------------------------------------------------- */

static int parse_range(PyObject *object, double *range) {
  for (Py_ssize_t i = 0; i < 2; i++) {
    PyObject *limit =
        PyTuple_Check(object) && PyTuple_Size(object) == 2 ? PyTuple_GetItem(object, i) : NULL;
    if (!limit) {
      PyErr_Format(PyExc_TypeError, "range is %R; it must be None or a tuple (low, high)", object);
      return -1;
    }
    range[i] = PyFloat_AsDouble(limit);
    if (range[i] == -1.0 && PyErr_Occurred()) {
      return -1;
    }
  }
  return 0;
}

static gpuf_status fill_histogram(const gpuf_tensor *tensor, int64_t bin_count, const double *range,
                                  PyObject *bins, PyObject *edges, gpuf_histogram_rest *rest,
                                  gpuf_error *err) {
  void *bins_data = PyArray_DATA((PyArrayObject *)bins);
  void *edges_data = PyArray_DATA((PyArrayObject *)edges);
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_reduce_histogram(tensor, bin_count, range, bins_data, edges_data, rest, err);
  Py_END_ALLOW_THREADS
  return status;
}

/* (counts, edges, (nan_count, under_count, over_count)) */
static PyObject *histogram_of(gpufi_py_state *state, const gpuf_tensor *tensor, int64_t bin_count,
                              const double *range) {
  const int64_t edge_count = bin_count + 1;
  gpuf_histogram_rest rest = GPUF_HISTOGRAM_REST_INIT;
  gpuf_error err;
  PyObject *result = NULL;
  PyObject *bins = gpufi_py_array_create(state, GPUF_DTYPE_UINT64, 1, &bin_count);
  PyObject *edges = gpufi_py_array_create(state, GPUF_DTYPE_FLOAT64, 1, &edge_count);
  if (bins && edges) {
    result = fill_histogram(tensor, bin_count, range, bins, edges, &rest, &err) == GPUF_OK
                 ? Py_BuildValue("(OO(KKK))", bins, edges, (unsigned long long)rest.nan_count,
                                 (unsigned long long)rest.under_count,
                                 (unsigned long long)rest.over_count)
                 : gpufi_py_raise(state, &err);
  }
  Py_XDECREF(bins);
  Py_XDECREF(edges);
  return result;
}

static PyObject *py_histogram(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import import = {0};
  double range[2];
  if (check_count("histogram", nargs, 3) < 0) {
    return NULL;
  }
  const bool whole = args[2] == Py_None;
  const int64_t bin_count = PyLong_AsLongLong(args[1]);
  if (PyErr_Occurred() || (!whole && parse_range(args[2], range) < 0)) {
    return NULL;
  }
  if (bin_count < 1 || bin_count > GPUF_HISTOGRAM_BINS_MAX) {
    PyErr_Format(PyExc_ValueError, "bins is %lld; a histogram has 1 to %lld", (long long)bin_count,
                 (long long)GPUF_HISTOGRAM_BINS_MAX);
    return NULL;
  }
  if (gpufi_py_adapter_import(state, args[0], &import) < 0) {
    return NULL;
  }
  PyObject *result = histogram_of(state, &import.tensor, bin_count, whole ? NULL : range);
  gpufi_py_import_clear(&import);
  return result;
}

PyMethodDef gpufi_py_reduce_methods[] = {
    {"overview", GPUFI_PY_METHOD(py_overview), METH_FASTCALL,
     "overview(x, shape, method, /)\n--\n\n"
     "(values, the maxima if method is \"minmax\" or None, (count, nan_count, posinf_count,\n"
     "neginf_count)). shape: a tuple with a length for each axis of x. Releases the GIL."},
    {"stats", py_stats, METH_O,
     "stats(x, /)\n--\n\nStatistics of all elements, as a dict. Releases the GIL."},
    {"histogram", GPUFI_PY_METHOD(py_histogram), METH_FASTCALL,
     "histogram(x, bins, range, /)\n--\n\n"
     "(counts, edges, (nan_count, under_count, over_count)). range: (low, high), or None for the\n"
     "finite elements'. Releases the GIL."},
    {0},
};

/* --- Methods of DeviceArray ---------------------------------------------- */

PyObject *gpufi_py_array_overview(PyObject *self, PyObject *args, PyObject *kwargs) {
  return gpufi_py_delegate("gpufetch._reduce", "overview", self, args, kwargs);
}

PyObject *gpufi_py_array_stats(PyObject *self, PyObject *args) {
  return gpufi_py_delegate("gpufetch._reduce", "stats", self, args, NULL);
}

PyObject *gpufi_py_array_histogram(PyObject *self, PyObject *args, PyObject *kwargs) {
  return gpufi_py_delegate("gpufetch._reduce", "histogram", self, args, kwargs);
}
