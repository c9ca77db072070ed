#include "package.h"

#include <string.h>

bool gpufi_py_is_of_package(PyObject *type, const char *name) {
  const size_t length = strlen(name);
  PyObject *module = PyObject_GetAttrString(type, "__module__");
  const char *text =
      module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
  const bool found =
      text && strncmp(text, name, length) == 0 && (text[length] == '.' || text[length] == '\0');
  Py_XDECREF(module);
  PyErr_Clear();
  return found;
}
