/* fetch of a tree: containers of tensors to the same containers of ndarrays, in one batch of
 * copies. The tree is read once, into a list of nodes, because the copies run without the GIL and
 * the caller's containers may change meanwhile. */
#include "tree.h"

#include "adapter.h"
#include "arrays.h"
#include "base/arithmetic.h"
#include "buffer.h"
#include "errors.h"
#include "tensorflow.h"

#include <stdlib.h>

/* Leaves up to this size share blocks, so that thousands of them cost one allocation; a block is
 * bounded, because one small array that is kept keeps all of it, and below the size from which the
 * pool hands out blocks that are not page-locked yet. */
#define SHARED_LEAF_NBYTES_MAX ((size_t)1 << 20)
#define SHARED_BUFFER_NBYTES_MAX ((size_t)16 << 20)
#define LEAF_ALIGN_NBYTES ((size_t)64)
#define OPEN_BUFFERS_MAX 16

typedef enum node_kind {
  NODE_LEAF,    /* a tensor: the next entry of the leaves */
  NODE_OTHER,   /* passes through */
  NODE_DICT,    /* becomes a dict */
  NODE_ORDERED, /* becomes an OrderedDict */
  NODE_LIST,
  NODE_TUPLE,
  NODE_NAMED /* a namedtuple */
} node_kind;

/* In depth-first order: `count` children follow, each with what is below it. */
typedef struct node {
  node_kind kind;
  PyObject *object; /* strong: OTHER the object, DICT and ORDERED the list of items, NAMED the type;
                       else NULL */
  Py_ssize_t count;
} node;

typedef struct shared_buffer {
  PyObject *capsule; /* strong; owns the memory */
  char *data;
  size_t nbytes;
  gpuf_device device;
} shared_buffer;

/* Where a leaf goes. */
typedef struct place {
  size_t buffer;
  size_t offset;
} place;

typedef struct tree {
  gpufi_py_state *state;
  node *nodes;
  size_t node_count, node_capacity;
  gpuf_tensor *sources, *targets; /* of the leaves */
  PyObject **keepalives;          /* strong */
  place *places;
  size_t leaf_count, leaf_capacity;
  shared_buffer *buffers;
  size_t buffer_count, buffer_capacity;
  PyObject *path;         /* "['a'][3]" of what could not be read */
  PyObject *mapping_type; /* collections.abc.Mapping and collections.OrderedDict, when needed */
  PyObject *ordered_type;
  PyTypeObject *leaf_type; /* borrowed from an object that the caller's tree holds */
} tree;

static void tree_free(tree *t) {
  for (size_t i = 0; i < t->node_count; i++) {
    Py_XDECREF(t->nodes[i].object);
  }
  for (size_t i = 0; i < t->leaf_count; i++) {
    Py_XDECREF(t->keepalives[i]);
  }
  for (size_t i = 0; i < t->buffer_count; i++) {
    Py_XDECREF(t->buffers[i].capsule);
  }
  Py_XDECREF(t->path);
  Py_XDECREF(t->mapping_type);
  Py_XDECREF(t->ordered_type);
  free(t->nodes);
  free(t->sources);
  free(t->targets);
  free(t->keepalives);
  free(t->places);
  free(t->buffers);
}

/* Room for one more in an array of `count`. */
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

/* --- Reading --------------------------------------------------------------- */

/* Attribute of a module, once. */
static PyObject *imported(PyObject **slot, const char *module_name, const char *name) {
  if (!*slot) {
    PyObject *module = PyImport_ImportModule(module_name);
    *slot = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
  }
  return *slot;
}

/* A Variable, or a sparse or ragged tensor: the adapter takes it or says what to call. */
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

/* Of an object of a type that is no builtin container itself; -1 with an exception set. */
static int classify_derived(tree *t, PyObject *object) {
  if (is_tensor(t->state, object) || is_tensorflow_tensor(object)) {
    t->leaf_type = Py_TYPE(object);
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

static int classify(tree *t, PyObject *object) {
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

static int add_leaf(tree *t, PyObject *object) {
  gpufi_py_import import;
  gpuf_error err;
  if (t->leaf_count == t->leaf_capacity) {
    size_t capacities[3] = {t->leaf_capacity, t->leaf_capacity, t->leaf_capacity};
    if (grow((void **)&t->sources, &capacities[0], t->leaf_count, sizeof(*t->sources)) < 0 ||
        grow((void **)&t->places, &capacities[1], t->leaf_count, sizeof(*t->places)) < 0 ||
        grow((void **)&t->keepalives, &capacities[2], t->leaf_count, sizeof(*t->keepalives)) < 0) {
      return -1;
    }
    t->leaf_capacity = capacities[0];
  }
  if (gpufi_py_adapter_import(t->state, object, &import) < 0) {
    return -1;
  }
  if (gpuf_tensor_check(&import.tensor, &err) != GPUF_OK) {
    gpufi_py_import_clear(&import);
    gpufi_py_raise(t->state, &err);
    return -1;
  }
  t->sources[t->leaf_count] = import.tensor;
  t->keepalives[t->leaf_count] = import.keepalive;
  t->places[t->leaf_count] = (place){0, 0};
  t->leaf_count++;
  return 0;
}

/* Put "[key]" in front of the path of what failed. */
static void extend_path(tree *t, PyObject *key, Py_ssize_t index) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *rest = t->path ? t->path : PyUnicode_FromString("");
  t->path = rest && key ? PyUnicode_FromFormat("[%R]%U", key, rest)
            : rest      ? PyUnicode_FromFormat("[%zd]%U", index, rest)
                        : NULL;
  PyErr_Clear();
  Py_XDECREF(rest);
  PyErr_Restore(type, value, traceback);
}

static int read_node(tree *t, PyObject *object);

static int read_items(tree *t, PyObject *items, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PyList_GetItem(items, i);
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

static int read_elements(tree *t, PyObject *elements, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    if (read_node(t, PyTuple_GetItem(elements, i)) < 0) {
      extend_path(t, NULL, i);
      return -1;
    }
  }
  return 0;
}

static int read_container(tree *t, PyObject *object, node_kind kind, size_t index) {
  const bool mapping = kind == NODE_DICT || kind == NODE_ORDERED;
  PyObject *children = mapping ? PyMapping_Items(object) : PySequence_Tuple(object);
  if (!children) {
    return -1;
  }
  const Py_ssize_t count = mapping ? PyList_Size(children) : PyTuple_Size(children);
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

static int read_node(tree *t, PyObject *object) {
  const int kind = classify(t, object);
  if (kind < 0 ||
      grow((void **)&t->nodes, &t->node_capacity, t->node_count, sizeof(*t->nodes)) < 0) {
    return -1;
  }
  const size_t index = t->node_count++;
  t->nodes[index] = (node){(node_kind)kind, NULL, 0};
  if (kind == NODE_LEAF) {
    return add_leaf(t, object);
  }
  if (kind == NODE_OTHER) {
    Py_INCREF(object);
    t->nodes[index].object = object;
    return 0;
  }
  return read_container(t, object, (node_kind)kind, index);
}

/* Say where in the tree the exception that is set comes from. */
static void name_failed_leaf(const tree *t) {
  PyObject *type, *value, *traceback;
  if (!t->path ||
      (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError))) {
    return;
  }
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject *text = PyObject_Str(value);
  PyObject *raised =
      PyErr_GivenExceptionMatches(type, PyExc_TypeError) ? PyExc_TypeError : PyExc_ValueError;
  PyErr_Restore(type, value, traceback);
  if (text) {
    gpufi_py_raise_from(raised, "tree%U: %U", t->path, text);
    Py_DECREF(text);
  }
}

/* --- Memory ---------------------------------------------------------------- */

static int add_buffer(tree *t, gpuf_device device) {
  if (grow((void **)&t->buffers, &t->buffer_capacity, t->buffer_count, sizeof(*t->buffers)) < 0) {
    return -1;
  }
  t->buffers[t->buffer_count++] = (shared_buffer){NULL, NULL, 0, device};
  return 0;
}

/* Give every leaf with elements its place in a block. Leaves of one device that follow one another
 * lie side by side: that is what gpuf_copy_many turns into one transfer. */
static int place_leaves(tree *t) {
  size_t open[OPEN_BUFFERS_MAX]; /* blocks that may take more leaves, one a device */
  size_t open_count = 0;
  for (size_t i = 0; i < t->leaf_count; i++) {
    const gpuf_device device = t->sources[i].device;
    const size_t nbytes = gpuf_tensor_nbytes(&t->sources[i]);
    size_t k = 0;
    if (nbytes == 0) {
      continue;
    }
    while (k < open_count && (t->buffers[open[k]].device.kind != device.kind ||
                              t->buffers[open[k]].device.index != device.index)) {
      k++;
    }
    const bool shared = nbytes <= SHARED_LEAF_NBYTES_MAX && k < OPEN_BUFFERS_MAX;
    if (!shared || k == open_count ||
        t->buffers[open[k]].nbytes + nbytes > SHARED_BUFFER_NBYTES_MAX) {
      if (add_buffer(t, device) < 0) {
        return -1;
      }
      if (shared) {
        open[k] = t->buffer_count - 1;
        open_count += k == open_count;
      }
    }
    shared_buffer *b = &t->buffers[shared ? open[k] : t->buffer_count - 1];
    t->places[i] = (place){(size_t)(b - t->buffers), b->nbytes};
    b->nbytes +=
        shared ? (nbytes + LEAF_ALIGN_NBYTES - 1) / LEAF_ALIGN_NBYTES * LEAF_ALIGN_NBYTES : nbytes;
  }
  return 0;
}

static int allocate(tree *t) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  for (size_t i = 0; i < t->buffer_count; i++) {
    shared_buffer *b = &t->buffers[i];
    b->capsule = gpufi_py_buffer_create(t->state, b->device, b->nbytes, (void **)&b->data);
    if (!b->capsule) {
      return -1;
    }
  }
  t->targets = calloc(t->leaf_count ? t->leaf_count : 1, sizeof(*t->targets));
  if (!t->targets) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < t->leaf_count; i++) {
    const gpuf_tensor *source = &t->sources[i];
    const place *where = &t->places[i];
    const shared_buffer *b =
        gpuf_tensor_nbytes(source) > 0 && t->buffers ? &t->buffers[where->buffer] : NULL;
    char *data = b ? b->data + where->offset : NULL;
    gpuf_error err;
    if (gpuf_tensor_init(&t->targets[i], data, cpu, source->dtype, source->ndim, source->shape,
                         &err) != GPUF_OK) {
      gpufi_py_raise(t->state, &err);
      return -1;
    }
  }
  return 0;
}

static int copy_leaves(tree *t) {
  gpuf_error err;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_copy_many(t->targets, t->sources, t->leaf_count, NULL, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    gpufi_py_raise(t->state, &err);
    return -1;
  }
  return 0;
}

/* --- Building -------------------------------------------------------------- */

typedef struct builder {
  const tree *tree;
  size_t node, leaf; /* the next ones */
} builder;

/* An array without elements gets memory of NumPy's. */
static PyObject *build_leaf(const tree *t, size_t index) {
  const gpuf_tensor *target = &t->targets[index];
  PyObject *descr = t->state->descrs[target->dtype];
  npy_intp shape[GPUF_NDIM_MAX];
  for (int32_t i = 0; i < target->ndim; i++) {
    shape[i] = (npy_intp)target->shape[i];
  }
  Py_INCREF(descr); /* stolen */
  PyObject *array =
      PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)descr, target->ndim, shape, NULL,
                           target->data, target->data ? NPY_ARRAY_DEFAULT : 0, NULL);
  if (array && target->data && t->buffers) {
    PyObject *capsule = t->buffers[t->places[index].buffer].capsule;
    Py_INCREF(capsule); /* stolen */
    if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) < 0) {
      Py_CLEAR(array);
    }
  }
  return array;
}

static PyObject *build_node(builder *b);

static PyObject *build_mapping(builder *b, const node *n) {
  PyObject *result = n->kind == NODE_ORDERED
                         ? PyObject_CallFunctionObjArgs(b->tree->ordered_type, NULL)
                         : PyDict_New();
  for (Py_ssize_t i = 0; result && i < n->count; i++) {
    PyObject *key = PyTuple_GetItem(PyList_GetItem(n->object, i), 0);
    PyObject *value = build_node(b);
    if (!value || PyObject_SetItem(result, key, value) < 0) {
      Py_CLEAR(result);
    }
    Py_XDECREF(value);
  }
  return result;
}

static PyObject *build_sequence(builder *b, const node *n) {
  const bool is_list = n->kind == NODE_LIST;
  PyObject *result = is_list ? PyList_New(n->count) : PyTuple_New(n->count);
  for (Py_ssize_t i = 0; result && i < n->count; i++) {
    PyObject *value = build_node(b);
    if (!value || (is_list ? PyList_SetItem(result, i, value) /* both steal value */
                           : PyTuple_SetItem(result, i, value)) < 0) {
      Py_CLEAR(result);
    }
  }
  if (result && n->kind == NODE_NAMED) {
    PyObject *elements = result;
    result = PyObject_CallMethod(n->object, "_make", "(O)", elements);
    Py_DECREF(elements);
  }
  return result;
}

static PyObject *build_node(builder *b) {
  const node n = b->tree->nodes[b->node++];
  if (n.kind == NODE_LEAF) {
    return build_leaf(b->tree, b->leaf++);
  }
  if (n.kind == NODE_OTHER) {
    Py_INCREF(n.object);
    return n.object;
  }
  if (Py_EnterRecursiveCall(" while building a tree of arrays")) {
    return NULL;
  }
  PyObject *result =
      n.kind == NODE_DICT || n.kind == NODE_ORDERED ? build_mapping(b, &n) : build_sequence(b, &n);
  Py_LeaveRecursiveCall();
  return result;
}

/* --- The function ---------------------------------------------------------- */

int gpufi_py_is_tree(gpufi_py_state *state, PyObject *object) {
  tree t = {.state = state};
  PyTypeObject *type = Py_TYPE(object);
  if (type == state->device_array_type || (PyObject *)type == state->producer_type) {
    return 0;
  }
  const int kind = classify(&t, object);
  tree_free(&t);
  return kind < 0 ? -1 : kind != NODE_LEAF && kind != NODE_OTHER;
}

PyObject *gpufi_py_fetch_tree(gpufi_py_state *state, PyObject *object) {
  tree t = {.state = state};
  PyObject *result = NULL;
  if (read_node(&t, object) < 0) {
    name_failed_leaf(&t);
  } else if (place_leaves(&t) == 0 && allocate(&t) == 0 && copy_leaves(&t) == 0) {
    builder b = {&t, 0, 0};
    result = build_node(&b);
  }
  tree_free(&t);
  return result;
}
