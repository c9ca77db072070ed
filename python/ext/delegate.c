#include "delegate.h"

PyObject *gpufi_py_delegate(const char *module, const char *name, PyObject *self, PyObject *args,
                            PyObject *kwargs) {
  PyObject *result = NULL, *function = NULL, *all_args = NULL;
  PyObject *self_tuple = PyTuple_Pack(1, self);
  PyObject *found = self_tuple ? PyImport_ImportModule(module) : NULL;
  if (found) {
    function = PyObject_GetAttrString(found, name);
    all_args = args ? PySequence_Concat(self_tuple, args) : Py_NewRef(self_tuple);
  }
  if (function && all_args) {
    result = PyObject_Call(function, all_args, kwargs);
  }
  Py_XDECREF(all_args);
  Py_XDECREF(function);
  Py_XDECREF(found);
  Py_XDECREF(self_tuple);
  return result;
}
