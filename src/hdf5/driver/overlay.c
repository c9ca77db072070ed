#include "hdf5/driver/overlay.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "hdf5/driver/io.h"

#define PAGE_NBYTES 4096

struct gpufi_h5_page {
  gpufi_h5_page *next; /* of the same bucket */
  uint64_t number;     /* its offset in the file, in pages */
  unsigned char bytes[PAGE_NBYTES];
};

static gpufi_h5_page *find_page(const gpufi_h5_overlay *overlay, uint64_t number) {
  gpufi_h5_page *page = overlay->buckets[number % GPUFI_H5_OVERLAY_BUCKETS];
  while (page && page->number != number) {
    page = page->next;
  }
  return page;
}

static gpufi_h5_page *add_page(gpufi_h5_overlay *overlay, size_t nbytes_max, int fd,
                               uint64_t number) {
  gpufi_h5_page **bucket = &overlay->buckets[number % GPUFI_H5_OVERLAY_BUCKETS];
  gpufi_h5_page *page = NULL;
  if (overlay->nbytes + sizeof(*page) <= nbytes_max) {
    page = malloc(sizeof(*page));
  }
  if (!page) {
    return NULL;
  }
  if (gpufi_h5_io_read(fd, number * PAGE_NBYTES, page->bytes, PAGE_NBYTES) != 0) {
    memset(page->bytes, 0, PAGE_NBYTES);
  }
  page->number = number;
  page->next = *bucket;
  *bucket = page;
  overlay->nbytes += sizeof(*page);
  return page;
}

/* How many of `nbytes` bytes at `offset` lie on the page of `offset`. */
static size_t nbytes_on_page(uint64_t offset, size_t nbytes) {
  return gpufi_min_nbytes(nbytes, PAGE_NBYTES - (size_t)(offset % PAGE_NBYTES));
}

bool gpufi_h5_overlay_put(gpufi_h5_overlay *overlay, size_t nbytes_max, int fd, uint64_t offset,
                          const void *bytes, size_t nbytes) {
  const unsigned char *from = bytes;
  while (nbytes > 0) {
    const size_t count = nbytes_on_page(offset, nbytes);
    gpufi_h5_page *page = find_page(overlay, offset / PAGE_NBYTES);
    if (!page && !(page = add_page(overlay, nbytes_max, fd, offset / PAGE_NBYTES))) {
      return false;
    }
    memcpy(page->bytes + offset % PAGE_NBYTES, from, count);
    from += count;
    offset += count;
    nbytes -= count;
  }
  return true;
}

void gpufi_h5_overlay_apply(const gpufi_h5_overlay *overlay, uint64_t offset, void *bytes,
                            size_t nbytes) {
  unsigned char *to = bytes;
  while (nbytes > 0 && overlay->nbytes > 0) {
    const size_t count = nbytes_on_page(offset, nbytes);
    const gpufi_h5_page *page = find_page(overlay, offset / PAGE_NBYTES);
    if (page) {
      memcpy(to, page->bytes + offset % PAGE_NBYTES, count);
    }
    to += count;
    offset += count;
    nbytes -= count;
  }
}

void gpufi_h5_overlay_fini(gpufi_h5_overlay *overlay) {
  for (size_t i = 0; i < GPUFI_H5_OVERLAY_BUCKETS; i++) {
    while (overlay->buckets[i]) {
      gpufi_h5_page *page = overlay->buckets[i];
      overlay->buckets[i] = page->next;
      free(page);
    }
  }
  overlay->nbytes = 0;
}
