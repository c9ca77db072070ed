#include "comm/dispatcher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"
#include "comm/publish.h"
#include "comm/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static gpuf_status set_defaults(gpufi_dispatcher_options *options, gpuf_error *err) {
  const struct {
    int32_t *limit, fallback;
  } limits[] = {
      {&options->client_max, 256}, {&options->waiting_max, 4}, {&options->tensor_max, 4096},
      {&options->value_max, 256},  {&options->share_max, 64},  {&options->held_max, 64},
  };
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
    if (*limits[i].limit < 0) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a limit of %" PRId32 "; 0 is the default",
                        *limits[i].limit);
    }
    *limits[i].limit = *limits[i].limit > 0 ? *limits[i].limit : limits[i].fallback;
  }
  if (options->hold_ns == 0) {
    options->hold_ns = 10 * GPUFI_NS_PER_S;
  }
  if (options->reply_memory_nbytes == 0) {
    options->reply_memory_nbytes = (size_t)64 << 20;
  }
  if (options->reply_memory_nbytes < 2 * GPUFI_REPLY_MAX_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu bytes for replies; two of them need %zu: allow that at least",
                      options->reply_memory_nbytes, 2 * GPUFI_REPLY_MAX_NBYTES);
  }
  if (options->step_share == 0) {
    options->step_share = 0.05;
  }
  if (!(options->step_share > 0 && options->step_share <= 1)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "step_share is %g; it must be in (0, 1]",
                      options->step_share);
  }
  if (!options->reply) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the option reply is NULL: it takes the answers");
  }
  return GPUF_OK;
}

static void name_instance(gpufi_dispatcher *dispatcher) {
  uint64_t random;
  if (!gpufi_random_bytes(&random, sizeof(random))) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    random = ((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec) + (uintptr_t)dispatcher;
  }
  snprintf(dispatcher->instance, sizeof(dispatcher->instance), "%016" PRIx64, random);
}

/* Fill in a dispatcher of all zeros. False without memory; what was made is freed by release. */
static bool init(gpufi_dispatcher *dispatcher, const gpufi_dispatcher_options *options) {
  snprintf(dispatcher->server_name, sizeof(dispatcher->server_name), "%s",
           options->server_name ? options->server_name : "gpufetch");
  dispatcher->options = *options;
  dispatcher->options.server_name = dispatcher->server_name;
  name_instance(dispatcher);
  gpufi_values_init(&dispatcher->values, options->value_max);
  gpufi_clients_init(&dispatcher->clients, options->client_max);
  gpufi_shares_init(&dispatcher->shares, options->share_max, &dispatcher->clients);
  gpufi_steps_init(&dispatcher->steps);
  gpufi_queues_init(&dispatcher->queues, options->waiting_max);
  dispatcher->budget = gpufi_budget_create(options->reply_memory_nbytes);
  dispatcher->registry = gpufi_registry_create(options->tensor_max, options->held_max,
                                               options->hold_ns, options->resolve, options->arg);
  return dispatcher->budget && dispatcher->registry;
}

/* Replies and importers may keep the budget and the registry longer. */
static void release(gpufi_dispatcher *dispatcher) {
  gpufi_queues_fini(&dispatcher->queues);
  gpufi_steps_fini(&dispatcher->steps);
  gpufi_shares_fini(&dispatcher->shares);
  gpufi_clients_fini(&dispatcher->clients);
  gpufi_values_fini(&dispatcher->values);
  if (dispatcher->registry) {
    gpufi_registry_unref(dispatcher->registry);
  }
  if (dispatcher->budget) {
    gpufi_budget_unref(dispatcher->budget);
  }
  free(dispatcher);
}

gpuf_status gpufi_dispatcher_create(const gpufi_dispatcher_options *options,
                                    gpufi_dispatcher **dispatcher, gpuf_error *err) {
  gpufi_dispatcher_options checked = *options;
  const gpuf_status status = set_defaults(&checked, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_dispatcher *created = calloc(1, sizeof(*created));
  if (!created || !init(created, &checked)) {
    if (created) {
      release(created);
    }
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a dispatcher");
  }
  *dispatcher = created;
  return GPUF_OK;
}

gpuf_status gpufi_dispatcher_destroy(gpufi_dispatcher *dispatcher, int64_t timeout_ns,
                                     gpuf_error *err) {
  if (!dispatcher) {
    return GPUF_OK;
  }
  gpufi_shares_withdraw(&dispatcher->shares, 0, NULL, NULL);
  const gpuf_status status = gpufi_unpublish_all(dispatcher, timeout_ns, err);
  release(dispatcher);
  return status;
}

void gpufi_dispatcher_get_counts(gpufi_dispatcher *dispatcher, gpufi_dispatcher_counts *counts) {
  gpufi_clients *clients = &dispatcher->clients;
  *counts = (gpufi_dispatcher_counts){
      .waiting_count = gpufi_queues_count(&dispatcher->queues),
      .tensor_count = gpufi_registry_tensor_count(dispatcher->registry),
      .share_count = gpufi_shares_count(&dispatcher->shares),
      .reply_nbytes = atomic_load(&dispatcher->budget->used_nbytes),
      .request_count = atomic_load(&dispatcher->request_count),
      .error_count = atomic_load(&dispatcher->error_count),
  };
  pthread_mutex_lock(&clients->lock);
  counts->client_count = clients->count;
  counts->refused_count = clients->refused_count;
  pthread_mutex_unlock(&clients->lock);
}
