#include "codec/tree.h"

#include <assert.h>
#include <string.h>

bool gpufi_tree_init(gpufi_tree *tree, unsigned depth, const uint8_t *leaves) {
  size_t inner = 1, before = 0; /* nodes of a level that have children, leaves of those before */
  memset(tree, 0, sizeof(*tree));
  if (depth < 1 || depth > GPUFI_TREE_DEPTH_MAX) {
    return false;
  }
  tree->depth = (uint8_t)depth;
  for (unsigned j = 1; j <= depth; j++) {
    const size_t nodes = 2 * inner;
    tree->leaves[j] = leaves[j - 1];
    tree->before[j] = (uint8_t)before;
    before += leaves[j - 1];
    /* Every inner node has two leaves or more below it. */
    if (leaves[j - 1] > nodes || (nodes == leaves[j - 1]) != (j == depth) ||
        before + 2 * (nodes - leaves[j - 1]) > GPUFI_TREE_LEAVES_MAX) {
      return false;
    }
    inner = nodes - leaves[j - 1];
  }
  tree->leaf_count = (uint8_t)before;
  return true;
}

/* The two least of what is left are joined into a new node until one is left. Leaves are taken from
 * the end of `weights`, and new nodes have rising weights, so the least one is at the front of
 * either list; of equal ones, the leaf is taken. Sets how many leaves each level has. */
static void join_least(const uint32_t *weights, size_t count, uint8_t *leaves, size_t level_count) {
  uint32_t joined[GPUFI_TREE_LEAVES_MAX] = {0};
  uint8_t parent_of_leaf[GPUFI_TREE_LEAVES_MAX], parent[GPUFI_TREE_LEAVES_MAX] = {0};
  uint8_t level[GPUFI_TREE_LEAVES_MAX] = {0};
  size_t left = count, next = 0; /* leaves not yet taken; the first joined node not yet taken */
  for (size_t made = 0; made + 1 < count; made++) {
    for (int side = 0; side < 2; side++) {
      if (left > 0 && (next == made || weights[left - 1] <= joined[next])) {
        joined[made] += weights[--left];
        parent_of_leaf[left] = (uint8_t)made;
      } else {
        joined[made] += joined[next];
        parent[next++] = (uint8_t)made;
      }
    }
  }
  memset(leaves, 0, level_count);
  for (size_t k = count - 2; k-- > 0;) { /* the last one made is the root, of level 0 */
    level[k] = (uint8_t)(level[parent[k]] + 1);
  }
  for (size_t i = 0; i < count; i++) {
    leaves[level[parent_of_leaf[i]] + 1]++;
  }
}

/* Leaves below the limit are moved up to it. Then the codes are too many by as many as the sum
 * says, in units of a leaf at the limit; one is saved each time that a leaf above it goes down by a
 * level and takes another one from the limit as its sibling. */
static void limit_depth(uint8_t *leaves, size_t level_count) {
  const unsigned limit = GPUFI_TREE_DEPTH_MAX;
  uint32_t used = 0;
  for (size_t j = limit + 1; j < level_count; j++) {
    leaves[limit] = (uint8_t)(leaves[limit] + leaves[j]);
  }
  for (unsigned j = 1; j <= limit; j++) {
    used += (uint32_t)leaves[j] << (limit - j);
  }
  for (; used > 1u << limit; used--) {
    unsigned j = limit - 1;
    while (leaves[j] == 0) {
      j--;
    }
    leaves[j]--;
    leaves[j + 1] = (uint8_t)(leaves[j + 1] + 2);
    leaves[limit]--;
  }
}

void gpufi_tree_build(gpufi_tree *tree, const uint32_t *weights, size_t count) {
  uint8_t leaves[GPUFI_TREE_LEAVES_MAX + 1];
  join_least(weights, count, leaves, sizeof(leaves));
  limit_depth(leaves, sizeof(leaves));
  unsigned depth = GPUFI_TREE_DEPTH_MAX;
  while (leaves[depth] == 0) {
    depth--;
  }
  const bool good = gpufi_tree_init(tree, depth, leaves + 1);
  assert(good);
  (void)good;
}

unsigned gpufi_tree_level(const gpufi_tree *tree, size_t leaf) {
  unsigned j = 1;
  while (leaf >= (size_t)tree->before[j] + tree->leaves[j]) {
    j++;
  }
  return j;
}
