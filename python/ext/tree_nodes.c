/* A tree of tensors, read into a list of nodes. */
#include "tree_nodes.h"

#include "adapter.h"
#include "errors.h"
#include "tensorflow.h"

#include <stdlib.h>

/* Make an array of `count` items large enough for one more. */
static int grow(void **array, size_t *capacity, size_t count, size_t item_nbytes) {
  if (count < *capacity) {
    return 0;
  }
  const size_t wanted = *capacity ? 2 * *capacity : 64;
  void *grown = realloc(*array, wanted * item_nbytes);
  if (!grown) {
    PyErr_NoMemory();
    return -1;
  }
  *array = grown;
  *capacity = wanted;
  return 0;
}

/* --- Reading ------------------------------------------------------------- */

/* Attribute of a module, which is looked up once and kept in *kept. */
static PyObject *imported(PyObject **kept, const char *module_name, const char *name) {
  if (!*kept) {
    PyObject *module = PyImport_ImportModule(module_name);
    *kept = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
  }
  return *kept;
}

/* True for a Variable and for sparse and ragged tensors. The adapter imports the first and refuses
 * the others with a remedy. */
static bool is_tensorflow_tensor(PyObject *object) {
  return gpufi_py_is_tensorflow((PyObject *)Py_TYPE(object)) &&
         PyObject_HasAttrString(object, "dtype") && PyObject_HasAttrString(object, "shape");
}

static bool is_tensor(const gpufi_py_state *state, PyObject *object) {
  return Py_TYPE(object) == state->device_array_type || PyArray_Check(object) ||
         (!PyType_Check(object) &&
          (PyObject_HasAttr(object, state->names.__dlpack__) ||
           PyObject_HasAttr(object, state->names.__cuda_array_interface__)));
}

/* The kind of an object whose type is no builtin container itself; -1 with an exception set. */
static int classify_derived(gpufi_py_nodes *t, PyObject *object) {
  if (is_tensor(t->state, object) || is_tensorflow_tensor(object)) {
    PyTypeObject *old = t->leaf_type;
    t->leaf_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    Py_XDECREF((PyObject *)old);
    return NODE_LEAF;
  }
  if (PyDict_Check(object)) {
    PyObject *ordered = imported(&t->ordered_type, "collections", "OrderedDict");
    const int is_ordered = ordered ? PyObject_IsInstance(object, ordered) : -1;
    return is_ordered < 0 ? -1 : is_ordered ? NODE_ORDERED : NODE_DICT;
  }
  if (PyList_Check(object)) {
    return NODE_LIST;
  }
  if (PyTuple_Check(object)) {
    return PyObject_HasAttrString(object, "_fields") && PyObject_HasAttrString(object, "_make")
               ? NODE_NAMED
               : NODE_TUPLE;
  }
  PyObject *mapping = imported(&t->mapping_type, "collections.abc", "Mapping");
  const int is_mapping = mapping ? PyObject_IsInstance(object, mapping) : -1;
  return is_mapping < 0 ? -1 : is_mapping ? NODE_DICT : NODE_OTHER;
}

static int classify(gpufi_py_nodes *t, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (type == t->leaf_type) {
    return NODE_LEAF;
  }
  if (PyDict_CheckExact(object)) {
    return NODE_DICT;
  }
  if (PyList_CheckExact(object)) {
    return NODE_LIST;
  }
  if (PyTuple_CheckExact(object)) {
    return NODE_TUPLE;
  }
  if (object == Py_None || PyLong_Check(object) || PyFloat_CheckExact(object) ||
      PyUnicode_Check(object) || PyBytes_Check(object)) {
    return NODE_OTHER;
  }
  return classify_derived(t, object);
}

static int add_leaf(gpufi_py_nodes *t, PyObject *object) {
  gpufi_py_import import;
  gpuf_error err;
  if (t->leaf_count == t->leaf_capacity) {
    size_t capacities[2] = {t->leaf_capacity, t->leaf_capacity};
    if (grow((void **)&t->sources, &capacities[0], t->leaf_count, sizeof(*t->sources)) < 0 ||
        grow((void **)&t->keepalives, &capacities[1], t->leaf_count, sizeof(*t->keepalives)) < 0) {
      return -1;
    }
    t->leaf_capacity = capacities[0];
  }
  if ((t->may_pull ? gpufi_py_adapter_pull : gpufi_py_adapter_import)(t->state, object, &import) <
      0) {
    return -1;
  }
  if (gpuf_tensor_check(&import.tensor, &err) != GPUF_OK) {
    gpufi_py_import_clear(&import);
    gpufi_py_raise(t->state, &err);
    return -1;
  }
  t->sources[t->leaf_count] = import.tensor;
  t->keepalives[t->leaf_count] = import.keepalive;
  t->leaf_count++;
  return 0;
}

/* Put "[key]" (or "[index]" if key is NULL) in front of the path of what failed. */
static void extend_path(gpufi_py_nodes *t, PyObject *key, Py_ssize_t index) {
  const gpufi_py_exception raised = gpufi_py_exception_take();
  PyObject *rest = t->path ? t->path : PyUnicode_FromString("");
  t->path = rest && key ? PyUnicode_FromFormat("[%R]%U", key, rest)
            : rest      ? PyUnicode_FromFormat("[%zd]%U", index, rest)
                        : NULL;
  PyErr_Clear();
  Py_XDECREF(rest);
  gpufi_py_exception_restore(raised);
}

static int read_node(gpufi_py_nodes *t, PyObject *object);

static int read_items(gpufi_py_nodes *t, PyObject *items, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PyTuple_GetItem(items, i);
    if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
      PyErr_SetString(PyExc_TypeError, "items() of a mapping gave no pairs of key and value");
      return -1;
    }
    if (read_node(t, PyTuple_GetItem(pair, 1)) < 0) {
      extend_path(t, PyTuple_GetItem(pair, 0), 0);
      return -1;
    }
  }
  return 0;
}

static int read_elements(gpufi_py_nodes *t, PyObject *elements, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    if (read_node(t, PyTuple_GetItem(elements, i)) < 0) {
      extend_path(t, NULL, i);
      return -1;
    }
  }
  return 0;
}

/* The items of a mapping or the elements of a sequence, as a tuple, which stays as it is while
 * reading them runs code of theirs. */
static PyObject *children_of(PyObject *object, bool mapping) {
  if (!mapping) {
    return PySequence_Tuple(object);
  }
  PyObject *items = PyMapping_Items(object);
  PyObject *children = items ? PySequence_Tuple(items) : NULL;
  Py_XDECREF(items);
  return children;
}

static int read_container(gpufi_py_nodes *t, PyObject *object, gpufi_py_node_kind kind,
                          size_t index) {
  const bool mapping = kind == NODE_DICT || kind == NODE_ORDERED;
  PyObject *children = children_of(object, mapping);
  if (!children) {
    return -1;
  }
  const Py_ssize_t count = PyTuple_Size(children);
  t->nodes[index].count = count;
  if (mapping || kind == NODE_NAMED) {
    PyObject *kept = mapping ? children : (PyObject *)Py_TYPE(object);
    Py_INCREF(kept);
    t->nodes[index].object = kept;
  }
  int status = Py_EnterRecursiveCall(" while reading a tree of tensors");
  if (status == 0) {
    status = mapping ? read_items(t, children, count) : read_elements(t, children, count);
    Py_LeaveRecursiveCall();
  }
  Py_DECREF(children);
  return status;
}

static int read_node(gpufi_py_nodes *t, PyObject *object) {
  const int kind = classify(t, object);
  if (kind < 0 ||
      grow((void **)&t->nodes, &t->node_capacity, t->node_count, sizeof(*t->nodes)) < 0) {
    return -1;
  }
  const size_t index = t->node_count++;
  t->nodes[index] = (gpufi_py_node){(gpufi_py_node_kind)kind, NULL, 0};
  if (kind == NODE_LEAF) {
    return add_leaf(t, object);
  }
  if (kind == NODE_OTHER) {
    Py_INCREF(object);
    t->nodes[index].object = object;
    return 0;
  }
  return read_container(t, object, (gpufi_py_node_kind)kind, index);
}

/* Say where in the tree the exception that is set comes from. */
static void name_failed_leaf(const gpufi_py_nodes *t) {
  PyObject *kind = PyErr_ExceptionMatches(PyExc_TypeError)    ? PyExc_TypeError
                   : PyErr_ExceptionMatches(PyExc_ValueError) ? PyExc_ValueError
                                                              : NULL;
  if (!t->path || !kind) {
    return;
  }
  gpufi_py_exception raised = gpufi_py_exception_take();
  PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
  PyObject *text = PyObject_Str(raised.value);
  gpufi_py_exception_restore(raised);
  if (text) {
    gpufi_py_raise_from(kind, "tree%U: %U", t->path, text);
    Py_DECREF(text);
  }
}

int gpufi_py_nodes_init(gpufi_py_nodes *nodes, gpufi_py_state *state, PyObject *object,
                        bool may_pull) {
  *nodes = (gpufi_py_nodes){.state = state, .may_pull = may_pull};
  if (read_node(nodes, object) < 0) {
    name_failed_leaf(nodes);
    return -1;
  }
  return 0;
}

void gpufi_py_nodes_fini(gpufi_py_nodes *nodes) {
  for (size_t i = 0; i < nodes->node_count; i++) {
    Py_XDECREF(nodes->nodes[i].object);
  }
  for (size_t i = 0; i < nodes->leaf_count; i++) {
    Py_XDECREF(nodes->keepalives[i]);
  }
  Py_XDECREF((PyObject *)nodes->leaf_type);
  Py_XDECREF(nodes->path);
  Py_XDECREF(nodes->mapping_type);
  Py_XDECREF(nodes->ordered_type);
  free(nodes->nodes);
  free(nodes->sources);
  free(nodes->keepalives);
}

int gpufi_py_is_tree(gpufi_py_state *state, PyObject *object) {
  gpufi_py_nodes t = {.state = state};
  PyTypeObject *type = Py_TYPE(object);
  if (type == state->device_array_type || (PyObject *)type == state->producer_type) {
    return 0;
  }
  const int kind = classify(&t, object);
  gpufi_py_nodes_fini(&t);
  return kind < 0 ? -1 : kind != NODE_LEAF && kind != NODE_OTHER;
}
