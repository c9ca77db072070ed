#include "codec/format.h"
#include "codec/widths.h"

static uint64_t load(const gpufi_dictionary *d, const uint8_t *raw, size_t i, bool swap) {
  const uint8_t *const at = raw + i * d->value_nbytes;
  return swap ? gpufi_load_swapped(at, d->value_nbytes) : gpufi_load_value(at, d->value_nbytes);
}

/* The slot that holds `value`, or the free one where it belongs. There is always a free one. */
static uint16_t *find(const gpufi_dictionary *d, uint64_t value) {
  size_t slot = (size_t)(value * 0x9e3779b97f4a7c15u >> 32) % GPUFI_DICTIONARY_SLOTS;
  while (d->slots[slot] != 0 && d->values[d->slots[slot] - 1] != value) {
    slot = (slot + 1) % GPUFI_DICTIONARY_SLOTS;
  }
  return (uint16_t *)&d->slots[slot];
}

/* False if `value` is new and there are `limit` entries already. */
static bool add(gpufi_dictionary *d, uint64_t value, size_t limit) {
  uint16_t *const slot = find(d, value);
  if (*slot == 0) {
    if (d->count == limit) {
      return false;
    }
    d->values[d->count++] = value;
    *slot = (uint16_t)d->count;
  }
  return true;
}

/* Rises with the value as a number; for floats, with the order transform read as signed. */
static uint64_t sort_key(const gpufi_dictionary *d, uint64_t value) {
  const unsigned bits = (unsigned)(8 * d->value_nbytes);
  const uint64_t top = UINT64_C(1) << (bits - 1), all = top | (top - 1);
  const bool is_signed = d->dtype >= GPUF_DTYPE_INT8 && d->dtype <= GPUF_DTYPE_INT64;
  if (gpufi_chunk_dtype_is_float(d->dtype)) {
    return value & top ? value ^ all : value ^ top;
  }
  return is_signed ? value ^ top : value;
}

static void sort(gpufi_dictionary *d) {
  for (size_t i = 1; i < d->count; i++) {
    const uint64_t value = d->values[i], key = sort_key(d, value);
    size_t at = i;
    for (; at > 0 && sort_key(d, d->values[at - 1]) > key; at--) {
      d->values[at] = d->values[at - 1];
    }
    d->values[at] = value;
  }
  memset(d->slots, 0, sizeof(d->slots));
  for (size_t i = 0; i < d->count; i++) {
    *find(d, d->values[i]) = (uint16_t)(i + 1);
  }
}

static bool collect_sample(gpufi_dictionary *d, const gpufi_geometry *g, const uint8_t *raw,
                           bool swap) {
  for (size_t k = 0; k < gpufi_sample_count(g); k++) {
    const size_t first = gpufi_sample_first(g, k);
    for (size_t i = first; i < first + GPUFI_GROUP_VALUES && i < g->value_count; i++) {
      if (!add(d, load(d, raw, i, swap), GPUFI_DICTIONARY_ENTRIES_MAX)) {
        return false;
      }
    }
  }
  return true;
}

/* The loops below look a value up only where it differs from the one before it: what has few
 * distinct values often has them in runs. */

static uint64_t native(uint64_t value, size_t nbytes, bool swap) {
  return swap ? __builtin_bswap64(value) >> (64 - 8 * nbytes) : value;
}

bool gpufi_dictionary_collect(gpufi_dictionary *d, gpuf_dtype dtype, const gpufi_geometry *g,
                              const uint8_t *raw, bool swap) {
  memset(d, 0, sizeof(*d));
  d->dtype = dtype;
  d->value_nbytes = g->value_nbytes;
  if (g->value_nbytes == 1 || !collect_sample(d, g, raw, swap)) {
    return false;
  }
  GPUFI_BY_NBYTES(g->value_nbytes, {
    T before = 0;
    for (size_t i = 0; i < g->value_count; i++) {
      T x;
      memcpy(&x, raw + i * sizeof(T), sizeof(T));
      if ((x != before || i == 0) &&
          !add(d, native(x, sizeof(T), swap), GPUFI_DICTIONARY_ENTRIES_MAX)) {
        return false;
      }
      before = x;
    }
  });
  sort(d);
  return true;
}

void gpufi_dictionary_lookup(const gpufi_dictionary *d, const gpufi_geometry *g, const uint8_t *raw,
                             bool swap, uint8_t *places) {
  GPUFI_BY_NBYTES(g->value_nbytes, {
    T before = 0;
    uint8_t place = 0;
    for (size_t i = 0; i < g->value_count; i++) {
      T x;
      memcpy(&x, raw + i * sizeof(T), sizeof(T));
      if (x != before || i == 0) {
        place = (uint8_t)(*find(d, native(x, sizeof(T), swap)) - 1);
      }
      before = x;
      places[i] = place;
    }
  });
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
    const uint8_t *const at = (const uint8_t *)&d->values[i];
    const uint64_t value = swap ? gpufi_load_swapped(at, d->value_nbytes) : d->values[i];
    memcpy(table[i], &value, sizeof(value));
  }
  uint8_t greatest = 0;
  for (size_t i = 0; i < value_count; i++) {
    greatest = values[i] > greatest ? values[i] : greatest;
  }
  if (greatest >= d->count) {
    return false;
  }
  GPUFI_BY_NBYTES(d->value_nbytes, {
    for (size_t i = value_count; i-- > 0;) {
      memcpy(values + i * sizeof(T), table[values[i]], sizeof(T)); /* from the end: it takes more */
    }
  });
  return true;
}
