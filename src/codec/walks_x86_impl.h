/* Writing the codes of a ranked block, for walks_avx2.c and walks_avx512.c, which define before
 *   steps_of, the steps of leaves by a table
 *   write_level, write_steps, which write the steps to a level, and drop the leaves if it has some
 *
 * Each level has lists of those values alone that take a step to it, one after the other: then the
 * bits of a level are those of its list, as many at a time as a vector has bytes. Lists get shorter
 * from level to level, and in all they are as long as the codes have bits. A level without leaves
 * has the list of the one before. */

/* The steps to all levels from `first` on of values whose leaves, which are overwritten, are below
 * the levels before. */
GPUFI_INLINE void write_levels(uint8_t *list, size_t count, const gpufi_tree *tree,
                               const gpufi_walk_tables *tables, unsigned first,
                               gpufi_bit_writer *w) {
  uint8_t steps[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  for (unsigned j = first; j <= tree->depth && count > 0; j++) {
    if (j == first || j == 9) {
      steps_of(list, count, tree, j <= 8 ? tables->lower : tables->upper, steps);
    }
    count = tree->leaves[j] != 0 ? write_level(list, steps, count, (j - 1) % 8,
                                               (unsigned)tree->before[j] + tree->leaves[j], w)
                                 : write_steps(steps, count, (j - 1) % 8, w);
  }
}
