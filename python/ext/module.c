/* The extension module gpufetch._core: multi-phase initialisation, no state outside the module
 * but NumPy's API table. */
#define GPUFI_PY_IMPORTS_NUMPY
#include "core.h"
#include "dlpack_abi.h"

PyDoc_STRVAR(
    fetch_doc,
    "fetch(x, *, out=None, dtype=None, order=None, via=\"auto\")\n--\n\n"
    "Copy a tensor to the host: a writable ndarray of its shape and dtype in C order.\n\n"
    "x is a tensor of PyTorch, CuPy, Numba, JAX ..., a DeviceArray, or anything with\n"
    "__dlpack__ or __cuda_array_interface__; an array on the CPU is copied too. The\n"
    "copy starts after the work that is pending on x. bfloat16 and float8 become\n"
    "ml_dtypes' dtypes. The result's memory is pinned and goes back to a pool with the\n"
    "array; over the pool's cap it is pageable. out: a writable ndarray of x's shape and\n"
    "dtype, in any layout, that shares no memory with x; it is filled and returned.\n\n"
    "dtype: convert on the device, between any real dtypes but to float8_e8m0fnu; what\n"
    "travels is the result, so float32 to float16 halves the bytes and bfloat16 to\n"
    "float32 doubles them. Rounds as astype does; a NaN's payload is not kept, and a\n"
    "float that the integer cannot hold gives an unspecified one. out then has dtype.\n"
    "order: the result's layout, as numpy.array's: C (the default), F, A or K. With K a\n"
    "tensor that fills its memory in any order of the axes travels without packing.\n"
    "via: how the elements cross from the device: \"link\", as they are; \"codec\", encoded\n"
    "there, losslessly, and decoded here by a thread for each processor, which is for a\n"
    "link that is slower than these and data that compress; \"auto\", as \"link\" today.\n\n"
    "x may also be a dict, list or tuple of tensors, nested to any depth: the same tree\n"
    "with an ndarray for each tensor, all copied in one batch. An OrderedDict and a\n"
    "namedtuple keep their type; any other mapping becomes a dict, any other list or\n"
    "tuple a list or tuple. What is no tensor (numbers, strings, None ...) is passed\n"
    "through as it is. Arrays of up to 1 MiB share blocks of up to 16 MiB, which go back\n"
    "when the last of them has gone: copy() what you keep of a large tree. A tensor that\n"
    "occurs twice is copied twice. out, dtype, order and via=\"codec\" cannot be given.\n\n"
    "Raises TypeError for what is no tensor or has no NumPy counterpart, ValueError for\n"
    "an out that does not fit, MemoryError, and gpufetch.Error if the device fails (out\n"
    "is then partly written). Releases the GIL; may be called from any thread.");

PyDoc_STRVAR(fetch_async_doc,
             "fetch_async(x, *, out=None, dtype=None, order=None, via=\"auto\")\n--\n\n"
             "Start fetch and return a Future, which keeps x and the destination alive.\n\n"
             "Do not change x, nor read out, until the Future is done.");

PyDoc_STRVAR(to_device_doc,
             "to_device(array, *, device=None)\n--\n\n"
             "Copy an array on the CPU (of any layout) to a device: a DeviceArray in C order.\n\n"
             "device: \"cuda:0\", \"host:0\" or None, the default device. Raises MemoryError if\n"
             "the device is full. Releases the GIL; may be called from any thread.");

PyDoc_STRVAR(asdevice_doc,
             "asdevice(x, /)\n--\n\n"
             "Wrap any tensor that fetch takes as a DeviceArray, without a copy; keeps x alive.\n\n"
             "Work that is pending on x now is waited for by a later fetch. So is later work on\n"
             "the device's default stream; for later work on other streams wrap x again, or\n"
             "synchronise.");

PyDoc_STRVAR(restride_doc,
             "_restride(array, shape, strides, /)\n--\n\n"
             "View of a DeviceArray with the same first element and the given shape and strides\n"
             "in bytes (tuples). ValueError if it would reach outside the array's own extent.");

static PyMethodDef core_methods[] = {
    {"fetch", (PyCFunction)(void (*)(void))gpufi_py_fetch, METH_FASTCALL | METH_KEYWORDS,
     fetch_doc},
    {"fetch_async", (PyCFunction)(void (*)(void))gpufi_py_fetch_async,
     METH_FASTCALL | METH_KEYWORDS, fetch_async_doc},
    {"to_device", (PyCFunction)(void (*)(void))gpufi_py_to_device, METH_FASTCALL | METH_KEYWORDS,
     to_device_doc},
    {"asdevice", gpufi_py_asdevice, METH_O, asdevice_doc},
    {"_restride", gpufi_py_restride, METH_VARARGS, restride_doc},
    {0},
};

static int init_names(gpufi_py_names *names) {
#define X(name)                                                                                    \
  names->name = PyUnicode_InternFromString(#name);                                                 \
  if (!names->name) {                                                                              \
    return -1;                                                                                     \
  }
  GPUFI_PY_NAMES(X)
#undef X
  return 0;
}

static int init_dlpack_kwargs(gpufi_py_state *state) {
  state->empty_tuple = PyTuple_New(0);
  state->dlpack_kwargs_cuda = Py_BuildValue("{s:i,s:(ii)}", "stream", 1, "max_version",
                                            GPUFI_DLPACK_MAJOR, GPUFI_DLPACK_MINOR);
  state->dlpack_kwargs_cuda_legacy = Py_BuildValue("{s:i}", "stream", 1);
  state->dlpack_kwargs_cpu =
      Py_BuildValue("{s:(ii)}", "max_version", GPUFI_DLPACK_MAJOR, GPUFI_DLPACK_MINOR);
  return state->empty_tuple && state->dlpack_kwargs_cuda && state->dlpack_kwargs_cuda_legacy &&
                 state->dlpack_kwargs_cpu
             ? 0
             : -1;
}

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
  if (type && PyModule_AddType(module, type) < 0) {
    Py_CLEAR(type);
  }
  return type;
}

static int import_numpy(void) {
  import_array1(-1);
  return 0;
}

static int core_exec(PyObject *module) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  if (import_numpy() < 0 || init_names(&state->names) < 0 || init_dlpack_kwargs(state) < 0 ||
      gpufi_py_dtypes_init(state) < 0) {
    return -1;
  }
  state->error_type = gpufi_py_error_type_create();
  state->device_array_type = add_type(module, &gpufi_py_device_array_spec);
  state->future_type = add_type(module, &gpufi_py_future_spec);
  if (!state->error_type || !state->device_array_type || !state->future_type ||
      PyModule_AddObjectRef(module, "Error", state->error_type) < 0 ||
      PyModule_AddStringConstant(module, "__version__", gpuf_version()) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_info_methods) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_serve_methods) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_share_methods) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_reduce_methods) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_codec_methods) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_comm_methods) < 0 ||
      PyModule_AddFunctions(module, gpufi_py_hdf5_methods) < 0) {
    return -1;
  }
  return 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  Py_VISIT(state->device_array_type);
  Py_VISIT(state->future_type);
  Py_VISIT(state->error_type);
  Py_VISIT(state->producer_type);
  for (int i = 0; i <= GPUF_DTYPE_MAX; i++) {
    Py_VISIT(state->descrs[i]);
  }
  return 0;
}

static int core_clear(PyObject *module) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  Py_CLEAR(state->device_array_type);
  Py_CLEAR(state->future_type);
  Py_CLEAR(state->error_type);
  Py_CLEAR(state->producer_type);
  for (int i = 0; i <= GPUF_DTYPE_MAX; i++) {
    Py_CLEAR(state->descrs[i]);
  }
#define X(name) Py_CLEAR(state->names.name);
  GPUFI_PY_NAMES(X)
#undef X
  Py_CLEAR(state->empty_tuple);
  Py_CLEAR(state->dlpack_kwargs_cuda);
  Py_CLEAR(state->dlpack_kwargs_cuda_legacy);
  Py_CLEAR(state->dlpack_kwargs_cpu);
  return 0;
}

static void core_free(void *module) {
  core_clear((PyObject *)module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
    {0, NULL},
};

static PyModuleDef core_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gpufetch._core",
    .m_doc = "The compiled part of gpufetch; import gpufetch instead.",
    .m_size = sizeof(gpufi_py_state),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  return PyModuleDef_Init(&core_def);
}
