/* fetch and fetch_async: the destination, and the copy with the GIL released. */
#include "fetch.h"

#include "adapter.h"
#include "arguments.h"
#include "arrays.h"
#include "buffer.h"
#include "errors.h"
#include "future.h"
#include "methods.h"
#include "request.h"
#include "tree.h"
#include "tree_nodes.h"

#include "core/geometry.h"
#include "core/overlap.h"

/* --- The result ---------------------------------------------------------- */

static PyObject *fetch_fresh(gpufi_py_state *state, const gpuf_tensor *tensor,
                             const gpufi_py_request *wanted) {
  const gpuf_copy_options options = gpufi_py_request_options(wanted);
  gpuf_error err;
  gpuf_tensor target;
  gpufi_py_buffer buffer;
  gpuf_status status = gpufi_py_request_check(wanted, tensor, &err);
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  gpufi_py_request_describe(wanted, tensor, &target);
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_py_buffer_alloc(tensor->device, gpuf_tensor_nbytes(&target), &buffer, &err);
    if (status == GPUF_OK) {
      target.data = buffer.ptr;
      status = gpuf_copy(&target, tensor, &options, &err);
      if (status != GPUF_OK) {
        gpufi_py_buffer_free(&buffer);
      }
    }
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  return gpufi_py_buffer_array(state, &target, &buffer);
}

PyObject *gpufi_py_fetch_tensor(gpufi_py_state *state, const gpuf_tensor *tensor, char order) {
  const gpufi_py_request wanted = {.order = order};
  return fetch_fresh(state, tensor, &wanted);
}

/* --- out= ---------------------------------------------------------------- */

/* gpufi_destination_check has refused `out`: raise the reason in terms of NumPy. */
static int refuse_destination(const gpuf_tensor *source, const gpuf_tensor *out) {
  if (gpufi_tensor_repeats_elements(out)) {
    PyErr_SetString(PyExc_ValueError,
                    "several elements of out share memory (a zero stride, or axes that overlap): "
                    "pass an array whose elements are distinct");
    return -1;
  }
  PyObject *source_shape = gpufi_py_tuple_of(source->shape, source->ndim);
  PyObject *out_shape = gpufi_py_tuple_of(out->shape, out->ndim);
  if (source_shape && out_shape) {
    PyErr_Format(PyExc_ValueError, "out has shape %S, but the tensor has shape %S", out_shape,
                 source_shape);
  }
  Py_XDECREF(source_shape);
  Py_XDECREF(out_shape);
  return -1;
}

static int check_out(const gpufi_py_state *state, const gpuf_tensor *source,
                     const gpufi_py_request *wanted, gpuf_tensor *target) {
  PyObject *out = wanted->out;
  const gpuf_dtype dtype = wanted->dtype ? wanted->dtype : source->dtype;
  if (!PyArray_Check(out)) {
    PyErr_Format(PyExc_TypeError, "out is of type %S; it must be a numpy.ndarray",
                 (PyObject *)Py_TYPE(out));
    return -1;
  }
  if (gpufi_py_refuse_masked(out) < 0) {
    return -1;
  }
  if (gpufi_py_tensor_from_array(state, out, target) < 0) {
    PyObject *descr = Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)out));
    gpufi_py_raise_from(PyExc_ValueError, "out (dtype %S) cannot take a tensor of dtype %S", descr,
                        state->descrs[dtype]);
    Py_DECREF(descr);
    return -1;
  }
  if (!PyArray_ISWRITEABLE((PyArrayObject *)out)) {
    PyErr_SetString(PyExc_ValueError, "out is read-only: pass a writable array");
    return -1;
  }
  if (target->dtype != dtype) {
    PyErr_Format(
        PyExc_ValueError,
        "out has dtype %S, but %s %S; to convert, use gpufetch.fetch(x, out=out, dtype=out.dtype)",
        state->descrs[target->dtype], wanted->dtype ? "dtype is" : "the tensor has dtype",
        state->descrs[dtype]);
    return -1;
  }
  if (gpufi_destination_check(target, source, NULL) != GPUF_OK) {
    return refuse_destination(source, target);
  }
  if (source->device.kind == GPUF_DEVICE_CPU && gpufi_tensors_overlap(source, target)) {
    PyErr_SetString(PyExc_ValueError,
                    "out shares memory with the tensor: pass an array of its own");
    return -1;
  }
  if (gpuf_tensor_count(target) == 0) { /* NumPy's strides of an empty array mean nothing */
    const gpuf_tensor given = *target;
    gpuf_tensor_init(target, given.data, given.device, given.dtype, given.ndim, given.shape, NULL);
  }
  return 0;
}

static PyObject *fetch_into(const gpufi_py_state *state, const gpuf_tensor *tensor,
                            const gpufi_py_request *wanted) {
  const gpuf_copy_options options = gpufi_py_request_options(wanted);
  gpuf_error err;
  gpuf_tensor target;
  gpuf_status status = gpuf_tensor_check(tensor, &err);
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  if (check_out(state, tensor, wanted, &target) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_copy(&target, tensor, &options, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  Py_INCREF(wanted->out);
  return wanted->out;
}

/* --- The Python functions ------------------------------------------------ */

static int check_tree_request(const gpufi_py_request *wanted) {
  if (wanted->out) {
    PyErr_SetString(PyExc_TypeError,
                    "out takes one tensor: fetch the tree's tensors one by one, each with its own");
    return -1;
  }
  return 0;
}

static PyObject *py_fetch(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpufi_py_request wanted;
  if (gpufi_py_request_parse(state, "fetch", args, nargs, kwnames, &wanted) < 0) {
    return NULL;
  }
  const int is_tree = gpufi_py_is_tree(state, args[0]);
  if (is_tree == 0 && gpufi_py_adapter_pull(state, args[0], &source) < 0) {
    return NULL;
  }
  if (is_tree != 0) {
    return is_tree > 0 && check_tree_request(&wanted) == 0
               ? gpufi_py_fetch_tree(state, args[0], &wanted)
               : NULL;
  }
  PyObject *array = wanted.out ? fetch_into(state, &source.tensor, &wanted)
                               : fetch_fresh(state, &source.tensor, &wanted);
  gpufi_py_import_clear(&source);
  return array;
}

/* Start the copy into `array`, and return its Future. */
static PyObject *start(gpufi_py_state *state, const gpufi_py_import *source,
                       const gpufi_py_request *wanted, PyObject *array, const gpuf_tensor *target) {
  const gpuf_copy_options options = gpufi_py_request_options(wanted);
  gpuf_error err;
  gpuf_future *future = NULL;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_copy_async(target, &source->tensor, &options, &future, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  return gpufi_py_future_create(state, future, array, source->keepalive);
}

static PyObject *start_fresh(gpufi_py_state *state, const gpufi_py_import *source,
                             const gpufi_py_request *wanted) {
  gpuf_error err;
  gpuf_tensor target;
  gpufi_py_buffer buffer;
  gpuf_status status;
  gpufi_py_request_describe(wanted, &source->tensor, &target);
  Py_BEGIN_ALLOW_THREADS
    status =
        gpufi_py_buffer_alloc(source->tensor.device, gpuf_tensor_nbytes(&target), &buffer, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  target.data = buffer.ptr;
  PyObject *array = gpufi_py_buffer_array(state, &target, &buffer);
  if (!array) {
    return NULL;
  }
  PyObject *future = start(state, source, wanted, array, &target);
  Py_DECREF(array);
  return future;
}

static PyObject *py_fetch_async(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_import source;
  gpuf_tensor target;
  gpuf_error err;
  gpufi_py_request wanted;
  PyObject *future = NULL;
  if (gpufi_py_request_parse(state, "fetch_async", args, nargs, kwnames, &wanted) < 0) {
    return NULL;
  }
  const int is_tree = gpufi_py_is_tree(state, args[0]);
  if (is_tree != 0) {
    return is_tree > 0 && check_tree_request(&wanted) == 0
               ? gpufi_py_fetch_tree_async(state, args[0], &wanted)
               : NULL;
  }
  if (gpufi_py_adapter_import(state, args[0], &source) < 0) {
    return NULL;
  }
  if (gpufi_py_request_check(&wanted, &source.tensor, &err) != GPUF_OK) {
    gpufi_py_raise(state, &err);
  } else if (!wanted.out) {
    future = start_fresh(state, &source, &wanted);
  } else if (check_out(state, &source.tensor, &wanted, &target) == 0) {
    future = start(state, &source, &wanted, wanted.out, &target);
  }
  gpufi_py_import_clear(&source);
  return future;
}

PyDoc_STRVAR(
    fetch_doc,
    "fetch(x, *, out=None, dtype=None, order=None)\n--\n\n"
    "Copy a tensor to the host: a writable ndarray of its shape and dtype in C order.\n\n"
    "x is a tensor of PyTorch, CuPy, Numba, JAX ..., a DeviceArray, or anything with\n"
    "__dlpack__ or __cuda_array_interface__; an array on the CPU is copied too, and a\n"
    "LazyArray of another process's tensor is pulled, and converted here. The copy starts\n"
    "after the work that is pending on x. bfloat16 and float8 become\n"
    "ml_dtypes' dtypes. The result owns its memory, which is pinned and returns to a\n"
    "pool with the array; when the pool is at its cap, the memory is pageable.\n\n"
    "out: a writable ndarray of x's shape and dtype, in any layout, that shares no memory\n"
    "with x. It is filled and returned.\n"
    "dtype: convert on the device, between any real dtypes but to float8_e8m0fnu. The\n"
    "result's bytes cross the link: float32 to float16 halves them, bfloat16 to float32\n"
    "doubles them. Rounds as astype does; the payload of a NaN is not kept, and a float\n"
    "that the integer type cannot hold gives an unspecified integer. out then has dtype.\n"
    "order: the result's layout, as numpy.array's: C (the default), F, A or K. With K a\n"
    "tensor that fills its memory in any order of the axes is copied without packing.\n\n"
    "x may also be a dict, list or tuple of tensors, nested to any depth: the same tree\n"
    "with an ndarray for each tensor, all copied in one call. An OrderedDict and a\n"
    "namedtuple keep their type; any other mapping becomes a dict, any other list or\n"
    "tuple a list or tuple. Objects that are no tensors (numbers, strings, None ...) are\n"
    "passed through. Arrays of up to 1 MiB share buffers of up to 16 MiB, which are freed\n"
    "with the last array in them: copy() the arrays that you keep of a large tree. A\n"
    "tensor that occurs twice is copied twice. dtype and order hold for every tensor; out\n"
    "takes one tensor only.\n\n"
    "Raises TypeError for an object that is no tensor or has no NumPy counterpart,\n"
    "ValueError for an out that does not fit, MemoryError, and gpufetch.Error if the\n"
    "device fails (out is then partly written). Releases the GIL; may be called from any\n"
    "thread.");

PyDoc_STRVAR(fetch_async_doc,
             "fetch_async(x, *, out=None, dtype=None, order=None)\n--\n\n"
             "Start what fetch does with these arguments, and return the copy in flight.");

PyDoc_STRVAR(check_out_doc,
             "check_out($module, source, out, /)\n--\n\n"
             "Raise what fetch(source, out=out) would raise of `out`; `source` is an ndarray.");

static PyObject *py_check_out(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_request wanted = {0};
  PyObject *array;
  gpuf_tensor source, target;
  if (!PyArg_ParseTuple(args, "O!O:check_out", &PyArray_Type, &array, &wanted.out) ||
      gpufi_py_tensor_from_array(state, array, &source) < 0 ||
      check_out(state, &source, &wanted, &target) < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyMethodDef gpufi_py_fetch_methods[] = {
    {"check_out", py_check_out, METH_VARARGS, check_out_doc},
    {"fetch", GPUFI_PY_METHOD(py_fetch), METH_FASTCALL | METH_KEYWORDS, fetch_doc},
    {"fetch_async", GPUFI_PY_METHOD(py_fetch_async), METH_FASTCALL | METH_KEYWORDS,
     fetch_async_doc},
    {0},
};
