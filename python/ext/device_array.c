/* gpufetch.DeviceArray: a tensor in device memory, its own or someone else's. */
#include "device_array.h"

#include "arguments.h"
#include "delegate.h"
#include "devices.h"
#include "errors.h"
#include "export.h"
#include "index.h"
#include "operators.h"
#include "reduce.h"

#include <structmember.h>

PyObject *gpufi_py_device_array_create(const gpufi_py_state *state, const gpuf_tensor *tensor,
                                       bool readonly, PyObject *keepalive) {
  gpufi_py_device_array *self =
      (gpufi_py_device_array *)PyType_GenericAlloc(state->device_array_type, 0);
  if (self) {
    self->tensor = *tensor;
    self->readonly = readonly;
    self->keepalive = Py_XNewRef(keepalive);
  }
  return (PyObject *)self;
}

PyObject *gpufi_py_device_array_own(const gpufi_py_state *state, const gpuf_tensor *tensor) {
  PyObject *array = gpufi_py_device_array_create(state, tensor, false, NULL);
  if (array) {
    ((gpufi_py_device_array *)array)->d_owned = tensor->data;
  } else {
    Py_BEGIN_ALLOW_THREADS
      gpuf_free(tensor->device, tensor->data, NULL);
    Py_END_ALLOW_THREADS
  }
  return array;
}

static int array_traverse(gpufi_py_device_array *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE((PyObject *)self));
  Py_VISIT(self->keepalive);
  return 0;
}

static int array_clear(gpufi_py_device_array *self) {
  Py_CLEAR(self->keepalive);
  return 0;
}

/* gpuf_free waits for the device. Its failure is ignored: after fork, or when the device is lost,
 * the memory goes with the process. */
static void array_dealloc(gpufi_py_device_array *self) {
  PyTypeObject *type = Py_TYPE((PyObject *)self);
  PyObject_GC_UnTrack(self);
  if (self->weakrefs) {
    PyObject_ClearWeakRefs((PyObject *)self);
  }
  if (self->d_owned) {
    Py_BEGIN_ALLOW_THREADS
      gpuf_free(self->tensor.device, self->d_owned, NULL);
    Py_END_ALLOW_THREADS
  }
  array_clear(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

PyObject *gpufi_py_device_array_view(gpufi_py_device_array *array, const gpuf_tensor *tensor) {
  const gpufi_py_state *state = gpufi_py_state_of((PyObject *)array);
  PyObject *owner = array->keepalive ? array->keepalive : (PyObject *)array;
  return gpufi_py_device_array_create(state, tensor, array->readonly, owner);
}

/* --- Attributes ---------------------------------------------------------- */

static PyObject *get_shape(gpufi_py_device_array *self, void *closure) {
  return gpufi_py_tuple_of(self->tensor.shape, self->tensor.ndim);
}

static PyObject *get_strides(gpufi_py_device_array *self, void *closure) {
  return gpufi_py_tuple_of(self->tensor.strides_nbytes, self->tensor.ndim);
}

static PyObject *get_dtype(gpufi_py_device_array *self, void *closure) {
  PyObject *descr = gpufi_py_state_of((PyObject *)self)->descrs[self->tensor.dtype];
  Py_INCREF(descr);
  return descr;
}

static PyObject *get_ndim(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromLong(self->tensor.ndim);
}

static PyObject *get_size(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromLongLong(gpuf_tensor_count(&self->tensor));
}

static PyObject *get_nbytes(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromSize_t(gpuf_tensor_nbytes(&self->tensor));
}

static PyObject *get_device(gpufi_py_device_array *self, void *closure) {
  char text[GPUFI_PY_DEVICE_TEXT_NBYTES];
  return PyUnicode_FromString(gpufi_py_device_text(self->tensor.device, text));
}

static PyObject *get_data_ptr(gpufi_py_device_array *self, void *closure) {
  return PyLong_FromVoidPtr(self->tensor.data);
}

static PyObject *get_readonly(gpufi_py_device_array *self, void *closure) {
  return PyBool_FromLong(self->readonly);
}

static PyObject *get_transposed(gpufi_py_device_array *self, void *closure) {
  gpuf_tensor tensor = self->tensor;
  for (int32_t i = 0; i < tensor.ndim; i++) {
    tensor.shape[i] = self->tensor.shape[tensor.ndim - 1 - i];
    tensor.strides_nbytes[i] = self->tensor.strides_nbytes[tensor.ndim - 1 - i];
  }
  return gpufi_py_device_array_view(self, &tensor);
}

/* --- Python's protocols -------------------------------------------------- */

static PyObject *array_repr(gpufi_py_device_array *self) {
  char device[GPUFI_PY_DEVICE_TEXT_NBYTES];
  PyObject *shape = get_shape(self, NULL);
  if (!shape) {
    return NULL;
  }
  PyObject *text =
      PyUnicode_FromFormat("DeviceArray(shape=%S, dtype=%S, device='%s', nbytes=%zu%s)", shape,
                           gpufi_py_state_of((PyObject *)self)->descrs[self->tensor.dtype],
                           gpufi_py_device_text(self->tensor.device, device),
                           gpuf_tensor_nbytes(&self->tensor), self->readonly ? ", readonly" : "");
  Py_DECREF(shape);
  return text;
}

static Py_ssize_t array_length(gpufi_py_device_array *self) {
  if (self->tensor.ndim == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a DeviceArray without dimensions");
    return -1;
  }
  return (Py_ssize_t)self->tensor.shape[0];
}

/* The only element as the Python number `kind`: "bool", "int", "float", "complex" or "index". */
static PyObject *as_number(PyObject *self, const char *kind) {
  PyObject *args = Py_BuildValue("(s)", kind);
  PyObject *value =
      args ? gpufi_py_delegate("gpufetch._device_array", "number", self, args, NULL) : NULL;
  Py_XDECREF(args);
  return value;
}

static int array_bool(gpufi_py_device_array *self) {
  PyObject *value = as_number((PyObject *)self, "bool");
  const int truth = value ? PyObject_IsTrue(value) : -1;
  Py_XDECREF(value);
  return truth;
}

static PyObject *array_int(PyObject *self) {
  return as_number(self, "int");
}

static PyObject *array_float(PyObject *self) {
  return as_number(self, "float");
}

static PyObject *array_index(PyObject *self) {
  return as_number(self, "index");
}

static PyObject *array_complex(PyObject *self, PyObject *ignored) {
  return as_number(self, "complex");
}

static int array_contains(PyObject *self, PyObject *value) {
  PyObject *args = PyTuple_Pack(1, value);
  PyObject *found =
      args ? gpufi_py_delegate("gpufetch._device_array", "contains", self, args, NULL) : NULL;
  const int is_in = found ? PyObject_IsTrue(found) : -1;
  Py_XDECREF(found);
  Py_XDECREF(args);
  return is_in;
}

/* In a notebook the exception that is set is shown in few lines, as that of a LazyArray is. */
static void shorten_traceback(void) {
  gpufi_py_exception raised = gpufi_py_exception_take();
  PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
  PyObject *done =
      raised.value ? gpufi_py_delegate("gpufetch._tracebacks", "shorten", raised.value, NULL, NULL)
                   : NULL;
  Py_XDECREF(done);
  gpufi_py_exception_restore(raised); /* in place of one that shortening has set */
}

static PyObject *array_subscript(gpufi_py_device_array *self, PyObject *key) {
  gpuf_tensor tensor = self->tensor;
  if (gpufi_py_index(&tensor, key) < 0) {
    shorten_traceback();
    return NULL;
  }
  return gpufi_py_device_array_view(self, &tensor);
}

/* What gpufetch._device_array answers. */
#define PYTHON_METHODS(X)                                                                          \
  X(transpose)                                                                                     \
  X(swapaxes)                                                                                      \
  X(reshape) X(ravel) X(squeeze) X(reduce_ex) X(format_value) X(repr_html) X(repr_pretty)
#define X(name)                                                                                    \
  static PyObject *array_##name(PyObject *self, PyObject *args, PyObject *kwargs) {                \
    return gpufi_py_delegate("gpufetch._device_array", #name, self, args, kwargs);                 \
  }
PYTHON_METHODS(X)
#undef X

static PyObject *array_iter(PyObject *self) {
  return gpufi_py_delegate("gpufetch._device_array", "iterate", self, NULL, NULL);
}

/* The message for a name that there is not says what has it. Names that begin with an underscore
 * are protocols that others ask for. */
static PyObject *array_getattr(PyObject *self, PyObject *name) {
  PyObject *value = PyObject_GenericGetAttr(self, name);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return value;
  }
  PyObject *first = PySequence_GetItem(name, 0);
  const bool is_protocol = !first || PyUnicode_CompareWithASCIIString(first, "_") == 0;
  Py_XDECREF(first);
  if (!is_protocol) {
    PyErr_Clear();
    PyObject *args = PyTuple_Pack(1, name);
    PyObject *text =
        args ? gpufi_py_delegate("gpufetch._device_array", "missing", self, args, NULL) : NULL;
    if (text) {
      PyErr_SetObject(PyExc_AttributeError, text);
    }
    Py_XDECREF(text);
    Py_XDECREF(args);
  }
  return NULL;
}

PyDoc_STRVAR(
    array_doc_array,
    "__array__($self, dtype=None, copy=None)\n--\n\n"
    "fetch(self), then astype(dtype) on the host, or as it is where the rule 'safe' does not\n"
    "allow that cast: NumPy then casts or refuses. copy=False raises ValueError.");

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n"
             "--\n\n"
             "A DLPack capsule that shares the memory: versioned if max_version >= (1, 0), else\n"
             "legacy. dl_device=(1, 0) gives a copy on the CPU. The consumer's work on `stream`\n"
             "comes after the work that is pending on the memory. BufferError for a request that\n"
             "cannot be met.");

/* --- The type ------------------------------------------------------------ */

static PyGetSetDef array_getset[] = {
    {"shape", (getter)get_shape, NULL, "Lengths of the axes, a tuple of int.", NULL},
    {"strides", (getter)get_strides, NULL, "Signed strides in bytes, a tuple of int.", NULL},
    {"dtype", (getter)get_dtype, NULL, "The numpy.dtype; one of ml_dtypes for bfloat16 and float8.",
     NULL},
    {"ndim", (getter)get_ndim, NULL, "Number of dimensions.", NULL},
    {"size", (getter)get_size, NULL, "Number of elements.", NULL},
    {"nbytes", (getter)get_nbytes, NULL, "size * dtype.itemsize: bytes of a packed copy.", NULL},
    {"device", (getter)get_device, NULL, "Name of the device: \"cuda:0\", \"host:0\" or \"cpu\".",
     NULL},
    {"data_ptr", (getter)get_data_ptr, NULL, "Address of element [0, ..., 0], an int.", NULL},
    {"readonly", (getter)get_readonly, NULL,
     "True if the producer of the memory forbids writing to it.", NULL},
    {"T", (getter)get_transposed, NULL, "View with the axes reversed.", NULL},
    {"__cuda_array_interface__", (getter)gpufi_py_export_cuda_array_interface, NULL,
     "CUDA Array Interface, version 3; only on CUDA devices.", NULL},
    {0},
};

static PyMethodDef array_methods[] = {
    {"transpose", GPUFI_PY_METHOD(array_transpose), METH_VARARGS | METH_KEYWORDS,
     "transpose($self, *axes)\n--\n\nView with axis i taken from axes[i]; without arguments the "
     "axes reversed."},
    {"swapaxes", GPUFI_PY_METHOD(array_swapaxes), METH_VARARGS | METH_KEYWORDS,
     "swapaxes($self, axis1, axis2)\n--\n\nView with two axes in each other's place."},
    {"reshape", GPUFI_PY_METHOD(array_reshape), METH_VARARGS | METH_KEYWORDS,
     "reshape($self, *shape, order='C')\n--\n\nView with another shape; ValueError where that "
     "takes a copy."},
    {"ravel", GPUFI_PY_METHOD(array_ravel), METH_VARARGS | METH_KEYWORDS,
     "ravel($self, order='C')\n--\n\nView with one axis; ValueError where that takes a copy."},
    {"squeeze", GPUFI_PY_METHOD(array_squeeze), METH_VARARGS | METH_KEYWORDS,
     "squeeze($self, axis=None)\n--\n\nView without the axes of length 1, or those that axis "
     "names."},
    {"__complex__", array_complex, METH_NOARGS,
     "__complex__($self)\n--\n\nThe only element as a complex."},
    {"__reduce_ex__", GPUFI_PY_METHOD(array_reduce_ex), METH_VARARGS | METH_KEYWORDS,
     "__reduce_ex__($self, protocol)\n--\n\nTypeError: it is not pickled or copied."},
    {"_repr_html_", GPUFI_PY_METHOD(array_repr_html), METH_VARARGS | METH_KEYWORDS,
     "_repr_html_($self)\n--\n\nWhat notebooks show of a result."},
    {"_repr_pretty_", GPUFI_PY_METHOD(array_repr_pretty), METH_VARARGS | METH_KEYWORDS,
     "_repr_pretty_($self, printer, cycle)\n--\n\nWhat IPython shows of a result in a terminal."},
    {"__format__", GPUFI_PY_METHOD(array_format_value), METH_VARARGS | METH_KEYWORDS,
     "__format__($self, spec)\n--\n\nThe only element of an array without axes, formatted."},
    {"__array__", GPUFI_PY_METHOD(gpufi_py_export_array), METH_FASTCALL | METH_KEYWORDS,
     array_doc_array},
    {"__dlpack__", GPUFI_PY_METHOD(gpufi_py_export_dlpack), METH_FASTCALL | METH_KEYWORDS,
     dlpack_doc},
    {"__dlpack_device__", GPUFI_PY_METHOD(gpufi_py_export_dlpack_device), METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nDLPack (device type, device id); the host backend is 12, "
     "kDLExtDev."},
    {"overview", GPUFI_PY_METHOD(gpufi_py_array_overview), METH_VARARGS | METH_KEYWORDS,
     "overview($self, shape, method='mean')\n--\n\nAs gpufetch.overview."},
    {"stats", gpufi_py_array_stats, METH_VARARGS, "stats($self)\n--\n\nAs gpufetch.stats."},
    {"histogram", GPUFI_PY_METHOD(gpufi_py_array_histogram), METH_VARARGS | METH_KEYWORDS,
     "histogram($self, bins=64, range=None)\n--\n\nAs gpufetch.histogram."},
    {0},
};

static PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gpufi_py_device_array, weakrefs), READONLY, NULL},
    {0},
};

PyDoc_STRVAR(array_doc,
             "An array in device memory, from to_device or asdevice.\n\n"
             "x[...] takes ints, slices with any step, ... and None, and gives a view without a\n"
             "copy, as transpose, reshape, numpy.moveaxis, numpy.flip and their kin do. fetch(x),\n"
             "numpy.asarray(x), operators and NumPy's other functions copy to the host. The\n"
             "description is immutable and may be used from any thread. Not hashable, like an\n"
             "ndarray. Memory of its own is freed with the last array or\n"
             "view that uses it; memory of another library is kept alive as long.");

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)array_doc},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_traverse, array_traverse},
    {Py_tp_clear, array_clear},
    {Py_tp_repr, array_repr},
    {Py_tp_getset, array_getset},
    {Py_tp_methods, array_methods},
    {Py_tp_members, array_members},
    {Py_mp_length, array_length},
    {Py_mp_subscript, array_subscript},
    {Py_nb_bool, array_bool},
    {Py_nb_int, array_int},
    {Py_nb_float, array_float},
    {Py_nb_index, array_index},
    {Py_sq_contains, array_contains},
    {Py_tp_getattro, array_getattr},
    {Py_tp_iter, array_iter},
#define X(slot, function) {Py_##slot, gpufi_py_##slot},
    GPUFI_PY_OPERATORS(X) GPUFI_PY_UNARY_OPERATORS(X)
#undef X
        {Py_nb_power, gpufi_py_nb_power},
    {Py_tp_richcompare, gpufi_py_tp_richcompare},
#define X(slot) {Py_nb_inplace_##slot, gpufi_py_refuse_in_place},
    X(add) X(subtract) X(multiply) X(matrix_multiply) X(remainder) X(floor_divide) X(true_divide)
        X(lshift) X(rshift) X(and) X(xor) X(or)
#undef X
            {Py_nb_inplace_power, gpufi_py_refuse_in_place_power},
    {0, NULL},
};

PyType_Spec gpufi_py_device_array_spec = {
    .name = "gpufetch.DeviceArray",
    .basicsize = sizeof(gpufi_py_device_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = array_slots,
};
