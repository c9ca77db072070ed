/* fetch and fetch_async of a tree: the tensors in it are copied in one call, and the containers
 * built anew. */
#include "tree.h"

#include "arrays.h"
#include "buffer.h"
#include "errors.h"
#include "future.h"
#include "tree_nodes.h"

#include "backend/cast.h"
#include "base/arithmetic.h"
#include "core/many.h"
#include "core/runtime.h"

#include <stdlib.h>

/* Leaves up to this size share buffers, so that thousands of them cost one allocation. A shared
 * buffer is bounded, because one small array that is kept keeps all of it, and is below the size
 * from which the pool hands out memory that is not page-locked yet. */
#define SHARED_LEAF_NBYTES_MAX ((size_t)1 << 20)
#define SHARED_BUFFER_NBYTES_MAX ((size_t)16 << 20)
#define LEAF_ALIGN_NBYTES ((size_t)64)
#define OPEN_BUFFERS_MAX 16

/* Host memory for one leaf, or for several of one device. */
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
  gpufi_py_nodes nodes;
  const gpufi_py_request *wanted;
  gpuf_tensor *targets; /* of the leaves, in their order */
  place *places;        /* of the leaves; without meaning for one without elements */
  shared_buffer *buffers;
  size_t buffer_count;
} tree;

static void tree_fini(tree *t) {
  for (size_t i = 0; i < t->buffer_count; i++) {
    Py_XDECREF(t->buffers[i].capsule);
  }
  gpufi_py_nodes_fini(&t->nodes);
  free(t->targets);
  free(t->places);
  free(t->buffers);
}

/* --- Memory -------------------------------------------------------------- */

static int alloc_lists(tree *t) {
  const size_t count = t->nodes.leaf_count > 0 ? t->nodes.leaf_count : 1;
  t->targets = calloc(count, sizeof(*t->targets));
  t->places = calloc(count, sizeof(*t->places));
  t->buffers = calloc(count, sizeof(*t->buffers));
  if (!t->targets || !t->places || !t->buffers) {
    PyErr_NoMemory();
    return -1;
  }
  return 0;
}

/* Buffers that have space for more leaves: one for each device, up to OPEN_BUFFERS_MAX. */
typedef struct open_buffers {
  size_t index[OPEN_BUFFERS_MAX];
  size_t count;
} open_buffers;

/* The place of the device's buffer in the list, or the place to put it; OPEN_BUFFERS_MAX if the
 * list is full. */
static size_t find_open(const tree *t, const open_buffers *open, gpuf_device device) {
  size_t k = 0;
  while (k < open->count && !gpufi_is_same_device(t->buffers[open->index[k]].device, device)) {
    k++;
  }
  return k;
}

/* The index of the buffer for a leaf of `nbytes`, which the caller adds to it. */
static size_t choose_buffer(tree *t, open_buffers *open, gpuf_device device, size_t nbytes) {
  const size_t k = find_open(t, open, device);
  const bool shared = nbytes <= SHARED_LEAF_NBYTES_MAX && k < OPEN_BUFFERS_MAX;
  if (shared && k < open->count &&
      t->buffers[open->index[k]].nbytes + nbytes <= SHARED_BUFFER_NBYTES_MAX) {
    return open->index[k];
  }
  t->buffers[t->buffer_count].device = device;
  if (shared) {
    open->index[k] = t->buffer_count;
    open->count += k == open->count;
  }
  return t->buffer_count++;
}

/* What a leaf becomes, without its memory. */
static int describe_target(const tree *t, const gpuf_tensor *source, gpuf_tensor *target) {
  const gpufi_py_state *state = t->nodes.state;
  gpuf_error err;
  if (gpufi_py_request_check(t->wanted, source, &err) != GPUF_OK) {
    gpufi_py_raise(state, &err);
    return -1;
  }
  gpufi_py_request_describe(t->wanted, source, target);
  if (!gpufi_cast_offered((gpufi_cast){source->dtype, target->dtype})) {
    PyErr_Format(PyExc_TypeError,
                 "dtype is %S, and the tree has a tensor of dtype %S: a cast between these is not "
                 "offered; fetch that one without dtype, and convert it with astype",
                 state->descrs[target->dtype], state->descrs[source->dtype]);
    return -1;
  }
  return 0;
}

static int describe_targets(tree *t) {
  for (size_t i = 0; i < t->nodes.leaf_count; i++) {
    if (describe_target(t, &t->nodes.sources[i], &t->targets[i]) < 0) {
      return -1;
    }
  }
  return 0;
}

/* Give every leaf with elements its place in a buffer. Leaves of one device that follow one another
 * lie side by side: that is what gpuf_copy_many turns into one transfer. */
static void place_leaves(tree *t) {
  open_buffers open = {.count = 0};
  for (size_t i = 0; i < t->nodes.leaf_count; i++) {
    const size_t nbytes = gpuf_tensor_nbytes(&t->targets[i]);
    if (nbytes > 0) {
      const size_t index = choose_buffer(t, &open, t->nodes.sources[i].device, nbytes);
      size_t *end = &t->buffers[index].nbytes;
      t->places[i] = (place){index, *end};
      *end += nbytes <= SHARED_LEAF_NBYTES_MAX ? gpufi_round_up(nbytes, LEAF_ALIGN_NBYTES) : nbytes;
    }
  }
}

static int allocate(tree *t) {
  for (size_t i = 0; i < t->buffer_count; i++) {
    shared_buffer *b = &t->buffers[i];
    b->capsule = gpufi_py_buffer_create(t->nodes.state, b->device, b->nbytes, (void **)&b->data);
    if (!b->capsule) {
      return -1;
    }
  }
  for (size_t i = 0; i < t->nodes.leaf_count; i++) {
    gpuf_tensor *target = &t->targets[i];
    if (gpuf_tensor_nbytes(target) > 0) {
      target->data = t->buffers[t->places[i].buffer].data + t->places[i].offset;
    }
  }
  return 0;
}

static int copy_leaves(const tree *t) {
  const gpuf_copy_options options = gpufi_py_request_options(t->wanted);
  gpuf_error err;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpuf_copy_many(t->targets, t->nodes.sources, t->nodes.leaf_count, &options, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    gpufi_py_raise(t->nodes.state, &err);
    return -1;
  }
  return 0;
}

/* --- Building ------------------------------------------------------------ */

typedef struct builder {
  const tree *tree;
  size_t node, leaf; /* the next ones */
} builder;

/* NumPy allocates an array without elements itself. */
static PyObject *build_leaf(const tree *t, size_t index) {
  const gpuf_tensor *target = &t->targets[index];
  if (!target->data) {
    return gpufi_py_array_create(t->nodes.state, target->dtype, target->ndim, target->shape);
  }
  PyObject *capsule = t->buffers[t->places[index].buffer].capsule;
  return gpufi_py_array_over(t->nodes.state, target, Py_NewRef(capsule));
}

static PyObject *build_node(builder *b);

static PyObject *build_mapping(builder *b, const gpufi_py_node *n) {
  PyObject *result = n->kind == NODE_ORDERED
                         ? PyObject_CallFunctionObjArgs(b->tree->nodes.ordered_type, NULL)
                         : PyDict_New();
  for (Py_ssize_t i = 0; result && i < n->count; i++) {
    PyObject *key = PyTuple_GetItem(PyTuple_GetItem(n->object, i), 0);
    PyObject *value = build_node(b);
    if (!value || PyObject_SetItem(result, key, value) < 0) {
      Py_CLEAR(result);
    }
    Py_XDECREF(value);
  }
  return result;
}

/* The list grows: one with empty places would be seen by code that runs meanwhile and asks gc. */
static PyObject *build_list(builder *b, const gpufi_py_node *n) {
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list && i < n->count; i++) {
    PyObject *value = build_node(b);
    if (!value || PyList_Append(list, value) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(value);
  }
  return list;
}

static PyObject *build_sequence(builder *b, const gpufi_py_node *n) {
  PyObject *list = build_list(b, n);
  if (!list || n->kind == NODE_LIST) {
    return list;
  }
  PyObject *result = n->kind == NODE_NAMED ? PyObject_CallMethod(n->object, "_make", "(O)", list)
                                           : PySequence_Tuple(list);
  Py_DECREF(list);
  return result;
}

static PyObject *build_node(builder *b) {
  const gpufi_py_node n = b->tree->nodes.nodes[b->node++];
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

/* Read the tree and allocate the results. End it with tree_fini even when this fails. */
static int tree_init(tree *t, gpufi_py_state *state, PyObject *object,
                     const gpufi_py_request *wanted, bool may_pull) {
  *t = (tree){.wanted = wanted};
  if (gpufi_py_nodes_init(&t->nodes, state, object, may_pull) < 0 || alloc_lists(t) < 0 ||
      describe_targets(t) < 0) {
    return -1;
  }
  place_leaves(t);
  return allocate(t);
}

static PyObject *build(const tree *t) {
  builder b = {t, 0, 0};
  return build_node(&b);
}

PyObject *gpufi_py_fetch_tree(gpufi_py_state *state, PyObject *object,
                              const gpufi_py_request *wanted) {
  tree t;
  PyObject *result = NULL;
  if (tree_init(&t, state, object, wanted, true) == 0 && copy_leaves(&t) == 0) {
    result = build(&t);
  }
  tree_fini(&t);
  return result;
}

/* --- In flight ----------------------------------------------------------- */

/* What keeps the leaves' memory alive, as one object. */
static PyObject *keepalive_of(const tree *t) {
  PyObject *all = PyTuple_New((Py_ssize_t)t->nodes.leaf_count);
  for (size_t i = 0; all && i < t->nodes.leaf_count; i++) {
    PyObject *keepalive = t->nodes.keepalives[i] ? t->nodes.keepalives[i] : Py_None;
    PyTuple_SetItem(all, (Py_ssize_t)i, Py_NewRef(keepalive));
  }
  return all;
}

/* Start the copies into `result`, which is built and not handed out before they are done. */
static PyObject *start(const tree *t, PyObject *result, PyObject *keepalive) {
  const gpuf_copy_options options = gpufi_py_request_options(t->wanted);
  gpuf_future *future = NULL;
  gpuf_error err;
  gpuf_status status;
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_copy_many_async(t->targets, t->nodes.sources, t->nodes.leaf_count, &options,
                                   &future, &err);
  Py_END_ALLOW_THREADS
  return status == GPUF_OK ? gpufi_py_future_create(t->nodes.state, future, result, keepalive)
                           : gpufi_py_raise(t->nodes.state, &err);
}

PyObject *gpufi_py_fetch_tree_async(gpufi_py_state *state, PyObject *object,
                                    const gpufi_py_request *wanted) {
  tree t;
  PyObject *result = NULL, *keepalive = NULL, *future = NULL;
  if (tree_init(&t, state, object, wanted, false) == 0) {
    result = build(&t);
    keepalive = keepalive_of(&t);
  }
  if (result && keepalive) {
    future = start(&t, result, keepalive);
  }
  Py_XDECREF(result);
  Py_XDECREF(keepalive);
  tree_fini(&t);
  return future;
}
