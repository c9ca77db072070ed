/* The codec's inner loops, once for each instruction set. All give the same bytes and the same
 * verdicts; only the scalar one is complete, and what it alone has is used by all.
 *
 * Thread-safety: the tables are constant, and one is chosen at the first use, by whichever thread
 * comes first. */
#ifndef GPUFI_CODEC_CPU_H
#define GPUFI_CODEC_CPU_H

#include "codec/format.h"

/* Widths of value: 8, 16, 32 and 64 bits, as an index. */
#define GPUFI_VALUE_WIDTHS 4

static inline unsigned gpufi_value_index(size_t value_nbytes) {
  return (unsigned)__builtin_ctzll(value_nbytes);
}

/* Of the checksum. */
#define GPUFI_WORD_KEY UINT64_C(0x9e3779b97f4a7c15)

/* What a group's unpacking may read from its first byte on, whatever its width. */
#define GPUFI_GROUP_READ_NBYTES 80

/* What the inverse prediction may read past the last residual. */
#define GPUFI_LINE_READ_NBYTES 64

/* What the packing of a group may write from its first byte on. */
#define GPUFI_GROUP_WRITE_NBYTES 80

/* How the next values are predicted. They may span several lines (lines.h) whose neighbours are the
 * same, all but the first from their start on. */
typedef struct gpufi_line {
  unsigned transform;
  unsigned step;       /* values from one to the next along the line, 1 or 2; 0: not along it */
  uint64_t offset;     /* what the residuals are less by */
  uint64_t carry[2];   /* the `step` values before (less their neighbours); 0 in later lines */
  size_t left, length; /* values from here to the end of the line, and of each line after it */
  uint8_t *above; /* inverse: null, or per value of the line the sum of all in the lines before it
                     that are alike, to which these are added; one vector longer than the line */
  unsigned plus_count, minus_count;
  size_t plus[4], minus[3]; /* bytes back to the neighbours in earlier lines, and their signs */
} gpufi_line;

/* `count` residuals to raw values at `raw`, where earlier lines are already. The residuals are
 * readable for GPUFI_LINE_READ_NBYTES more; `room` values from `raw` on may be written. */
typedef void gpufi_line_inverse_fn(const uint8_t *residuals, size_t count, size_t room,
                                   gpufi_line *line, uint8_t *raw);
/* Up to a block of raw values to residuals. */
typedef void gpufi_line_forward_fn(const uint8_t *raw, size_t count, gpufi_line *line,
                                   uint8_t *residuals);
/* Whole groups of 8, the k-th `widths[k]` bytes, none wider than block->width, to residuals. */
typedef void gpufi_unpack_fn(const uint8_t *in, const uint8_t *widths, size_t groups,
                             const gpufi_block *block, uint8_t *residuals);

/* As gpufi_block_pack. */
typedef bool gpufi_pack_fn(const uint8_t *residuals, size_t count, uint8_t *out, size_t capacity,
                           gpufi_block *block);

/* Groups of 8 values, the k-th to `widths[k]` bytes. Returns where they end, and may write
 * GPUFI_GROUP_WRITE_NBYTES more. */
typedef uint8_t *gpufi_pack_groups_fn(const void *values, const uint8_t *widths, size_t groups,
                                      uint8_t *out);

/* `count` values: the next of `used` where the bit is set, else 0. `used` is readable for
 * GPUFI_EXPAND_READ_NBYTES more, and bits from `count` on are 0. */
typedef void gpufi_expand_fn(const uint8_t *bits, const uint8_t *used, size_t count,
                             uint8_t *values);

/* For each code, none above `last`: table[code], or the next of `escaped` where it is `last`, for
 * which the table of GPUFI_CODES_MAX has 0. `escaped` is readable for GPUFI_EXPAND_READ_NBYTES
 * more. */
typedef void gpufi_symbols_fn(const uint8_t *codes, size_t count, const uint8_t *table,
                              unsigned last, const uint8_t *escaped, uint8_t *symbols);

typedef struct gpufi_cpu {
  const char *name;
  /* Adds the terms of words begin .. end - 1 of a chunk to its checksum. */
  void (*add_words)(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]);
  /* The codes of a block to widths. False if one is below width 1 or unused bits are not 0. */
  bool (*read_codes)(const uint8_t *in, const gpufi_block *block, size_t groups, uint8_t *widths,
                     size_t *total);
  gpufi_unpack_fn *unpack[GPUFI_VALUE_WIDTHS];
  gpufi_pack_fn *pack[GPUFI_VALUE_WIDTHS];
  gpufi_pack_groups_fn *pack_groups[GPUFI_VALUE_WIDTHS];
  gpufi_expand_fn *expand[GPUFI_VALUE_WIDTHS];
  gpufi_symbols_fn *symbols;
  /* Null: whole chunks at a time, by gpufi_predict_inverse and gpufi_predict_forward. */
  gpufi_line_inverse_fn *inverse[GPUFI_VALUE_WIDTHS];
  gpufi_line_forward_fn *forward[GPUFI_VALUE_WIDTHS];
} gpufi_cpu;

extern const gpufi_cpu gpufi_cpu_scalar;
#if defined(__x86_64__)
extern const gpufi_cpu gpufi_cpu_avx2, gpufi_cpu_avx512;
#elif defined(__aarch64__)
extern const gpufi_cpu gpufi_cpu_neon;
#endif

/* The table in use: the fastest this CPU can run, unless GPUFETCH_CPU names another. */
const gpufi_cpu *gpufi_cpu_get(void);

/* GPUF_ERR_INVALID if GPUFETCH_CPU names one that this CPU cannot run. */
gpuf_status gpufi_cpu_check(gpuf_error *err);

/* The table of this name, or null if there is none or this CPU cannot run it. */
const gpufi_cpu *gpufi_cpu_find(const char *name);

/* The `index`-th table that this CPU can run, the scalar one first; null after the last. */
const gpufi_cpu *gpufi_cpu_at(size_t index);

/* Use this one from now on, in every thread. For tests. */
void gpufi_cpu_use(const gpufi_cpu *cpu);

void gpufi_add_words_scalar(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]);
bool gpufi_read_codes_scalar(const uint8_t *in, const gpufi_block *block, size_t groups,
                             uint8_t *widths, size_t *total);
gpufi_unpack_fn gpufi_unpack_8_scalar, gpufi_unpack_16_scalar, gpufi_unpack_32_scalar,
    gpufi_unpack_64_scalar;

gpufi_pack_fn gpufi_pack_8_scalar, gpufi_pack_16_scalar, gpufi_pack_32_scalar, gpufi_pack_64_scalar;

gpufi_pack_groups_fn gpufi_pack_groups_8_scalar, gpufi_pack_groups_16_scalar,
    gpufi_pack_groups_32_scalar, gpufi_pack_groups_64_scalar;

gpufi_symbols_fn gpufi_symbols_scalar;

gpufi_expand_fn gpufi_expand_8_scalar, gpufi_expand_16_scalar, gpufi_expand_32_scalar,
    gpufi_expand_64_scalar;

#endif
