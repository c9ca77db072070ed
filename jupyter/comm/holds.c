#include "base/clock.h"
#include "comm/registry.h"

#include <stdlib.h>
#include <string.h>

void gpufi_holds_begin(gpufi_entry *entry, uint64_t client) {
  gpufi_registry *registry = entry->registry;
  gpufi_holds_end_of_client(registry, client);
  gpufi_hold *hold = calloc(1, sizeof(*hold));
  pthread_mutex_lock(&registry->lock);
  /* Under one lock, so that whoever withdraws the entry either finds the hold or forbids it. */
  if (hold && !entry->withdrawn) {
    *hold = (gpufi_hold){registry->holds, client, entry, gpufi_clock_ns()};
    registry->holds = hold;
    entry->hold_count++;
    hold = NULL;
  }
  pthread_mutex_unlock(&registry->lock);
  free(hold);
}

/* Which holds are meant: those for which every member that is set holds. */
typedef struct hold_filter {
  uint64_t client;          /* 0 = any */
  const gpufi_entry *entry; /* NULL = any */
  bool is_withdrawn;        /* of entries that are */
  int64_t before_ns;        /* not used since; INT64_MAX = any */
} hold_filter;

/* Under the lock: take a hold out of the list, which `link` leads to. */
static void take_one(gpufi_hold **link, gpufi_hold **taken) {
  gpufi_hold *hold = *link;
  *link = hold->next;
  hold->next = *taken;
  *taken = hold;
}

/* Under the lock: take the holds that fit out of the list. */
static gpufi_hold *take(gpufi_registry *registry, const hold_filter *filter) {
  gpufi_hold *taken = NULL;
  for (gpufi_hold **link = &registry->holds; *link;) {
    const gpufi_hold *hold = *link;
    if ((filter->client == 0 || hold->client == filter->client) &&
        (!filter->entry || hold->entry == filter->entry) &&
        (!filter->is_withdrawn || hold->entry->withdrawn) && hold->used_ns < filter->before_ns) {
      take_one(link, &taken);
    } else {
      link = &(*link)->next;
    }
  }
  return taken;
}

/* Under the lock: take the holds of unpublished entries beyond `held_max` out of the list. All
 * holds of an entry count as one, since they keep the same memory. */
static gpufi_hold *take_excess(gpufi_registry *registry) {
  const uint64_t round = ++registry->hold_round;
  gpufi_hold *taken = NULL;
  int32_t count = 0;
  for (gpufi_hold **link = &registry->holds; *link;) {
    gpufi_entry *entry = (*link)->entry;
    const bool is_another = !entry->published && entry->hold_round != round;
    if (is_another && count == registry->held_max) {
      take_one(link, &taken);
      continue;
    }
    if (is_another) {
      entry->hold_round = round;
      count++;
    }
    link = &(*link)->next;
  }
  return taken;
}

/* Without the lock: an owner's release may be called. */
static void end(gpufi_hold *taken) {
  while (taken) {
    gpufi_hold *next = taken->next;
    gpufi_entry_end_hold(taken->entry);
    free(taken);
    taken = next;
  }
}

static void end_matching(gpufi_registry *registry, const hold_filter *filter) {
  pthread_mutex_lock(&registry->lock);
  gpufi_hold *taken = take(registry, filter);
  pthread_mutex_unlock(&registry->lock);
  end(taken);
}

void gpufi_holds_end(gpufi_entry *entry, uint64_t client) {
  const hold_filter filter = {.client = client, .entry = entry, .before_ns = INT64_MAX};
  end_matching(entry->registry, &filter);
}

void gpufi_holds_end_of_client(gpufi_registry *registry, uint64_t client) {
  const hold_filter filter = {.client = client, .before_ns = INT64_MAX};
  end_matching(registry, &filter);
}

void gpufi_holds_end_unused(gpufi_registry *registry) {
  const hold_filter filter = {.before_ns = gpufi_clock_ns() - registry->hold_ns};
  pthread_mutex_lock(&registry->lock);
  gpufi_hold *unused = take(registry, &filter);
  gpufi_hold *excess = take_excess(registry);
  pthread_mutex_unlock(&registry->lock);
  end(unused);
  end(excess);
}

void gpufi_holds_end_of_withdrawn(gpufi_registry *registry, const char *name) {
  const hold_filter filter = {.is_withdrawn = true, .before_ns = INT64_MAX};
  pthread_mutex_lock(&registry->lock);
  for (gpufi_entry *entry = registry->entries; entry; entry = entry->next) {
    if (!entry->published && (!name || strcmp(entry->name, name) == 0)) {
      entry->withdrawn = true;
    }
  }
  gpufi_hold *taken = take(registry, &filter);
  pthread_mutex_unlock(&registry->lock);
  end(taken);
}
