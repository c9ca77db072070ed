/* The operators of a DeviceArray, which give NumPy's results for a copy of its elements. */
#include "operators.h"

/* The type has no subtypes, and its slots are its own. */
static bool is_device_array(PyObject *object) {
  return PyType_GetSlot(Py_TYPE(object), Py_tp_richcompare) == (void *)gpufi_py_tp_richcompare;
}

/* An operand for NumPy: the elements of a DeviceArray, anything else as it is. A new reference. */
static PyObject *operand(PyObject *object) {
  return is_device_array(object) ? PyObject_CallMethod(object, "__array__", NULL)
                                 : Py_NewRef(object);
}

static PyObject *binary(PyObject *left, PyObject *right,
                        PyObject *(*function)(PyObject *, PyObject *)) {
  PyObject *a = operand(left);
  PyObject *b = a ? operand(right) : NULL;
  PyObject *result = b ? function(a, b) : NULL;
  Py_XDECREF(a);
  Py_XDECREF(b);
  return result;
}

static PyObject *unary(PyObject *array, PyObject *(*function)(PyObject *)) {
  PyObject *a = operand(array);
  PyObject *result = a ? function(a) : NULL;
  Py_XDECREF(a);
  return result;
}

#define X(slot, function)                                                                          \
  PyObject *gpufi_py_##slot(PyObject *left, PyObject *right) {                                     \
    return binary(left, right, function);                                                          \
  }
GPUFI_PY_OPERATORS(X)
#undef X

#define X(slot, function)                                                                          \
  PyObject *gpufi_py_##slot(PyObject *array) {                                                     \
    return unary(array, function);                                                                 \
  }
GPUFI_PY_UNARY_OPERATORS(X)
#undef X

static PyObject *power(PyObject *left, PyObject *right) {
  return PyNumber_Power(left, right, Py_None);
}

/* NumPy has no power with a modulus. */
PyObject *gpufi_py_nb_power(PyObject *left, PyObject *right, PyObject *modulus) {
  return modulus == Py_None ? binary(left, right, power) : Py_NewRef(Py_NotImplemented);
}

PyObject *gpufi_py_tp_richcompare(PyObject *left, PyObject *right, int operation) {
  PyObject *a = operand(left);
  PyObject *b = a ? operand(right) : NULL;
  PyObject *result = b ? PyObject_RichCompare(a, b, operation) : NULL;
  Py_XDECREF(a);
  Py_XDECREF(b);
  return result;
}

PyObject *gpufi_py_refuse_in_place(PyObject *array, PyObject *other) {
  PyErr_SetString(PyExc_TypeError, "a DeviceArray is not written to: y = x + 1 gives an array, and "
                                   "to_device(y) another DeviceArray");
  return NULL;
}

PyObject *gpufi_py_refuse_in_place_power(PyObject *array, PyObject *other, PyObject *modulus) {
  return gpufi_py_refuse_in_place(array, other);
}
