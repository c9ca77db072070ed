/* The prefix code of a ranked chunk, as a binary tree. The nodes of a level are numbered from its
 * leaves on, and all levels go on from where the leaves of the one before end:
 *
 *   level 1        0          1           leaves[1] = 1: node 0
 *                            / \
 *   level 2                 1   2         leaves[2] = 1: node 1
 *                              / \
 *   level 3                   2   3       leaves[3] = 2: nodes 2 and 3
 *
 * So a node below `before[j]` is a leaf of a level above j, and keeps its number; any other node
 * of level j - 1 has the two children 2 * node - before[j] and the one after. A walk down a level
 * is a comparison, a doubling and a bit, for many values at once, and the walk up the inverse of
 * it. The number of the leaf that a walk ends in is its rank.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_TREE_H
#define GPUFI_CODEC_TREE_H

#include "codec/format.h"

#include <stdbool.h>
#include <stddef.h>

/* Level 0 is the root. */
typedef struct gpufi_tree {
  uint8_t depth;                            /* of the deepest leaves, 1 .. GPUFI_TREE_DEPTH_MAX */
  uint8_t leaves[GPUFI_TREE_DEPTH_MAX + 1]; /* of each level */
  uint8_t before[GPUFI_TREE_DEPTH_MAX + 1]; /* leaves of the levels before */
  uint8_t leaf_count;                       /* 2 .. GPUFI_TREE_LEAVES_MAX */
} gpufi_tree;

/* A tree of `depth` levels, of which level j has leaves[j - 1] leaves; false if there is none, for
 * nodes are left without children, or there are too many. */
bool gpufi_tree_init(gpufi_tree *tree, unsigned depth, const uint8_t *leaves);

/* The tree that gives `count` (2 .. GPUFI_TREE_LEAVES_MAX) weights, falling and none of them 0, the
 * least sum of weight times level, but for the limit on its depth (docs/format.md). */
void gpufi_tree_build(gpufi_tree *tree, const uint32_t *weights, size_t count);

/* The level of a leaf: bits of its code. */
unsigned gpufi_tree_level(const gpufi_tree *tree, size_t leaf);

#endif
