/* A tree of tensors, read into a list of nodes. fetch reads it once, because the copies run without
 * the GIL and the caller's containers may change meanwhile. */
#ifndef GPUFI_PY_TREE_NODES_H
#define GPUFI_PY_TREE_NODES_H

#include "state.h"

typedef enum gpufi_py_node_kind {
  NODE_LEAF,    /* a tensor: the next entry of the leaves */
  NODE_OTHER,   /* passes through */
  NODE_DICT,    /* becomes a dict */
  NODE_ORDERED, /* becomes an OrderedDict */
  NODE_LIST,
  NODE_TUPLE,
  NODE_NAMED /* a namedtuple */
} gpufi_py_node_kind;

/* In depth-first order: `count` children follow, each with what is below it. */
typedef struct gpufi_py_node {
  gpufi_py_node_kind kind;
  PyObject *object; /* strong: OTHER the object, DICT and ORDERED the tuple of items, NAMED the
                       type; else NULL */
  Py_ssize_t count;
} gpufi_py_node;

typedef struct gpufi_py_nodes {
  gpufi_py_state *state;
  gpufi_py_node *nodes;
  size_t node_count, node_capacity;
  gpuf_tensor *sources;  /* of the leaves, in their order; checked */
  PyObject **keepalives; /* of the leaves; strong */
  size_t leaf_count, leaf_capacity;
  bool may_pull;
  PyObject *path;         /* "['a'][3]" of what could not be read */
  PyObject *mapping_type; /* collections.abc.Mapping and collections.OrderedDict, when needed */
  PyObject *ordered_type;
  PyTypeObject *leaf_type; /* of the last tensor; NULL before the first */
} gpufi_py_nodes;

/* Read the tree. TypeError or ValueError says where in it an object could not be read. `may_pull`:
 * whether tensors of other processes are pulled. End it with gpufi_py_nodes_fini even when this
 * fails. */
int gpufi_py_nodes_init(gpufi_py_nodes *nodes, gpufi_py_state *state, PyObject *object,
                        bool may_pull);
void gpufi_py_nodes_fini(gpufi_py_nodes *nodes);

/* 1 if `object` is a container that fetch looks into, 0 if not, -1 with an exception set. */
int gpufi_py_is_tree(gpufi_py_state *state, PyObject *object);

#endif
