#include "hdf5/driver/extents.h"

#include <stdlib.h>
#include <string.h>

void gpufi_h5_extent_grow(gpufi_h5_extent *extent, uint64_t offset, size_t nbytes) {
  const bool is_empty = extent->begin == extent->end;
  extent->begin = is_empty || offset < extent->begin ? offset : extent->begin;
  extent->end = is_empty || offset + nbytes > extent->end ? offset + nbytes : extent->end;
}

bool gpufi_h5_extent_overlaps(const gpufi_h5_extent *extent, uint64_t offset, size_t nbytes) {
  return offset < extent->end && extent->begin < offset + nbytes;
}

/* The first range that ends at `at` or later. Most bytes are added behind all others. */
static size_t first_ending(const gpufi_h5_extents *e, uint64_t at) {
  size_t low = e->count > 0 && e->ranges[e->count - 1].end < at ? e->count : 0;
  size_t high = e->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (e->ranges[middle].end < at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Put `count` ranges in place of those from `first` to before `last`. False without memory. */
static bool replace(gpufi_h5_extents *e, size_t first, size_t last, const gpufi_h5_extent *ranges,
                    size_t count) {
  const size_t grown_count = e->count - (last - first) + count;
  if (grown_count > e->capacity) {
    const size_t capacity = 2 * e->capacity + 16;
    gpufi_h5_extent *const grown = realloc(e->ranges, capacity * sizeof(*grown));
    if (!grown) {
      return false;
    }
    e->ranges = grown;
    e->capacity = capacity;
  }
  if (e->count > last) {
    memmove(e->ranges + first + count, e->ranges + last, (e->count - last) * sizeof(*e->ranges));
  }
  if (count > 0) {
    memcpy(e->ranges + first, ranges, count * sizeof(*ranges));
  }
  e->count = grown_count;
  return true;
}

void gpufi_h5_extents_add(gpufi_h5_extents *e, uint64_t begin, uint64_t end) {
  gpufi_h5_extent all = {begin, end};
  const size_t first = first_ending(e, begin);
  size_t last = first;
  while (last < e->count && e->ranges[last].begin <= end) {
    all.begin = e->ranges[last].begin < all.begin ? e->ranges[last].begin : all.begin;
    all.end = e->ranges[last].end > all.end ? e->ranges[last].end : all.end;
    last++;
  }
  replace(e, first, last, &all, 1);
}

void gpufi_h5_extents_remove(gpufi_h5_extents *e, uint64_t begin, uint64_t end) {
  gpufi_h5_extent sides[2];
  size_t side_count = 0;
  const size_t first = first_ending(e, begin + 1);
  size_t last = first;
  while (last < e->count && e->ranges[last].begin < end) {
    last++;
  }
  if (first == last) {
    return;
  }
  if (e->ranges[first].begin < begin) {
    sides[side_count++] = (gpufi_h5_extent){e->ranges[first].begin, begin};
  }
  if (e->ranges[last - 1].end > end) {
    sides[side_count++] = (gpufi_h5_extent){end, e->ranges[last - 1].end};
  }
  if (!replace(e, first, last, sides, side_count)) {
    replace(e, first, last, NULL, 0);
  }
}

void gpufi_h5_extents_fini(gpufi_h5_extents *e) {
  free(e->ranges);
  *e = (gpufi_h5_extents){NULL, 0, 0};
}
