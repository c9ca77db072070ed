/* Tensors by name. An entry lives until it is not published any more and nobody reads, imports or
 * holds it; then its owner's release is called, on the thread that ended the last use.
 *
 * The registry itself lives until its creator and its last entry are gone: importers in other
 * processes may keep an entry longer than the dispatcher lives.
 *
 * Thread-safety: any thread. No lock is held while a callback runs. */
#ifndef GPUFI_COMM_REGISTRY_H
#define GPUFI_COMM_REGISTRY_H

#include "comm/failure.h"
#include "comm/request.h"
#include "comm/source.h"

#include <pthread.h>
#include <stdatomic.h>

/* Finds a tensor by name: gpufi_dispatcher_options.resolve. */
typedef gpuf_status gpufi_resolver(void *arg, const char *name, gpufi_source *source,
                                   gpuf_error *err);

/* Whoever holds a use of an entry may read it; of a published entry, the stream and the owner in
 * `source` change when the same memory is published again, under the lock. */
typedef struct gpufi_entry {
  struct gpufi_entry *next;
  struct gpufi_registry *registry;
  gpufi_source source;
  int64_t generation;   /* constant; 0 = found by the resolver */
  int64_t publication;  /* constant; of this entry alone, from 1 */
  bool published;       /* it is what its name stands for */
  bool withdrawn;       /* by its name, and not by another entry of that name: nobody may hold it */
  int32_t reader_count; /* operations that use it now */
  int32_t share_count;  /* shares that have not ended */
  int32_t hold_count;
  uint64_t hold_round; /* the last one of gpufi_holds_end_unused that lets it be held on */
  /* A wait for its shares timed out: it stays in the list, with nothing in use any more, so that
   * its name is known until a wait has told that they ended. */
  bool is_awaited;
  char name[GPUFI_TENSOR_NAME_MAX_NBYTES + 1];
} gpufi_entry;

/* A client's requests that belong together, such as those of a read in fragments, are under way:
 * they go on in the entry that they began with, also where another one has the name by then. */
typedef struct gpufi_hold {
  struct gpufi_hold *next;
  uint64_t client;
  gpufi_entry *entry;
  int64_t used_ns; /* when a request named it last, by gpufi_clock_ns */
} gpufi_hold;

typedef struct gpufi_registry {
  atomic_int reference_count; /* its creator and each entry */
  int32_t tensor_max;
  int32_t held_max;        /* entries that are not published and are held */
  int64_t hold_ns;         /* how long a hold that is not used lasts at least */
  gpufi_resolver *resolve; /* or NULL */
  void *resolve_arg;

  pthread_mutex_t lock;   /* guards what follows, and `next`, `published` and the entries' counts */
  pthread_cond_t changed; /* an entry's count went down */
  gpufi_entry *entries;   /* by name; also those in use that are replaced or withdrawn */
  gpufi_hold *holds;      /* one of a client at most; the one that was used last comes first */
  uint64_t hold_round;    /* calls of gpufi_holds_end_unused */
  int64_t last_generation, last_publication;
  int32_t tensor_count; /* published entries */
} gpufi_registry;

/* NULL where there is no memory. */
gpufi_registry *gpufi_registry_create(int32_t tensor_max, int32_t held_max, int64_t hold_ns,
                                      gpufi_resolver *resolve, void *resolve_arg);
void gpufi_registry_unref(gpufi_registry *registry);
int32_t gpufi_registry_tensor_count(gpufi_registry *registry);

/* --- Using entries ------------------------------------------------------------- */

/* Find a request's tensor, held for its client, published or by the resolver, and count a reader of
 * it. tensor->stream is the one that the read has to wait for: none for a live read of a published
 * or held tensor. */
gpufi_code gpufi_entry_acquire(gpufi_registry *registry, const gpufi_request *request,
                               gpufi_entry **entry, gpuf_tensor *tensor, gpuf_error *err);
void gpufi_entry_release(gpufi_entry *entry);
/* A share of an entry that the caller reads begins; gpufi_entry_end_share, from any thread, ends
 * it. */
void gpufi_entry_begin_share(gpufi_entry *entry);
void gpufi_entry_end_share(void *entry);
/* False once a published entry is withdrawn or replaced. */
bool gpufi_entry_is_current(gpufi_entry *entry);

/* --- Holding entries ------------------------------------------------------------ */

/* Hold an entry that the caller reads for requests of a client's that will name it, which takes the
 * place of the client's hold so far. Nothing is held where the entry was withdrawn, or without
 * memory. The hold ends by one of the calls below. */
void gpufi_holds_begin(gpufi_entry *entry, uint64_t client);
/* End the hold that a client has of an entry, if any. */
void gpufi_holds_end(gpufi_entry *entry, uint64_t client);
/* End the hold of a client. */
void gpufi_holds_end_of_client(gpufi_registry *registry, uint64_t client);
/* End all holds of the entries that had a name (NULL = any) and are not published, none of which
 * can be held again. */
void gpufi_holds_end_of_withdrawn(gpufi_registry *registry, const char *name);
/* End the holds that have not been used for `hold_ns`, and those of entries that are not published
 * beyond `held_max`, of which those stay held that were used last. */
void gpufi_holds_end_unused(gpufi_registry *registry);
/* A use by a hold that was taken out of the list ends. */
void gpufi_entry_end_hold(gpufi_entry *entry);

/* --- Publishing ---------------------------------------------------------------- */

/* Publish a source under a checked name. The same memory under the same name stays the same entry,
 * of which only the stream and the owner change. An entry that is replaced goes to *replaced, else
 * NULL; the caller ends its shares and releases it. On failure the source is the caller's. */
gpuf_status gpufi_registry_put(gpufi_registry *registry, const char *name,
                               const gpufi_source *source, gpufi_entry **replaced, gpuf_error *err);
/* Withdraw one published entry, that of a name or (NULL) any; NULL if there is none. The caller
 * ends its shares and releases it. */
gpufi_entry *gpufi_registry_take(gpufi_registry *registry, const char *name);

/* Whether withdrawn entries of that name have shares that have not ended, or had some when a wait
 * for them timed out, and no wait has told since that they ended. */
bool gpufi_registry_is_awaited(gpufi_registry *registry, const char *name);
/* Whether an entry of that name is published. */
bool gpufi_registry_has(gpufi_registry *registry, const char *name);
/* Wait until nobody reads the withdrawn entries of a name (NULL = any), and then for up to
 * `timeout_ns` (< 0 = for ever) for their shares to end: GPUF_ERR_TIMEOUT while some have not. */
gpuf_status gpufi_registry_wait(gpufi_registry *registry, const char *name, int64_t timeout_ns,
                                gpuf_error *err);

#endif
