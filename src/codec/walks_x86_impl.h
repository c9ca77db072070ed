/* The codes of a ranked block, for walks_avx2.c and walks_avx512.c, which define before what
 * handles a vector of values at a time, and WALKS_OF(name), the functions' external names.
 *
 * Each level has lists of those values alone that take a step to it, one after the other: then the
 * bits of a level are those of its list, as many at a time as a vector has bytes. Lists get shorter
 * from level to level, and in all they are as long as the codes have bits. A level without leaves
 * has the list of the one before. */

size_t WALKS_OF(gpufi_write_walks)(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                                   const gpufi_walk_tables *tables, uint8_t *bits) {
  gpufi_bit_writer w = {bits, 0, 0};
  uint8_t list[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES],
      steps[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  memcpy(list, leaves, count);
  steps_of(list, count, tree, tables->lower, steps);
  for (unsigned j = 1; j <= tree->depth && count > 0; j++) {
    if (j == 9) {
      steps_of(list, count, tree, tables->upper, steps);
    }
    count = tree->leaves[j] != 0 ? write_level(list, steps, count, (j - 1) % 8,
                                               (unsigned)tree->before[j] + tree->leaves[j], &w)
                                 : write_steps(steps, count, (j - 1) % 8, &w);
  }
  gpufi_put_last_bits(&w);
  return 8 * (size_t)(w.next - bits) + w.fill;
}

size_t WALKS_OF(gpufi_read_walks)(const uint8_t *bits, size_t count, const gpufi_tree *tree,
                                  uint8_t *leaves) {
  uint8_t lists[GPUFI_TREE_DEPTH_MAX][GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  size_t counts[GPUFI_TREE_DEPTH_MAX + 1] = {count}, at = 0;
  unsigned inner[GPUFI_TREE_DEPTH_MAX + 1], k = 0; /* the list that is in use; 0 is `leaves` */
  memset(leaves, 0, count);                        /* the root */
  for (unsigned j = 1; counts[k] > 0; j++) {
    uint8_t *const nodes = k == 0 ? leaves : lists[k - 1];
    read_steps(bits, at, counts[k], tree->before[j], nodes);
    at += counts[k];
    if (j == tree->depth) {
      break;
    }
    if (tree->leaves[j] != 0) {
      inner[k] = (unsigned)tree->before[j] + tree->leaves[j];
      counts[k + 1] = list_inner(nodes, counts[k], inner[k], lists[k]);
      k++;
    }
  }
  while (k-- > 0) {
    put_back(lists[k], counts[k], inner[k], k == 0 ? leaves : lists[k - 1]);
  }
  return at;
}
