/* The pinned pool.
 *
 * The pool takes memory from the system in regions. A large buffer is a region of its own. Small
 * ones come from regions that are divided into buffers of one size class. Regions stay pinned while
 * they are unused, until the cap or a trim asks for the memory.
 *
 * A large region may be handed out before it is page-locked, to be filled through staging buffers,
 * because the first copy into it is quicker so. It is page-locked when it is handed out again.
 *
 * Size classes are powers of two, from 64 bytes to 512 KiB. Larger buffers are rounded up by an
 * eighth at most, and an unused one serves any request that fills at least 7/8 of it. */
#include "core/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/struct.h"
#include "base/system.h"
#include "core/pinned.h"
#include "core/runtime.h"

#define SMALL_MIN_NBYTES ((size_t)64)
#define SMALL_MAX_NBYTES ((size_t)512 << 10)
#define DIVIDED_NBYTES ((size_t)2 << 20)       /* of a region for small buffers */
#define UNPINNED_MIN_NBYTES ((size_t)32 << 20) /* below, page-locking costs next to nothing */

typedef enum purpose { FOR_ANY, FOR_STAGING, FOR_RESULT } purpose;

/* A small buffer that is unused holds the link to the next one in its first bytes. */
typedef struct unused_buffer {
  struct unused_buffer *next;
} unused_buffer;

typedef struct region {
  char *base;
  size_t nbytes;
  size_t buffer_nbytes; /* == nbytes if the region is one buffer */
  size_t used_count;
  bool pinned;           /* changed only by the thread that holds the only buffer */
  unused_buffer *unused; /* of a divided region */
  const gpufi_backend *backend;
  int32_t device; /* that it was pinned through; every device of the kind can use it */
  bool is_used[]; /* of each buffer, whether it is handed out */
} region;

/* Guards all below. Not held while memory is mapped, pinned or unpinned. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static region **regions; /* by ascending base */
static size_t region_count, region_capacity;
static gpuf_pool_stats stats;
static bool cap_is_set;

static bool is_divided(const region *r) {
  return r->buffer_nbytes < r->nbytes;
}

/* The functions from here to add_region are called with pool_lock held, those after it without. */

static void ensure_cap(void) {
  if (!cap_is_set) {
    const int64_t physical = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    stats.cap_nbytes = (size_t)gpufi_env_int64("GPUFETCH_POOL_MAX_NBYTES", physical / 4);
    cap_is_set = true;
  }
}

/* Index of the first region whose base is above `address`. */
static size_t upper_bound(uintptr_t address) {
  size_t low = 0, high = region_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if ((uintptr_t)regions[middle]->base <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static region *region_at(const void *ptr) {
  const size_t index = upper_bound((uintptr_t)ptr);
  if (index == 0) {
    return NULL;
  }
  region *r = regions[index - 1];
  return (uintptr_t)ptr - (uintptr_t)r->base < r->nbytes ? r : NULL;
}

static size_t buffer_index(const region *r, const void *ptr) {
  return (size_t)((const char *)ptr - r->base) / r->buffer_nbytes;
}

static void *take_buffer(region *r) {
  void *ptr = r->base;
  if (is_divided(r)) {
    ptr = r->unused;
    r->unused = r->unused->next;
  }
  r->is_used[buffer_index(r, ptr)] = true;
  r->used_count++;
  stats.used_nbytes += r->buffer_nbytes;
  if (stats.used_nbytes > stats.peak_used_nbytes) {
    stats.peak_used_nbytes = stats.used_nbytes;
  }
  return ptr;
}

static bool has_unused(const region *r) {
  return is_divided(r) ? r->unused != NULL : r->used_count == 0;
}

/* Whether `r` serves the request: a large buffer with a waste of an eighth at most, a small one
 * exactly. */
static bool serves(const region *r, gpuf_device_kind kind, size_t nbytes, bool small) {
  const bool fits = small ? r->buffer_nbytes == nbytes
                          : r->buffer_nbytes >= nbytes && r->buffer_nbytes / 8 * 7 <= nbytes;
  return fits && r->backend->kind == kind && is_divided(r) == small && has_unused(r);
}

/* The region that serves best: pinned before unpinned, smaller before larger. */
static region *find_free(gpuf_device_kind kind, size_t nbytes, bool small) {
  region *best = NULL;
  for (size_t i = 0; i < region_count; i++) {
    region *r = regions[i];
    if (!serves(r, kind, nbytes, small)) {
      continue;
    }
    if (small) {
      return r;
    }
    if (!best || (r->pinned && !best->pinned) ||
        (r->pinned == best->pinned && r->buffer_nbytes < best->buffer_nbytes)) {
      best = r;
    }
  }
  return best;
}

/* Take the largest unused region out of the table; NULL if there is none. */
static region *detach_unused(void) {
  size_t found = region_count;
  for (size_t i = 0; i < region_count; i++) {
    if (regions[i]->used_count == 0 &&
        (found == region_count || regions[i]->nbytes > regions[found]->nbytes)) {
      found = i;
    }
  }
  if (found == region_count) {
    return NULL;
  }
  region *r = regions[found];
  memmove(&regions[found], &regions[found + 1], (region_count - found - 1) * sizeof(*regions));
  region_count--;
  stats.reserved_nbytes -= r->nbytes;
  return r;
}

static bool grow_table(void) {
  if (region_count == region_capacity) {
    const size_t capacity = region_capacity ? 2 * region_capacity : 64;
    region **grown = realloc(regions, capacity * sizeof(*regions));
    if (!grown) {
      return false;
    }
    regions = grown;
    region_capacity = capacity;
  }
  return true;
}

static bool add_region(region *r) {
  if (!grow_table()) {
    return false;
  }
  const size_t index = upper_bound((uintptr_t)r->base);
  memmove(&regions[index + 1], &regions[index], (region_count - index) * sizeof(*regions));
  regions[index] = r;
  region_count++;
  return true;
}

static void region_destroy(region *r) {
  if (r->pinned) {
    r->backend->unpin(r->device, r->base);
  }
  gpufi_unmap(r->base, r->nbytes);
  free(r);
}

static void trim_to(size_t keep_nbytes) {
  for (;;) {
    pthread_mutex_lock(&pool_lock);
    region *r = stats.reserved_nbytes > keep_nbytes ? detach_unused() : NULL;
    pthread_mutex_unlock(&pool_lock);
    if (!r) {
      return;
    }
    region_destroy(r);
  }
}

static void divide(region *r) {
  for (size_t offset = r->nbytes; offset >= r->buffer_nbytes; offset -= r->buffer_nbytes) {
    unused_buffer *buffer = (unused_buffer *)(r->base + offset - r->buffer_nbytes);
    buffer->next = r->unused;
    r->unused = buffer;
  }
}

/* Page-lock a region whose only buffer the caller holds. Divided regions are pinned when made. */
static gpuf_status region_pin(region *r, gpuf_error *err) {
  if (r->pinned) {
    return GPUF_OK;
  }
  const gpuf_status status = gpufi_pin(r->backend, r->device, r->base, r->nbytes, err);
  r->pinned = status == GPUF_OK;
  return status;
}

/* NULL, with *status and `err` set, after a failure. */
static region *region_create(const gpufi_backend *backend, int32_t device, size_t buffer_nbytes,
                             size_t nbytes, bool pinned, gpuf_status *status, gpuf_error *err) {
  region *r = calloc(1, sizeof(*r) + nbytes / buffer_nbytes * sizeof(*r->is_used));
  void *base = r ? gpufi_map(nbytes) : NULL;
  if (!base) {
    *status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, errno,
                         "the system has no %zu bytes for a buffer of the pinned pool", nbytes);
    free(r);
    return NULL;
  }
  *r = (region){.base = base,
                .nbytes = nbytes,
                .buffer_nbytes = buffer_nbytes,
                .backend = backend,
                .device = device};
  *status = pinned ? region_pin(r, err) : GPUF_OK;
  if (*status != GPUF_OK) {
    region_destroy(r);
    return NULL;
  }
  if (is_divided(r)) {
    divide(r);
  }
  return r;
}

/* The memory of regions in which no buffer is used. Called with pool_lock held. */
static size_t unused_nbytes(void) {
  size_t total = 0;
  for (size_t i = 0; i < region_count; i++) {
    total += regions[i]->used_count == 0 ? regions[i]->nbytes : 0;
  }
  return total;
}

static gpuf_status fail_at_cap(size_t nbytes, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                    "the pinned pool holds %zu bytes of its cap of %zu, %zu of them in use, and "
                    "cannot add %zu; raise the cap (gpuf_pool_set_cap, GPUFETCH_POOL_MAX_NBYTES) "
                    "or release arrays that came from it",
                    stats.reserved_nbytes, stats.cap_nbytes,
                    stats.reserved_nbytes - unused_nbytes(), nbytes);
}

/* Count `nbytes` as reserved before they are pinned, so that threads that grow the pool at the same
 * time keep to the cap together. */
static gpuf_status reserve(size_t nbytes, purpose why, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&pool_lock);
  ensure_cap();
  const size_t cap = stats.cap_nbytes;
  const bool fits = nbytes <= cap && stats.reserved_nbytes - unused_nbytes() <= cap - nbytes;
  if (!fits && why != FOR_STAGING) { /* unused memory is not given up in vain */
    status = fail_at_cap(nbytes, err);
  }
  pthread_mutex_unlock(&pool_lock);
  if (status != GPUF_OK) {
    return status;
  }
  trim_to(nbytes <= cap ? cap - nbytes : SIZE_MAX);
  pthread_mutex_lock(&pool_lock);
  if (why != FOR_STAGING && stats.reserved_nbytes > cap - nbytes) { /* another thread was first */
    status = fail_at_cap(nbytes, err);
  } else {
    stats.reserved_nbytes += nbytes;
    stats.miss_count++;
  }
  pthread_mutex_unlock(&pool_lock);
  return status;
}

static gpuf_status grow(const gpufi_backend *backend, int32_t device, size_t buffer_nbytes,
                        bool small, purpose why, void **ptr, gpuf_error *err) {
  const size_t nbytes = small ? DIVIDED_NBYTES : buffer_nbytes;
  const bool pinned = why != FOR_RESULT || nbytes < UNPINNED_MIN_NBYTES;
  gpuf_status status = reserve(nbytes, why, err);
  if (status != GPUF_OK) {
    return status;
  }
  region *r = region_create(backend, device, buffer_nbytes, nbytes, pinned, &status, err);
  pthread_mutex_lock(&pool_lock);
  const bool added = r && add_region(r);
  if (added) {
    *ptr = take_buffer(r);
  } else {
    stats.reserved_nbytes -= nbytes;
  }
  pthread_mutex_unlock(&pool_lock);
  if (r && !added) {
    region_destroy(r);
    status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for the pool's table");
  }
  return status;
}

static size_t class_nbytes(size_t nbytes, bool small) {
  if (small) {
    size_t rounded = SMALL_MIN_NBYTES;
    while (rounded < nbytes) {
      rounded *= 2;
    }
    return rounded;
  }
  size_t unit = SMALL_MAX_NBYTES / 8;
  while (unit * 16 < nbytes && unit < DIVIDED_NBYTES) {
    unit *= 2;
  }
  return gpufi_round_up(nbytes, unit);
}

/* Bring a buffer that was unused into the state that the caller may expect. */
static gpuf_status prepare(region *r, purpose why, void *ptr, gpuf_error *err) {
  const gpuf_status status = region_pin(r, err);
  if (status == GPUF_OK || why == FOR_RESULT) {
    return GPUF_OK; /* an unpinned buffer serves for a result, and is only slower to fill */
  }
  gpuf_pool_release(ptr, NULL);
  return status;
}

static gpuf_status acquire(gpuf_device device, size_t nbytes, purpose why, void **ptr,
                           gpuf_error *err) {
  const gpufi_backend *backend;
  gpuf_status status = gpufi_backend_for(device, &backend, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (nbytes == 0 || nbytes > PTRDIFF_MAX - DIVIDED_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a buffer of %zu bytes; ask the pool for 1 to %td",
                      nbytes, PTRDIFF_MAX - (ptrdiff_t)DIVIDED_NBYTES);
  }
  const bool small = nbytes <= SMALL_MAX_NBYTES;
  const size_t wanted = class_nbytes(nbytes, small);
  void *taken = NULL;
  pthread_mutex_lock(&pool_lock);
  region *r = find_free(backend->kind, small ? wanted : nbytes, small);
  if (r) {
    stats.hit_count++;
    taken = take_buffer(r);
  }
  pthread_mutex_unlock(&pool_lock);
  if (!r) {
    return grow(backend, device.index, wanted, small, why, ptr, err);
  }
  status = prepare(r, why, taken, err);
  if (status == GPUF_OK) {
    *ptr = taken;
  }
  return status;
}

gpuf_status gpuf_pool_acquire(gpuf_device device, size_t nbytes, void **ptr, gpuf_error *err) {
  GPUFI_REQUIRE(ptr, err);
  return acquire(device, nbytes, FOR_ANY, ptr, err);
}

gpuf_status gpuf_pool_acquire_result(gpuf_device device, size_t nbytes, void **ptr,
                                     gpuf_error *err) {
  GPUFI_REQUIRE(ptr, err);
  return acquire(device, nbytes, FOR_RESULT, ptr, err);
}

gpuf_status gpufi_pool_acquire_staging(gpuf_device device, size_t nbytes, void **ptr,
                                       gpuf_error *err) {
  return acquire(device, nbytes, FOR_STAGING, ptr, err);
}

/* Take a buffer back. Called with pool_lock held. */
static gpuf_status take_back(void *ptr, gpuf_error *err) {
  region *r = region_at(ptr);
  if (!r || (size_t)((char *)ptr - r->base) % r->buffer_nbytes != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%p is not a buffer of the pinned pool; release what gpuf_pool_acquire gave, "
                      "and once",
                      ptr);
  }
  bool *const is_used = &r->is_used[buffer_index(r, ptr)];
  if (!*is_used) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "%p, a buffer of %zu bytes of the pinned pool, is not in use; it was "
                      "released before",
                      ptr, r->buffer_nbytes);
  }
  *is_used = false;
  if (is_divided(r)) {
    unused_buffer *buffer = ptr;
    buffer->next = r->unused;
    r->unused = buffer;
  }
  r->used_count--;
  stats.used_nbytes -= r->buffer_nbytes;
  return GPUF_OK;
}

gpuf_status gpuf_pool_release(void *ptr, gpuf_error *err) {
  if (!ptr || gpufi_forked()) {
    return GPUF_OK;
  }
  pthread_mutex_lock(&pool_lock);
  const gpuf_status status = take_back(ptr, err);
  const bool over_cap = stats.reserved_nbytes > stats.cap_nbytes;
  const size_t cap = stats.cap_nbytes;
  pthread_mutex_unlock(&pool_lock);
  if (over_cap) {
    trim_to(cap);
  }
  return status;
}

gpuf_status gpuf_pool_get_stats(gpuf_pool_stats *out, gpuf_error *err) {
  gpuf_pool_stats own = {0}; /* after fork() the pool is the parent's: there is nothing to count */
  const gpuf_status status = gpufi_struct_check(out, sizeof(own), "GPUF_POOL_STATS_INIT", err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!gpufi_forked()) {
    pthread_mutex_lock(&pool_lock);
    ensure_cap();
    own = stats;
    pthread_mutex_unlock(&pool_lock);
  }
  gpufi_struct_write(out, &own, sizeof(own));
  return GPUF_OK;
}

void gpuf_pool_trim(size_t keep_nbytes) {
  if (!gpufi_forked()) {
    trim_to(keep_nbytes);
  }
}

void gpuf_pool_set_cap(size_t cap_nbytes) {
  if (gpufi_forked()) {
    return;
  }
  pthread_mutex_lock(&pool_lock);
  stats.cap_nbytes = cap_nbytes;
  cap_is_set = true;
  pthread_mutex_unlock(&pool_lock);
  trim_to(cap_nbytes);
}

bool gpufi_pool_is_pinned(gpuf_device_kind kind, const void *ptr, size_t nbytes) {
  pthread_mutex_lock(&pool_lock);
  const region *r = region_at(ptr);
  const bool pinned = r && r->pinned && r->backend->kind == kind &&
                      nbytes <= r->nbytes - (size_t)((uintptr_t)ptr - (uintptr_t)r->base);
  pthread_mutex_unlock(&pool_lock);
  return pinned;
}
