/* Buffers that end, or begin, right at a page that faults. */
#ifndef GPUFI_TEST_GUARDED_H
#define GPUFI_TEST_GUARDED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
  uint8_t *data;
  uint8_t *map;
  size_t map_nbytes;
} guarded;

/* `at_end`: the byte after the last faults; else the byte before the first does. */
static inline guarded guarded_alloc(size_t nbytes, int at_end) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (nbytes + page - 1) / page * page;
  guarded g = {.map_nbytes = body + 2 * page};
  g.map = mmap(NULL, g.map_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (g.map == MAP_FAILED || mprotect(g.map, page, PROT_NONE) != 0 ||
      mprotect(g.map + page + body, page, PROT_NONE) != 0) {
    abort();
  }
  g.data = g.map + page + (at_end ? body - nbytes : 0);
  memset(g.data, 0xa5, nbytes);
  return g;
}

static inline void guarded_free(guarded *g) {
  munmap(g->map, g->map_nbytes);
}

#endif
