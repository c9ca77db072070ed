/* The codec's inner loops, of which there is one table for each instruction set. All tables give
 * the same bytes and the same verdicts; only the scalar one is complete by itself, and the others
 * take from it what they have no faster version of.
 *
 * Vector loads and stores are of a fixed size, whatever the width of what they are for, so the
 * functions say how far beyond their operands they may read (GPUFI_*_READ_NBYTES) or write
 * (GPUFI_*_WRITE_NBYTES); whoever calls them provides for it, with copies at the ends of buffers
 * that do not have so many bytes more. What is read too far is never used. */
#ifndef GPUFI_CODEC_KERNELS_H
#define GPUFI_CODEC_KERNELS_H

#include "codec/format.h"
#include "codec/number.h"
#include "codec/sparse.h"
#include "codec/tree.h"
#include "codec/widths.h"

#include <stdbool.h>
#include <stddef.h>

/* Unpacking a group may read so many bytes from its first one on, whatever its width. */
#define GPUFI_GROUP_READ_NBYTES 80

/* Packing a group may write so many bytes from its first one on. */
#define GPUFI_GROUP_WRITE_NBYTES 80

/* The inverse prediction may read so many bytes past the last residual. */
#define GPUFI_LINE_READ_NBYTES 64

/* Reading or writing the codes of a ranked block may read or write so many bytes too far. */
#define GPUFI_WALK_NBYTES 64

/* How the next values are predicted. They may span several lines (lines.h) whose neighbours are the
 * same; in the first of them they begin anywhere, in the others where the line starts. */
typedef struct gpufi_line {
  unsigned transform;
  unsigned step;       /* values from one to the next along the line, 1 or 2; 0: not along it */
  uint64_t offset;     /* was taken off each residual */
  uint64_t carry[2];   /* the `step` values before (less their neighbours); 0 in later lines */
  size_t left, length; /* values from here to the end of the line, and of each line after it */
  /* Inverse only; may be null. For each place of the line the total of the running sums there, over
   * all earlier lines along one axis; the kernel adds this line's. The total telescopes to what the
   * line one step back along that axis contributes to the prediction, so that line need not be
   * loaded and transformed again. One vector longer than the line. */
  uint8_t *above;
  unsigned plus_count, minus_count;
  size_t plus[4], minus[3]; /* bytes back to the neighbours in earlier lines, and their signs */
} gpufi_line;

/* `count` residuals to raw values at `raw`, where earlier lines are already. The residuals are
 * readable for GPUFI_LINE_READ_NBYTES more; `capacity` (>= count) values from `raw` on may be
 * written, and those from `count` on are indeterminate. Advances `line` past the values. */
typedef void gpufi_line_inverse_fn(const uint8_t *residuals, size_t count, size_t capacity,
                                   gpufi_line *line, uint8_t *raw);

/* Up to a block of raw values to residuals. Advances `line` past the values. */
typedef void gpufi_line_forward_fn(const uint8_t *raw, size_t count, gpufi_line *line,
                                   uint8_t *residuals);

/* Whole groups of 8, the k-th `widths[k]` bytes, none wider than block->width, to residuals. Reads
 * up to GPUFI_GROUP_READ_NBYTES from the first byte of each group on. */
typedef void gpufi_unpack_fn(const uint8_t *in, const uint8_t *widths, size_t groups,
                             const gpufi_block *block, uint8_t *residuals);

/* As gpufi_block_pack. */
typedef bool gpufi_pack_fn(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                           gpufi_block *block);

/* Places, of which none is beyond the table's entries, to values of 16 bits, in the same bytes from
 * the last one on: a value takes twice as many as a place. */
typedef void gpufi_from_places_fn(const uint16_t table[GPUFI_DICTIONARY_ENTRIES_MAX], size_t count,
                                  uint8_t *values);

/* How many of up to a block of values are not 0; *any has the bits that are 1 in one of them. */
typedef size_t gpufi_look_at_fn(const uint8_t *values, size_t count, uint64_t *any);

/* Groups of 8 values, the k-th to `widths[k]` bytes. Returns where they end, and may write
 * GPUFI_GROUP_WRITE_NBYTES more. */
typedef uint8_t *gpufi_pack_groups_fn(const void *values, const uint8_t *widths, size_t groups,
                                      uint8_t *out);

/* For each code, none above `last`: table[code], or the next of `escaped` where it is `last`, for
 * which the table of GPUFI_TREE_LEAVES_MAX + 1 has 0. `escaped` is readable for
 * GPUFI_EXPAND_READ_NBYTES more. */
typedef void gpufi_symbols_fn(const uint8_t *codes, size_t count, const uint8_t *table,
                              unsigned last, const uint8_t *escaped, uint8_t *symbols);

/* What an encoder looks up: of each symbol the leaf, which is the last one for those without a code
 * of their own; of each leaf the steps to it, bit j - 1 that to level j, in two bytes; and the
 * levels that these lead to, up to level 8, as bits in the same way. */
typedef struct gpufi_walk_tables {
  bool wide;     /* symbols have more than 8 bits */
  uint8_t last;  /* leaf */
  uint8_t pages; /* bit k: one of the symbols 256 * k to 256 * k + 255 has a code of its own */
  uint8_t leaves[1 << GPUFI_SYMBOL_BITS_MAX];
  uint8_t lower[GPUFI_TREE_LEAVES_MAX + 1], upper[GPUFI_TREE_LEAVES_MAX + 1];
  uint8_t levels[GPUFI_TREE_LEAVES_MAX + 1];
} gpufi_walk_tables;

/* The leaf of each symbol (or what else the table has), of which `lower` has the low 8 bits and, if
 * wide, `upper` the others. May read and write GPUFI_WALK_NBYTES more than `count`. */
typedef void gpufi_leaves_fn(const gpufi_walk_tables *tables, const uint8_t *lower,
                             const uint8_t *upper, size_t count, uint8_t *leaves);

/* A ranked block's leaves, at most GPUFI_BLOCK_VALUES, to the bits of their codes, level by level;
 * returns how many. Writes the bytes of these bits, the last one filled up with zeros, and may
 * write GPUFI_WALK_NBYTES more. */
typedef size_t gpufi_write_walks_fn(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                                    const gpufi_walk_tables *tables, uint8_t *bits);

/* What a decoder looks up: the symbols of leaves, of the last one 0; and by eight steps from the
 * root on, of which the first is the highest bit, the leaf that is on the way, if there is one. */
typedef struct gpufi_leaf_tables {
  bool wide;    /* symbols have more than 8 bits */
  uint8_t last; /* leaf */
  uint8_t lower[GPUFI_TREE_LEAVES_MAX + 1], upper[GPUFI_TREE_LEAVES_MAX + 1]; /* symbols */
  uint8_t leaves[256];
} gpufi_leaf_tables;

/* The inverse of writing. Reads up to GPUFI_CODE_NBYTES_MAX + GPUFI_WALK_NBYTES, whatever they
 * hold, and may write GPUFI_WALK_NBYTES more than `count` leaves. Returns the bits of the codes, of
 * which some may not be there; it is for the caller to compare. Sets how many are the last leaf. */
typedef size_t gpufi_read_walks_fn(const uint8_t *bits, size_t count, const gpufi_tree *tree,
                                   const gpufi_leaf_tables *tables, uint8_t *leaves,
                                   size_t *last_count);

/* Where the symbol is in a value, and what the rest loses; its bits are [at .. at + bits - 1]. */
typedef struct gpufi_cut {
  uint8_t at, bits;
  uint8_t shift; /* the lowest bits of the value, which are 0; at most `at` */
} gpufi_cut;

/* Values to rests and symbols, and back. A symbol is in two arrays: its low 8 bits, and if it has
 * more, the others. `values` need not be aligned. */
typedef void gpufi_split_fn(const gpufi_cut *cut, const uint8_t *values, size_t count, void *rests,
                            uint8_t *lower, uint8_t *upper);
typedef void gpufi_join_fn(const gpufi_cut *cut, const void *rests, const uint8_t *lower,
                           const uint8_t *upper, size_t count, uint8_t *values);

/* What symbols, unpack and join do, in one: packed rests (GPUFI_FORM_PLAIN, one width), leaves, and
 * the symbols of those that are at the last leaf, as a block has them, to values. Reads
 * up to GPUFI_WALK_NBYTES past the rests, and GPUFI_EXPAND_READ_NBYTES past the stored symbols.
 * False, with nothing done, where rests have more than GPUFI_REBUILD_BITS(bits of a value) bits. */
#define GPUFI_REBUILD_BITS(value_bits) ((value_bits) <= 16 ? (value_bits) - 1 : (value_bits) - 7)
typedef bool gpufi_rebuild_fn(const gpufi_cut *cut, const gpufi_leaf_tables *tables,
                              const uint8_t *rests, const uint8_t *leaves, const uint8_t *stored,
                              size_t count, uint8_t *values);

/* What split, leaves and pack_groups do, in one: values to packed rests (of which a block has the
 * bytes of whole groups), symbols and leaves. May write GPUFI_GROUP_WRITE_NBYTES more than the
 * rests, and GPUFI_WALK_NBYTES more than `count` of all else. Returns how many are at the last
 * leaf. */
typedef size_t gpufi_take_apart_fn(const gpufi_cut *cut, const gpufi_walk_tables *tables,
                                   const uint8_t *values, size_t count, uint8_t *rests,
                                   uint8_t *lower, uint8_t *upper, uint8_t *leaves);

/* The codes of a block to the widths of its groups and their total; `widths` has capacity for
 * GPUFI_BLOCK_GROUPS. False if one is below width 1 or unused bits are not 0. May read 32 bytes
 * past the codes. */
typedef bool gpufi_read_codes_fn(const uint8_t *in, const gpufi_block *block, size_t groups,
                                 uint8_t *widths, size_t *total);

/* `count` values of each of two to four planes, which lie `pitch_nbytes` apart, to interleaved
 * ones, and back. */
typedef void gpufi_join_planes_fn(const uint8_t *planes, size_t pitch_nbytes, size_t count,
                                  unsigned plane_count, uint8_t *values);
typedef void gpufi_split_planes_fn(const uint8_t *values, size_t count, unsigned plane_count,
                                   uint8_t *planes, size_t pitch_nbytes);

/* Elements of 1, 2, 4 or 8 bytes to bit planes, which lie `plane_nbytes` apart, and back
 * (bitplanes.h). Return how many of the `groups` are done: all but those at the end that do not
 * fill vectors. */
typedef size_t gpufi_split_bits_fn(size_t element_nbytes, const uint8_t *elements, size_t groups,
                                   uint8_t *planes, size_t plane_nbytes);
typedef size_t gpufi_join_bits_fn(size_t element_nbytes, const uint8_t *planes, size_t plane_nbytes,
                                  size_t groups, uint8_t *elements);

/* Up to a block of values (numbers.h) to what is predicted and packed; `step` is 2 for the parts of
 * complex elements, else 1. The first value is the first one of a group. True if the base of one is
 * not the value itself. */
typedef bool gpufi_to_base_fn(const gpufi_numbers *numbers, unsigned step, const uint8_t *values,
                              size_t count, uint8_t *p);

/* Back to the bases, in place. */
typedef void gpufi_from_base_fn(const gpufi_numbers *numbers, size_t count, uint8_t *values);

/* Bases to values, in place, by their corrections. */
typedef void gpufi_correct_fn(const gpufi_numbers *numbers, const uint8_t *corrections,
                              size_t count, uint8_t *values);

/* The bases of values to their corrections, in place. False if one cannot be written: with a fill
 * there is one less. */
typedef bool gpufi_corrections_fn(const gpufi_numbers *numbers, const uint8_t *values, size_t count,
                                  uint8_t *bases);

/* Which of GPUFI_ORIGINS numbers n, n + 1 and so on may be added to the integers p of `count`
 * values (steps.c), as bits: with the b by which the first value is the base of its integer and n
 * more, the others are so too. For values of 32 and 64 bits. */
#define GPUFI_ORIGINS 64
typedef uint64_t gpufi_find_origins_fn(const gpufi_numbers *numbers, const double *values,
                                       const double *p, size_t count, double n);

/* Subsets of the axes that prediction may go along (sample.h). */
#define GPUFI_SUBSETS (1 << GPUFI_PREDICT_AXES)

/* A sampled group among a batch's values: number at[s / 2] is the first of the eight values that
 * lie one step back along all axes of subset s, for even s; those of s + 1 lie a step before them.
 * Bit b of inside[j]: value j has an index above 0 along axis b. */
typedef struct gpufi_sampled_group {
  uint16_t at[GPUFI_SUBSETS / 2];
  uint16_t far; /* if has_far: value j of the group is predicted from number far + j, if no bit of
                   inside[j] is set */
  uint8_t inside[GPUFI_GROUP_VALUES];
  uint8_t count; /* values of the group; those after them do not exist */
  bool has_far;
  bool is_inner; /* there are eight values, and all indices are above 0 */
} gpufi_sampled_group;

/* Some sampled groups, and their values and neighbours: as they are, and as they are predicted. */
typedef struct gpufi_sample_batch {
  size_t count, value_count;
  gpufi_sampled_group groups[GPUFI_BLOCK_GROUPS];
  uint8_t raw[8 * GPUFI_BLOCK_VALUES], values[8 * GPUFI_BLOCK_VALUES];
} gpufi_sample_batch;

/* What the sampled residuals cost, for each subset. */
typedef struct gpufi_sample_cost {
  uint64_t residual_or[GPUFI_SUBSETS];
  uint32_t width_sum[GPUFI_SUBSETS];   /* of the widest zigzagged residual of each group */
  uint32_t group_count[GPUFI_SUBSETS]; /* groups that are not all 0 */
  uint32_t
      used_width_sum[GPUFI_SUBSETS];  /* width_sum, times the group's residuals that are not 0 */
  uint32_t used_count[GPUFI_SUBSETS]; /* residuals that are not 0 */
} gpufi_sample_cost;

/* Add what the residuals less `offset` cost with each subset. The first element's residual is 0,
 * less the offset, with all subsets but the empty one. `step` is 2 for parts of complex elements,
 * else 1. */
typedef void gpufi_sample_costs_fn(const gpufi_sample_batch *batch, unsigned subset_count,
                                   unsigned step, uint64_t offset, gpufi_sample_cost *cost);

/* The same residuals with one subset, eight for each group. */
typedef void gpufi_sample_residuals_fn(const gpufi_sample_batch *batch, unsigned subset_count,
                                       unsigned step, unsigned subset, uint64_t offset,
                                       uint8_t *residuals);

/* Of each of some groups of eight residuals, or of these zigzagged, the bits that are neither 0 in
 * all of them nor 1 in all of them; how many these are of all groups. */
typedef uint64_t gpufi_busy_bits_fn(const uint8_t *residuals, size_t groups, bool zigzags);

/* Adds the terms of words begin .. end - 1 of a chunk to its checksum. */
typedef void gpufi_add_words_fn(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]);

/* Arrays have an entry for each width of value: gpufi_value_index(). */
typedef struct gpufi_cpu {
  const char *name;
  gpufi_add_words_fn *add_words;
  gpufi_read_codes_fn *read_codes;
  gpufi_unpack_fn *unpack[GPUFI_VALUE_WIDTHS];
  gpufi_look_at_fn *look_at[GPUFI_VALUE_WIDTHS];
  gpufi_pack_fn *pack[GPUFI_VALUE_WIDTHS];
  gpufi_pack_groups_fn *pack_groups[GPUFI_VALUE_WIDTHS];
  gpufi_expand_fn *expand[GPUFI_VALUE_WIDTHS];
  gpufi_compact_fn *compact[GPUFI_VALUE_WIDTHS];
  gpufi_from_places_fn *from_places_16;
  gpufi_symbols_fn *symbols;
  gpufi_leaves_fn *leaves;
  gpufi_write_walks_fn *write_walks;
  gpufi_read_walks_fn *read_walks;
  gpufi_split_fn *split[GPUFI_VALUE_WIDTHS];
  gpufi_join_fn *join[GPUFI_VALUE_WIDTHS];
  gpufi_take_apart_fn *take_apart[GPUFI_VALUE_WIDTHS]; /* null: by split, leaves, pack_groups */
  gpufi_rebuild_fn *rebuild[GPUFI_VALUE_WIDTHS];       /* null: by unpack, symbols and join */
  gpufi_split_bits_fn *split_bits;
  gpufi_join_bits_fn *join_bits;
  gpufi_join_planes_fn *join_planes[GPUFI_VALUE_WIDTHS];
  gpufi_split_planes_fn *split_planes[GPUFI_VALUE_WIDTHS];
  gpufi_to_base_fn *to_base[GPUFI_VALUE_WIDTHS];
  gpufi_from_base_fn *from_base[GPUFI_VALUE_WIDTHS];
  gpufi_correct_fn *correct[GPUFI_VALUE_WIDTHS];
  gpufi_corrections_fn *corrections[GPUFI_VALUE_WIDTHS];
  gpufi_find_origins_fn *find_origins[GPUFI_VALUE_WIDTHS];
  gpufi_sample_costs_fn *sample_costs[GPUFI_VALUE_WIDTHS];
  gpufi_sample_residuals_fn *sample_residuals[GPUFI_VALUE_WIDTHS];
  gpufi_busy_bits_fn *busy_bits[GPUFI_VALUE_WIDTHS];
  /* Null: whole chunks at a time, by gpufi_predict_inverse and gpufi_predict_forward. */
  gpufi_line_inverse_fn *inverse[GPUFI_VALUE_WIDTHS];
  gpufi_line_forward_fn *forward[GPUFI_VALUE_WIDTHS];
} gpufi_cpu;

/* Each in the file of its name. */
extern const gpufi_cpu gpufi_cpu_scalar;
#if defined(__x86_64__)
extern const gpufi_cpu gpufi_cpu_avx2, gpufi_cpu_avx512;
#elif defined(__aarch64__)
extern const gpufi_cpu gpufi_cpu_neon;
#endif

#endif
