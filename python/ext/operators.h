/* The operators of a DeviceArray, which give NumPy's results for a copy of its elements. */
#ifndef GPUFI_PY_OPERATORS_H
#define GPUFI_PY_OPERATORS_H

#include "api.h"

/* The slots of the number protocol and of comparisons, by X(slot, function). */
#define GPUFI_PY_OPERATORS(X)                                                                      \
  X(nb_add, PyNumber_Add)                                                                          \
  X(nb_subtract, PyNumber_Subtract)                                                                \
  X(nb_multiply, PyNumber_Multiply)                                                                \
  X(nb_matrix_multiply, PyNumber_MatrixMultiply)                                                   \
  X(nb_remainder, PyNumber_Remainder)                                                              \
  X(nb_divmod, PyNumber_Divmod)                                                                    \
  X(nb_floor_divide, PyNumber_FloorDivide)                                                         \
  X(nb_true_divide, PyNumber_TrueDivide)                                                           \
  X(nb_lshift, PyNumber_Lshift)                                                                    \
  X(nb_rshift, PyNumber_Rshift)                                                                    \
  X(nb_and, PyNumber_And)                                                                          \
  X(nb_xor, PyNumber_Xor)                                                                          \
  X(nb_or, PyNumber_Or)
#define GPUFI_PY_UNARY_OPERATORS(X)                                                                \
  X(nb_negative, PyNumber_Negative)                                                                \
  X(nb_positive, PyNumber_Positive)                                                                \
  X(nb_absolute, PyNumber_Absolute)                                                                \
  X(nb_invert, PyNumber_Invert)

#define X(slot, function) PyObject *gpufi_py_##slot(PyObject *left, PyObject *right);
GPUFI_PY_OPERATORS(X)
#undef X
#define X(slot, function) PyObject *gpufi_py_##slot(PyObject *array);
GPUFI_PY_UNARY_OPERATORS(X)
#undef X
PyObject *gpufi_py_nb_power(PyObject *left, PyObject *right, PyObject *modulus);
PyObject *gpufi_py_tp_richcompare(PyObject *left, PyObject *right, int operation);
/* For every `x op= y`: TypeError, since Python would put an ndarray in the DeviceArray's place. */
PyObject *gpufi_py_refuse_in_place(PyObject *array, PyObject *other);
PyObject *gpufi_py_refuse_in_place_power(PyObject *array, PyObject *other, PyObject *modulus);

#endif
