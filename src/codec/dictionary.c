/* Values of 2 bytes or more that are few in number (labels, materials, levels) become places in a
 * table of them, one byte each, and these are predicted and packed like values of one byte. The
 * table is sorted, so that it has one form only, and near values have near places. */
#include "codec/dictionary.h"
#include "codec/bytes.h"
#include "codec/cpu.h"
#include "codec/sample.h"
#include "codec/widths.h"

static uint64_t load(const gpufi_dictionary *d, const uint8_t *raw, size_t i, bool swap) {
  const uint8_t *const at = raw + i * d->value_nbytes;
  return swap ? gpufi_load_swapped(at, d->value_nbytes) : gpufi_load_value(at, d->value_nbytes);
}

static size_t first_bucket(uint64_t value) {
  return (size_t)(value * 0x9e3779b97f4a7c15u >> 32) % GPUFI_DICTIONARY_BUCKETS;
}

/* The index of the entry that holds `value`, plus 1; of a new entry, if there is none, but 0 if
 * there are GPUFI_DICTIONARY_ENTRIES_MAX already. The search ends, for there are more buckets than
 * entries and so always a free one. */
static size_t find_or_add(gpufi_dictionary *d, uint64_t value) {
  size_t bucket = first_bucket(value);
  while (d->buckets[bucket] != 0 && d->values[d->buckets[bucket] - 1] != value) {
    bucket = (bucket + 1) % GPUFI_DICTIONARY_BUCKETS;
  }
  if (d->buckets[bucket] == 0 && d->count < GPUFI_DICTIONARY_ENTRIES_MAX) {
    d->values[d->count++] = value;
    d->buckets[bucket] = (uint16_t)d->count;
  }
  return d->buckets[bucket];
}

/* An unsigned number that sorts as the value does: a signed integer with its top bit flipped; for
 * floats, their order transform, which sorts as a signed integer, with its top bit flipped. */
static uint64_t sort_key(const gpufi_dictionary *d, uint64_t value) {
  const unsigned bits = (unsigned)(8 * d->value_nbytes);
  const uint64_t top = UINT64_C(1) << (bits - 1), all = top | (top - 1);
  const bool is_signed = d->dtype >= GPUF_DTYPE_INT8 && d->dtype <= GPUF_DTYPE_INT64;
  if (gpufi_chunk_dtype_is_float(d->dtype)) {
    return value & top ? value ^ all : value ^ top;
  }
  return is_signed ? value ^ top : value;
}

/* Sort the entries, by insertion; place[i] is where entry i goes to. */
static void sort(gpufi_dictionary *d, uint8_t place[GPUFI_DICTIONARY_ENTRIES_MAX]) {
  uint8_t order[GPUFI_DICTIONARY_ENTRIES_MAX];
  uint64_t values[GPUFI_DICTIONARY_ENTRIES_MAX];
  memcpy(values, d->values, d->count * sizeof(values[0]));
  for (size_t i = 0; i < d->count; i++) {
    const uint64_t key = sort_key(d, values[i]);
    size_t at = i;
    for (; at > 0 && sort_key(d, values[order[at - 1]]) > key; at--) {
      order[at] = order[at - 1];
    }
    order[at] = (uint8_t)i;
  }
  for (size_t i = 0; i < d->count; i++) {
    d->values[i] = values[order[i]];
    place[order[i]] = (uint8_t)i;
  }
}

/* The entries of the sample; false if there are too many, which is how most chunks are ruled out.
 */
static bool collect_sample(gpufi_dictionary *d, const gpufi_geometry *g, const uint8_t *raw,
                           bool swap) {
  for (size_t k = 0; k < gpufi_sample_count(g); k++) {
    const size_t first = gpufi_sample_first(g, k);
    for (size_t i = first; i < first + GPUFI_GROUP_VALUES && i < g->value_count; i++) {
      if (find_or_add(d, load(d, raw, i, swap)) == 0) {
        return false;
      }
    }
  }
  return true;
}

/* False if the entries are integers with hardly a gap between them: their places are no better to
 * predict than they are themselves. */
static bool has_gaps(const gpufi_dictionary *d) {
  uint64_t least = UINT64_MAX, greatest = 0;
  for (size_t i = 0; i < d->count; i++) {
    const uint64_t key = sort_key(d, d->values[i]);
    least = key < least ? key : least;
    greatest = key > greatest ? key : greatest;
  }
  return gpufi_chunk_dtype_is_float(d->dtype) || greatest - least >= 2 * d->count;
}

/* For each value the index of its entry, which are in the order in which they were found. */
static bool collect_all(gpufi_dictionary *d, const gpufi_geometry *g, const uint8_t *raw, bool swap,
                        uint8_t *places) {
  GPUFI_BY_NBYTES(g->value_nbytes, {
    for (size_t i = 0; i < g->value_count; i++) {
      T x;
      memcpy(&x, raw + i * sizeof(T), sizeof(T));
      const uint64_t value = swap ? gpufi_reversed(x, sizeof(T)) : x;
      size_t found = d->buckets[first_bucket(value)]; /* most entries are in their first bucket */
      if (found == 0 || d->values[found - 1] != value) {
        found = find_or_add(d, value);
        if (found == 0) {
          return false;
        }
      }
      places[i] = (uint8_t)(found - 1);
    }
  });
  return true;
}

/* Integers near each other need no search: what a value is more than the first one that is near is
 * an index into tables of NEAR bytes, which a kernel of ranked chunks looks up. */
#define NEAR 256

/* The first one, with as much before the entries of the sample as after them; false if these are
 * not near each other. */
static bool find_near(const gpufi_dictionary *d, uint64_t *first) {
  const unsigned unused = 64 - 8 * (unsigned)d->value_nbytes;
  int64_t least = 0, greatest = 0;
  for (size_t i = 0; i < d->count; i++) {
    const int64_t more = (int64_t)((d->values[i] - d->values[0]) << unused) >> unused;
    least = more < least ? more : least;
    greatest = more > greatest ? more : greatest;
  }
  const uint64_t range = (uint64_t)greatest - (uint64_t)least;
  *first = d->values[0] + (uint64_t)least - (NEAR - range) / 2;
  return !gpufi_chunk_dtype_is_float(d->dtype) && range < NEAR;
}

/* The indices of up to a block of values; false if one is not near. */
static bool index_near(size_t value_nbytes, const uint8_t *raw, size_t count, uint64_t first,
                       uint8_t *indices) {
  uint64_t far = 0;
  GPUFI_BY_NBYTES(value_nbytes, {
    T any = 0;
    for (size_t i = 0; i < count; i++) {
      T x;
      memcpy(&x, raw + i * sizeof(T), sizeof(T));
      x = (T)(x - (T)first);
      any |= x;
      indices[i] = (uint8_t)x;
    }
    far = any / NEAR;
  });
  return far == 0;
}

static void look_up(const gpufi_walk_tables *table, size_t count, uint8_t *bytes) {
  uint8_t found[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES], in[sizeof(found)];
  memcpy(in, bytes, count);
  gpufi_cpu_get()->leaves(table, in, in, count, found);
  memcpy(bytes, found, count);
}

/* The indices of all values, in `places`, and which there are: 1 in the table. Most blocks have no
 * new ones. False if a value is not near. */
static bool see_near(const gpufi_geometry *g, const uint8_t *raw, uint64_t first,
                     gpufi_walk_tables *seen, uint8_t *places) {
  uint8_t known[GPUFI_BLOCK_VALUES];
  for (size_t i = 0; i < g->value_count; i += GPUFI_BLOCK_VALUES) {
    const size_t left = g->value_count - i;
    const size_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
    if (!index_near(g->value_nbytes, raw + i * g->value_nbytes, count, first, places + i)) {
      return false;
    }
    memcpy(known, places + i, count);
    look_up(seen, count, known);
    if (memchr(known, 0, count) != NULL) {
      for (size_t j = 0; j < count; j++) {
        seen->leaves[places[i + j]] = 1;
      }
    }
  }
  return true;
}

/* Make entries of those that there are, of which there cannot be too many, and of indices places in
 * their ascending order. */
static void place_near(gpufi_dictionary *d, const gpufi_geometry *g, uint64_t first,
                       const gpufi_walk_tables *seen, uint8_t *places) {
  const uint64_t all = UINT64_MAX >> (64 - 8 * g->value_nbytes);
  uint8_t place[GPUFI_DICTIONARY_ENTRIES_MAX];
  gpufi_walk_tables table = {0};
  d->count = 0;
  for (size_t x = 0; x < NEAR; x++) {
    if (seen->leaves[x] != 0) {
      table.leaves[x] = (uint8_t)d->count;
      d->values[d->count++] = (first + x) & all;
    }
  }
  sort(d, place);
  for (size_t x = 0; x < NEAR; x++) {
    table.leaves[x] = place[table.leaves[x]];
  }
  for (size_t i = 0; i < g->value_count; i += GPUFI_BLOCK_VALUES) {
    const size_t left = g->value_count - i;
    look_up(&table, left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES, places + i);
  }
}

/* By a search for each value, whatever they are. */
static bool collect_any(gpufi_dictionary *d, const gpufi_geometry *g, const uint8_t *raw, bool swap,
                        uint8_t *places) {
  uint8_t place[GPUFI_DICTIONARY_ENTRIES_MAX];
  if (!collect_all(d, g, raw, swap, places)) {
    return false;
  }
  sort(d, place);
  for (size_t i = 0; i < g->value_count; i++) {
    places[i] = place[places[i]];
  }
  return true;
}

bool gpufi_dictionary_collect(gpufi_dictionary *d, gpuf_dtype dtype, const gpufi_geometry *g,
                              const uint8_t *raw, bool swap, bool gaps_only, uint8_t *places) {
  gpufi_walk_tables seen = {0};
  uint64_t first;
  memset(d, 0, sizeof(*d));
  d->dtype = dtype;
  d->value_nbytes = g->value_nbytes;
  if (g->value_nbytes == 1 || !collect_sample(d, g, raw, swap) || (gaps_only && !has_gaps(d))) {
    return false;
  }
  if (!swap && find_near(d, &first) && see_near(g, raw, first, &seen, places)) {
    place_near(d, g, first, &seen, places);
    return true;
  }
  return collect_any(d, g, raw, swap, places);
}

void gpufi_dictionary_write(const gpufi_dictionary *d, uint8_t *table) {
  for (size_t i = 0; i < d->count; i++) {
    memcpy(table + i * d->value_nbytes, &d->values[i], d->value_nbytes);
  }
}

size_t gpufi_dictionary_read(gpufi_dictionary *d, const uint8_t *table) {
  for (size_t i = 0; i < d->count; i++) {
    d->values[i] = gpufi_load_value(table + i * d->value_nbytes, d->value_nbytes);
    if (i > 0 && sort_key(d, d->values[i]) <= sort_key(d, d->values[i - 1])) {
      return i;
    }
  }
  return d->count;
}

bool gpufi_dictionary_expand(const gpufi_dictionary *d, size_t value_count, bool swap,
                             uint8_t *values) {
  uint8_t table[GPUFI_DICTIONARY_ENTRIES_MAX][8];
  for (size_t i = 0; i < d->count; i++) {
    const uint64_t entry = d->values[i];
    const uint64_t value = swap ? gpufi_reversed(entry, d->value_nbytes) : entry;
    memcpy(table[i], &value, sizeof(value));
  }
  uint8_t greatest = 0; /* all are checked first, so that the loop over values needs no check */
  for (size_t i = 0; i < value_count; i++) {
    greatest = values[i] > greatest ? values[i] : greatest;
  }
  if (greatest >= d->count) {
    return false;
  }
  if (d->value_nbytes == 2) {
    uint16_t narrow[GPUFI_DICTIONARY_ENTRIES_MAX] = {0};
    for (size_t i = 0; i < d->count; i++) {
      memcpy(&narrow[i], table[i], sizeof(narrow[i]));
    }
    gpufi_cpu_get()->from_places_16(narrow, value_count, values);
    return true;
  }
  GPUFI_BY_NBYTES(d->value_nbytes, {
    for (size_t i = value_count;
         i-- > 0;) { /* from the end: a value takes more bytes than a place */
      memcpy(values + i * sizeof(T), table[values[i]], sizeof(T));
    }
  });
  return true;
}
