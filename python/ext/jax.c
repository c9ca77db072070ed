/* What is particular about JAX's arrays. */
#include "jax.h"

#include "errors.h"
#include "package.h"

bool gpufi_py_is_jax(PyObject *type) {
  return gpufi_py_is_of_package(type, "jax") || gpufi_py_is_of_package(type, "jaxlib");
}

/* True if `array` is an instance of a class of JAX's, by the name of its module and its own. */
static bool is_instance(PyObject *array, const char *module_name, const char *class_name) {
  PyObject *module = PyImport_ImportModule(module_name); /* loaded already, as there is an array */
  PyObject *kind = module ? PyObject_GetAttrString(module, class_name) : NULL;
  const int found = kind ? PyObject_IsInstance(array, kind) : 0;
  Py_XDECREF(kind);
  Py_XDECREF(module);
  PyErr_Clear();
  return found > 0;
}

static bool is_deleted(PyObject *array) {
  PyObject *deleted = PyObject_CallMethod(array, "is_deleted", NULL);
  const bool result = deleted == Py_True;
  Py_XDECREF(deleted);
  PyErr_Clear();
  return result;
}

/* The number of devices that hold the array, or 0 if it does not say. */
static Py_ssize_t device_count(PyObject *array) {
  PyObject *devices = PyObject_CallMethod(array, "devices", NULL);
  const Py_ssize_t count = devices ? PyObject_Size(devices) : 0;
  Py_XDECREF(devices);
  PyErr_Clear();
  return count;
}

/* Why elements of the array's dtype cannot be copied, and what to do; NULL if they can. */
static const char *find_dtype_reason(PyObject *array) {
  static const char *const narrow[] = {"int1", "uint1", "int2", "uint2", "int4", "uint4"};
  PyObject *dtype = PyObject_GetAttrString(array, "dtype");
  PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  const char *reason = NULL;
  for (int i = 0; text && i < GPUFI_PY_COUNT(narrow); i++) {
    if (strcmp(text, narrow[i]) == 0) {
      reason = "its elements are smaller than a byte, and NumPy has none such: cast it first, with "
               "x.astype('int8')";
    }
  }
  if (text && strncmp(text, "key<", 4) == 0) {
    reason = "its elements are random keys: jax.random.key_data(x) gives their bits";
  }
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  PyErr_Clear();
  return reason;
}

/* Why `array` has no elements to copy and what to do, or NULL if it has. Clears exceptions. */
static const char *find_reason(PyObject *array) {
  if (is_instance(array, "jax.core", "Tracer")) {
    return "it is traced (by jit, grad, vmap, ...) and has no elements yet: call gpufetch outside "
           "of "
           "the transformed function, or inside of it through jax.pure_callback or "
           "jax.debug.callback";
  }
  if (is_deleted(array)) {
    return "it was deleted, by delete() or because it was donated to a jitted function "
           "(donate_argnums): use that function's result, or fetch before the call";
  }
  if (device_count(array) > 1) {
    return "it is sharded over several devices: take its parts from x.addressable_shards, or "
           "gather "
           "it with jax.device_put(x, jax.devices()[0])";
  }
  return find_dtype_reason(array);
}

void gpufi_py_jax_explain(PyObject *array) {
  if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
    return;
  }
  const gpufi_py_exception raised = gpufi_py_exception_take();
  const char *reason = find_reason(array);
  gpufi_py_exception_restore(raised);
  if (reason) {
    gpufi_py_raise_from(PyExc_TypeError, "this JAX array cannot be copied: %s", reason);
  }
}
