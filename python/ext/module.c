/* The extension module gpufetch._core: multi-phase initialization, and no state outside the module
 * but NumPy's table of functions and the flag of interpreter.c. */
#define GPUFI_PY_IMPORTS_NUMPY
#include "../../hdf5_filter/ids.h"
#include "device_array.h"
#include "dlpack_abi.h"
#include "dtypes.h"
#include "errors.h"
#include "future.h"
#include "interpreter.h"
#include "methods.h"

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

static int add_functions(PyObject *module) {
  PyMethodDef *const tables[] = {
      gpufi_py_checkpoint_methods, gpufi_py_dispatcher_methods, gpufi_py_device_methods,
      gpufi_py_fetch_methods,      gpufi_py_hdf5_methods,       gpufi_py_info_methods,
      gpufi_py_reduce_methods,     gpufi_py_serve_methods,      gpufi_py_share_methods,
      gpufi_py_thread_methods,     gpufi_py_h5_future_methods,  gpufi_py_restart_methods,
      gpufi_py_chunk_methods,      gpufi_py_overlap_methods,
  };
  for (int i = 0; i < GPUFI_PY_COUNT(tables); i++) {
    if (PyModule_AddFunctions(module, tables[i]) < 0) {
      return -1;
    }
  }
  return 0;
}

static int add_filter_ids(PyObject *module) {
  static const int ids[] = {
#define ELEMENT(number) number,
      GPUFI_FILTER_IDS(ELEMENT)
#undef ELEMENT
  };
  PyObject *tuple = PyTuple_New(GPUFI_PY_COUNT(ids));
  for (int i = 0; tuple && i < GPUFI_PY_COUNT(ids); i++) {
    PyObject *id = PyLong_FromLong(ids[i]);
    if (id == NULL || PyTuple_SetItem(tuple, i, id) < 0) {
      Py_CLEAR(tuple);
    }
  }
  const int added = PyModule_AddObjectRef(module, "H5_FILTER_IDS", tuple);
  Py_XDECREF(tuple);
  return added;
}

static int core_exec(PyObject *module) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  gpufi_py_interpreter_init();
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
      add_filter_ids(module) < 0) {
    return -1;
  }
  return add_functions(module);
}

/* Strings, tuples of numbers and NumPy's dtypes refer to nothing that could refer back. */
static int core_traverse(PyObject *module, visitproc visit, void *arg) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
  Py_VISIT(state->device_array_type);
  Py_VISIT(state->future_type);
  Py_VISIT(state->error_type);
  Py_VISIT(state->producer_type);
  return 0;
}

static int core_clear(PyObject *module) {
  gpufi_py_state *state = gpufi_py_state_of_module(module);
#define X(name) Py_CLEAR(state->name);
  GPUFI_PY_STATE_OBJECTS(X)
#undef X
#define X(name) Py_CLEAR(state->names.name);
  GPUFI_PY_NAMES(X)
#undef X
  for (int i = 0; i <= GPUF_DTYPE_MAX; i++) {
    Py_CLEAR(state->descrs[i]);
  }
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
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  return PyModuleDef_Init(&core_def);
}
